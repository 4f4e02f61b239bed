"""RECEIVE: what comes next; with a WHERE the messages of one conversation, or of one conversation group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from konverse.dialog.endpoint import Endpoint, bytes_of
from konverse.dialog.handing_out import HandingOut, let_others_pass, take
from konverse.dialog.owner import Owner
from konverse.dialog.phase import LEADING
from konverse.dialog.states import State
from konverse.dialog.transaction import Transaction
from konverse.schemas.catalog import Queue
from konverse.schemas.errors import BadInput, DialogNotFound, NoPartition
from konverse.schemas.limits import LOOK_AHEAD_RECORDS_MAX

from .arguments import Seconds, checked
from .clock import now_ms
from .passed_over import PassedOver
from .regrouping import Regrouping
from .share import Share

PAUSE_S: Final = 0.002
"""Between two looks, while other groups than the wanted one are ready."""

GATHER_S: Final = 0.05
"""A batch waits so long for further messages: Kafka answers in less."""


class Receiving(Regrouping):
    """The part of a reader that looks for messages."""

    queue: Queue
    _share: Share
    _plenty: int
    _check_open: Callable[[], None]
    _advance: Callable[..., bool]
    _handing_out: HandingOut
    _handed: Callable[[Owner, Transaction], Transaction]
    _passed: PassedOver
    _on_ended: Callable[[bytes], None]
    __iter__: Callable[..., Iterator[Transaction]]

    @checked
    def receive(
        self, *, dialog: UUID | None = None, group: UUID | None = None, timeout: Seconds | None = None
    ) -> Transaction | None:
        """RECEIVE WHERE: the ready messages of a conversation, or of a conversation group, which is locked either way.

        Waits for them up to `timeout` seconds (without it for ever), and returns None then; also while somebody else
        has the group. What waits elsewhere in these partitions has to be received too, by whomever: a partition reads
        ahead so far and no further. Raises BadInput unless one of both is given, DialogNotFound when it was in no
        partition that is ours, all the time, NoPartition when none is, ServiceNotFound when its service was dropped
        meanwhile, ServiceAltered (8468) when it followed its service to another queue, QueueDisabled (9617) while the
        queue's STATUS is OFF (behaviours 69, 70, 75 to 79).
        """
        if (dialog is None) == (group is None):
            raise BadInput("receive takes the id of a dialog or that of a group; iterate over the reader for any group")
        deadline = None if timeout is None else time.monotonic() + timeout
        services = set[str]()
        while True:
            self._advance(keep_up=True)
            with self._lock:
                self._share.check()
                self._check_open()
                self._owning.sweeping.check_enabled()
                found = [*self._sought(dialog, group)]
                if all(endpoint.committed is State.DISCONNECTED_OUTBOUND for _, endpoint in found):
                    for service in sorted(services):
                        self._owning.sweeping.check_service(service)
                for service in sorted(services.difference(endpoint.service for _, endpoint in found)):
                    self._owning.sweeping.altered.check(service)  # what cannot follow its service goes on here
                for owner, endpoint in found:
                    services.add(endpoint.service)
                    transaction = take(owner, self._owning.commit, endpoint, whole=dialog is None)
                    if transaction is not None:
                        return self._handed(owner, transaction)
                    self._take_back()
                    let_others_pass(owner)
            now = time.monotonic()
            if now >= max(self._share.joining.until, deadline or 0.0):
                self._check_has_partition()
            if deadline is not None and now >= deadline:
                if services:
                    return None
                raise DialogNotFound(
                    f"{'group' if dialog is None else 'conversation'} {dialog or group} lives in no partition that is "
                    f"ours of queue {self.queue.name!r}; ask the process that has it"
                )
            if self._advance():
                time.sleep(PAUSE_S)

    @checked
    def batches(self, messages: int, *, size_bytes: int | None = None) -> Iterator[list[Transaction]]:
        """Transactions together, for who works on many messages at a time: all that is ready, up to so many messages.

        With `size_bytes` a list also ends behind the transaction with which its bodies have so many bytes.

        Each list has one transaction at least, and each transaction is for a `with` block of its own. What Kafka has is
        read first, up to half of the look-ahead (10,000 messages for each partition that is ours): a poor queue makes
        short lists. Ends as iterating does, and raises the same.
        """
        if messages < 1:
            raise BadInput(f"a batch has a number of messages from 1 on, not {messages}")
        return self._batches(messages, size_bytes)

    def _batches(self, messages: int, size_bytes: int | None) -> Iterator[list[Transaction]]:
        self._plenty = max(self._plenty, 2 * messages)
        while True:
            self._gather(messages)
            first = next(iter(self), None)
            if first is None:
                return
            taken, count, size = [first], len(first), _size_of(first, size_bytes)
            while count < messages and (size_bytes is None or size < size_bytes):
                with self._lock:
                    further = self._take()
                if further is None:
                    break
                taken.append(further)
                count += len(further)
                size += _size_of(further, size_bytes)
            yield taken

    def _gather(self, messages: int) -> None:
        """Read on until so many messages wait and what was finished is committed, or for GATHER_S nothing happens.

        Half of the look-ahead is enough: a partition that is full is paused, and its fetching begins anew afterwards.
        """
        seen: tuple[int, bool] | None = None
        until_s = 0.0
        while True:
            self._advance(keep_up=True)
            with self._lock:
                owners, unread = self._owning.owners.values(), self._handing_out.unread
                committing = any(owner.committing or owner.staging.waiting for owner in owners)
                enough = min(messages, LOOK_AHEAD_RECORDS_MAX // 2 * len(owners))
            if unread >= enough > 0 and not committing:
                return
            if (unread, committing) != seen:
                seen, until_s = (unread, committing), time.monotonic() + GATHER_S
            elif time.monotonic() >= until_s:
                return
            else:
                time.sleep(PAUSE_S)

    def _take(self) -> Transaction | None:
        """The next group, of the highest level that is ready in these partitions (behaviour 219)."""
        found = self._handing_out.next_group(self._owning.commit)
        return None if found is None else self._handed(*found)

    def _take_back(self) -> None:
        """Nothing is ready: what this thread was given and has not entered is handed out again."""
        for owner, transaction in self._passed.take_back():
            self._handing_out.resting.add(owner, transaction, now_ms())

    def _tell_ends(self, transaction: Transaction) -> None:
        for endpoint in transaction.members:
            if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
                self._on_ended(endpoint.conversation)

    def check(self) -> None:
        """Raise what has ended the reader, for whoever receives nothing from it."""
        self._share.check()

    def _check_has_partition(self) -> None:
        if not self._owning.owners and not self._share.waiting:
            raise NoPartition(
                f"queue {self.queue.name!r} has {self.queue.partitions} partitions, and other processes read them all: "
                "nothing can be received here. Create the queue with as many partitions as processes read it, or read "
                "it with fewer; a dialog that is begun here before the reader has a partition lives in another process"
            )

    def _sought(self, dialog: UUID | None, group: UUID | None) -> Iterator[tuple[Owner, Endpoint]]:
        """The sides of the conversation that live here, or one of the group."""
        for owner in self._owning.owners.values():
            if owner.phase is not LEADING:
                continue
            state = owner.fold.state
            if dialog is not None:
                found = [side.get(dialog.bytes) for side in state.sides]
            else:
                assert group is not None
                found = [*state.members(group.bytes)[:1]]
            yield from ((owner, endpoint) for endpoint in found if endpoint is not None)


def _size_of(transaction: Transaction, size_bytes: int | None) -> int:
    """The bytes of the bodies that wait for its conversations, where somebody asks."""
    return 0 if size_bytes is None else sum(bytes_of(endpoint.queue) for endpoint in transaction.members)
