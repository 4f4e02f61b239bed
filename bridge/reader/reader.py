"""A reader: one process's share of a queue, handed out as transactions (RECEIVE).

A reader has no thread of its own. Each call that asks for a transaction also drives the owners: it takes new data,
acknowledgements and outcomes from Kafka, commits finished work and hands over outputs. Several threads may ask. One of
them at a time waits for Kafka (`_pumping`); owners are changed only while `_lock` is held.

`Reader` iterates over transactions and calls handlers. `Reader.operations` has the operators' commands. `OwnerHost`
serves running transactions: it locks a given group, or any further one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from konverse.bridge.kafka.clients import FETCH_RECORDS, SILENT_S, Kafka
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.exits import leave_at_exit
from konverse.bridge.runtime.settings import ReaderOptions
from konverse.bridge.runtime.threads import ThreadLock
from konverse.dialog.owner.events import LEADING
from konverse.dialog.owner.handing_out import (
    REST_MAX_MS,
    let_others_pass,
    should_commit,
    take,
    take_further,
)
from konverse.dialog.owner.owner import Owner
from konverse.dialog.queries.searching import GroupRequest, lock_found, search_for
from konverse.dialog.state.endpoint import Endpoint, bytes_of
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.counting import counted
from konverse.schemas.errors import (
    BadInput,
    BrokerClosed,
    DialogNotFound,
    InvalidSettings,
    NoPartition,
    OutcomeUnknown,
    SteppedDown,
)
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import HANDLER_THREADS_MAX, LOOK_AHEAD_RECORDS_MAX

from .assignment import Assignment
from .handlers import Crew, HandlerRunner, failure
from .message_wait import MessageWait
from .operations import ReaderOperations
from .skipped_transactions import SkippedTransactions

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.dialog.state.partition import Partition

log: Final = logging.getLogger("konverse.reader")
WAIT_S: Final = 0.05
ADVANCE_EVERY_S: Final = 0.005
"""Longest time between two polls of Kafka: commits, acknowledgements and the consumer group must not wait longer."""
UNREAD_RECORDS_MAX: Final = 4 * FETCH_RECORDS
"""With this many unread messages no more are fetched, unless the caller asks for larger batches."""
SETTLE_S: Final = 30.0
CLOSE_S: Final = 10.0
PAUSE_S: Final = 0.002
"""Pause between two checks, for instance while only groups other than the wanted one are ready."""
GATHER_S: Final = 0.05
"""How long a batch waits for further messages: Kafka answers sooner."""
_IN_A_SIGNAL_HANDLER: Final = (
    "this thread is inside the reader already: probably a signal handler has interrupted it. Call reader.stop() "
    "there; the iteration or `run` then ends, and the `with` block closes the reader"
)


class OwnerHost:
    """Serves the transactions of one owner while their `with` blocks run (a `TransactionHost`)."""

    def __init__(
        self,
        owner: Owner,
        driver: OwnerDriver,
        guard: threading.RLock,
        report_peer_ends: Callable[[Transaction], None],
        done: Callable[[Owner, Transaction, bool], None],
    ) -> None:
        self._owner = owner
        self._driver = driver
        self._guard = guard
        self._report_peer_ends = report_peer_ends
        self.done = partial(done, owner)
        """Reports the end of a `with` block to the reader."""

    def lock(self, transaction: Transaction, dialog: Endpoint | NewDialog, group: bytes, /) -> Address | None:
        """Lock a group for a transaction; returns its address when it lives in another partition.

        The guard is free while the journals of other partitions are read, so that other threads can work.
        """
        staging, groups, wanted = (
            self._owner.staging,
            self._driver.group_locator,
            GroupRequest(transaction, dialog, group),
        )
        with self._guard:
            search = search_for(staging, groups.ours, groups.addresses, wanted)
            if search is None:
                return lock_found(staging, groups.ours, search, wanted)
        groups.answer(search)
        with self._guard:  # the group may have arrived here meanwhile
            return lock_found(staging, groups.ours, search, wanted)

    def further(self, transaction: Transaction, /) -> Transaction | None:
        """Lock another group of the partition for a transaction; None when no group is free."""
        with self._guard:
            self._driver.catalog_changes.check_enabled()
            part = take_further(self._owner, transaction)
            if part is not None:
                self._report_peer_ends(part)
            return part


class Reader:
    """One process's share of a queue. Iterate over it for transactions; use it as a context manager, or close it."""

    def __init__(
        self, kafka: Kafka, driver: OwnerDriver, options: ReaderOptions, on_ended: Callable[[bytes], None]
    ) -> None:
        self.queue = driver.queue
        self.options = options
        self._driver = driver
        self._on_ended = on_ended
        self._lock = threading.RLock()
        """Guards the owners and all that they decide."""
        self.operations = ReaderOperations(driver, self._lock, self._check_open)
        """Commands of operators."""
        self._pumping = ThreadLock(_IN_A_SIGNAL_HANDLER)
        """Held by the one thread that waits for Kafka."""
        self._returned = threading.Condition(self._lock)
        self._closed = False
        self._others_wait = 0
        self._stopping = False
        """`run` must return, so no further transaction is handed out."""
        self._handing_out = driver.handing_out
        self._skipped = SkippedTransactions(driver.queue.name)
        self._crew = Crew()
        self._lost_told = 0
        """Losses that `settle` has reported."""
        self._unread_max = UNREAD_RECORDS_MAX
        """With this many unread messages no more are fetched."""
        self._advance_at = 0.0
        """When Kafka must be polled again, even if transactions are ready."""
        driver.attach = self._attach
        leave_at_exit(self)
        try:
            self._assignment = Assignment(kafka, driver, options, self._lock)
        except BaseException:
            driver.close()
            raise
        if options.standby:
            try:
                driver.stand_by()
            except BaseException:  # the caller never gets a reader that it could close
                self._let_go()
                raise

    # --------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Transaction]:
        self._check_open()
        return self

    def __next__(self) -> Transaction:
        """The ready messages of the next conversation group. Use it in a `with` block: its end commits or rolls back.

        The end of the block hands the work to the next commit, which up to `batch` groups share. If the process dies
        before that, the messages are received again. A transaction whose block this thread has not entered is delivered
        again: when nothing else is ready, or after 100 further requests of the thread. Raises QueueDisabled while the
        queue's STATUS is OFF (77): an ALTER QUEUE of this broker takes effect at once, one of another process within
        seconds, since RECEIVE does not ask Kafka for the catalog. Raises PartitionHalted when Kafka's logs contradict
        themselves, SteppedDown when another process claims a partition that the caller has named for this reader,
        OutcomeUnknown when `timeout` would end the iteration and Kafka has not acknowledged all finished work.
        """
        began_s = time.monotonic()
        wait: MessageWait | None = None  # made only where nothing is ready: most calls find something
        self._note_request()
        while True:
            if time.monotonic() >= self._advance_at:
                self._advance(keep_up=True)
            with self._lock:
                self._assignment.check()
                if self._closed or self._stopping:
                    raise StopIteration
                self._driver.catalog_changes.check_enabled()
                transaction = self._take()
                if transaction is None:
                    self._hand_out_again(self._skipped.take_back())
                    wait = wait or MessageWait(self.options.timeout, began_s, self._handing_out.unread)
            if transaction is not None:
                return transaction
            assert wait is not None
            reading = self._advance()
            if self._message_comes(wait):
                wait.restart(time.monotonic())
            elif self._assignment.may_be_idle and self._is_over(wait, reading=reading):
                if self._settled():
                    raise StopIteration
                wait.restart(time.monotonic())

    def _message_comes(self, wait: MessageWait) -> bool:
        """Whether a group is ready or will be handed out again soon, or a further message waits."""
        with self._lock:
            grew = wait.grew(self._handing_out.unread)
            return grew or self._handing_out.ready or self._expecting

    def _is_over(self, wait: MessageWait, *, reading: bool) -> bool:
        with self._lock:
            if self._closed:
                return False
            ends, read_to = self._assignment.ends, self._assignment.read_to
            return wait.over(time.monotonic(), reading=reading, ends=ends, read_to=read_to)

    @checked
    def receive(
        self, *, dialog: UUID | None = None, group: UUID | None = None, timeout: Seconds | None = None
    ) -> Transaction | None:
        """RECEIVE WHERE: the ready messages of a conversation, or of a conversation group. The group is locked.

        Waits until messages are ready and no other transaction holds the group: up to `timeout` seconds, then returns
        None; without `timeout`, for ever. Other messages in these partitions must be received too, by any thread, as a
        partition reads ahead only to a bound. Raises BadInput unless exactly one of the ids is given, DialogNotFound
        when the conversation or group was in no partition of this reader before `timeout` passed, NoPartition when this
        reader has no partition, ServiceNotFound when the service was dropped meanwhile, ServiceAltered (8468) when the
        conversation followed its service to another queue, QueueDisabled (9617) while the queue's STATUS is OFF
        (behaviours 69, 70, 75 to 79).
        """
        if (dialog is None) == (group is None):
            raise BadInput("receive takes either a dialog id or a group id; iterate over the reader for any group")
        deadline = None if timeout is None else time.monotonic() + timeout
        services = set[str]()
        self._note_request()
        while True:
            self._advance(keep_up=True)
            with self._lock:
                self._assignment.check()
                self._check_open()
                self._driver.catalog_changes.check_enabled()
                found = [*self._sought(dialog, group)]
                if all(endpoint.committed is State.DISCONNECTED_OUTBOUND for _, endpoint in found):
                    for service in sorted(services):
                        self._driver.catalog_changes.check_service(service)
                for service in sorted(services.difference(endpoint.service for _, endpoint in found)):
                    # a conversation that cannot follow its service continues here
                    self._driver.catalog_changes.service_moves.check(service)
                for owner, endpoint in found:
                    services.add(endpoint.service)
                    transaction = take(owner, self._driver.commit, endpoint, whole=dialog is None)
                    if transaction is not None:
                        return self._handed(owner, transaction)
                    self._hand_out_again(self._skipped.take_back())
                    let_others_pass(owner)
            now = time.monotonic()
            if now >= max(self._assignment.join_wait.until, deadline or 0.0):
                self._check_has_partition()
            if deadline is not None and now >= deadline:
                if services:
                    return None
                raise DialogNotFound(
                    f"{'group' if dialog is None else 'conversation'} {dialog or group} is in none of this "
                    f"reader's partitions of queue {self.queue.name!r}; ask the process that owns it"
                )
            if self._advance():
                time.sleep(PAUSE_S)

    @checked
    def batches(self, messages: int, *, size_bytes: int | None = None) -> Iterator[list[Transaction]]:
        """Lists of ready transactions with about `messages` messages each, to work on many messages at a time.

        A list ends with the transaction that brings it to `messages` messages or, with `size_bytes`, its bodies to that
        many bytes; or when nothing more is ready. It has at least one transaction, and each transaction needs a `with`
        block of its own. Before a list is made, data is read from Kafka until enough messages wait, at most half of the
        look-ahead (10,000 messages for each partition of this reader). Ends as iteration does, and raises the same
        errors. Raises BadInput when `messages` is below 1.
        """
        if messages < 1:
            raise BadInput(f"a batch has 1 or more messages, not {messages}")
        return self._batches(messages, size_bytes)

    def _batches(self, messages: int, size_bytes: int | None) -> Iterator[list[Transaction]]:
        self._unread_max = max(self._unread_max, 2 * messages)
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
        """Read on until enough messages wait and finished work is committed, or nothing has happened for GATHER_S.

        Half of the look-ahead is enough. A full one would pause the partition, and fetching would have to start again.
        """
        seen: tuple[int, bool] | None = None
        until_s = 0.0
        while True:
            self._advance(keep_up=True)
            with self._lock:
                owners, unread = self._driver.owners.values(), self._handing_out.unread
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
        """The next group: one of the highest priority level that is ready in these partitions (behaviour 219)."""
        found = self._handing_out.next_group(self._driver.commit)
        return None if found is None else self._handed(*found)

    def _note_request(self) -> None:
        """Note a request of this thread. Hand out again the transactions that it, or an ended thread, has skipped."""
        with self._lock:
            self._hand_out_again(self._skipped.requested())

    def _hand_out_again(self, skipped: list[tuple[Owner, Transaction]]) -> None:
        """Let the groups of skipped transactions rest, and hand them out again."""
        for owner, transaction in skipped:
            self._handing_out.resting.add(owner, transaction, now_ms())

    def _report_peer_ends(self, transaction: Transaction) -> None:
        for endpoint in transaction.members:
            if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
                self._on_ended(endpoint.conversation)

    def check(self) -> None:
        """Raise the error that has ended the reader, for a thread that receives nothing from it."""
        self._assignment.check()

    def _check_has_partition(self) -> None:
        if not self._driver.owners and not self._assignment.waiting:
            raise NoPartition(
                f"queue {self.queue.name!r} has {counted(self.queue.partitions, 'partition')}, and other processes "
                "read every one: nothing can be received here. Create the queue with as many partitions as processes "
                "read it, or read it with fewer processes. Dialogs begun here before the reader has a partition have "
                "their home in another process"
            )

    def _sought(self, dialog: UUID | None, group: UUID | None) -> Iterator[tuple[Owner, Endpoint]]:
        """The sides of a conversation that live here, or one member of a group."""
        for owner in self._driver.owners.values():
            if owner.phase is not LEADING:
                continue
            state = owner.fold.state
            if dialog is not None:
                found = [side.get(dialog.bytes) for side in state.sides]
            else:
                assert group is not None
                found = [*state.members(group.bytes)[:1]]
            yield from ((owner, endpoint) for endpoint in found if endpoint is not None)

    @checked
    def run(self, handler: Callable[[Transaction], object], *, threads: int = 1) -> None:
        """Call `handler` for every transaction, in several threads, until the reader ends: an activated procedure.

        If a handler raises, its transaction is rolled back, and the threads keep working: the exception is logged with
        the ids of the messages, which are redelivered after others. After five failed attempts in a row the
        conversation group is suspended, which is logged too; `resume`, `skip` or `end` it. A BaseException that is no
        Exception (KeyboardInterrupt, SystemExit), or any exception of the iteration, stops the other threads and is
        raised here; their handlers have 30 s to finish. Raises InvalidProcedure for an unfit handler (29).
        """
        if not 1 <= threads <= HANDLER_THREADS_MAX:
            raise InvalidSettings(f"`threads` must be 1 to {HANDLER_THREADS_MAX}, not {threads}")
        handling = HandlerRunner(self.queue.name, handler)
        with self._lock:
            self._driver.expect(threads)
        try:
            self._crew.work(lambda: handling.work(self), threads, self.stop, handling)
        finally:
            self._stopping = False

    def stop(self) -> None:
        """Let `run`, or an iteration, end when the handlers that are at work have finished.

        A later `run` works again; a later iteration ends at once, because a signal may come before the first one.
        A signal handler may call `stop`, but not `close`: its thread may be inside the reader.
        """
        self._stopping = True

    @checked
    def settle(self, timeout_s: Seconds = SETTLE_S) -> None:
        """Commit finished work, and wait until it is in the journal and its outputs are delivered and acknowledged.

        Raises SteppedDown when, since the last call, a partition was lost, or a `with` block ended after its partition
        had gone to another process: messages whose work was not committed are received again, here or there. Raises
        OutcomeUnknown when Kafka needs longer than `timeout_s` for the acknowledgements.
        """
        self._work_off(timeout_s)
        told, self._lost_told = self._lost_told, self._assignment.lost
        if self._lost_told > told:
            raise SteppedDown(
                f"a partition of queue {self.queue.name!r} was lost or given back before all finished work was "
                "committed; uncommitted messages are received again, here or by the new owner"
            )

    def _work_off(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        say_at = time.monotonic() + SILENT_S
        while not self._closed:
            with (turn := threading.Lock()):
                self._pumping.take(turn)
                with self._lock:
                    self._commit_finished(acknowledgements=True)
                    if self._driver.settled:
                        break
                    self._driver.pump(0.01)
                    self._assignment.maintain()
                self._assignment.poll_when_due()
            if time.monotonic() > say_at:
                say_at = deadline + 1
                log.warning("waiting for Kafka to acknowledge the finished transactions of queue %r", self.queue.name)
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"Kafka has not acknowledged all finished work of queue {self.queue.name!r} within {timeout_s} "
                    "s. The reader keeps it and retries while it is in use; call `settle` again for the outcome"
                )

    @property
    def _expecting(self) -> bool:
        """Whether some group will be handed out again soon."""
        return bool(self._handing_out.resting) or any(owner.trial.resting for owner in self.owners)

    def _settled(self) -> bool:
        """Whether all finished work is committed and nothing is left to be received again here."""
        lost = self._assignment.lost
        self._work_off(SETTLE_S)
        return self._assignment.lost == lost and not self._assignment.waiting and not self._handing_out.ready

    @property
    def lost(self) -> int:
        """How often finished work came too late for its partition, or may have (see `settle`)."""
        return self._assignment.lost

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def partitions(self) -> frozenset[int]:
        """Numbers of the partitions that this reader owns now."""
        with self._lock:
            return frozenset(n for n, owner in self._driver.owners.items() if owner.phase is LEADING)

    @property
    def conversations(self) -> int:
        """Number of conversation endpoints that live in these partitions."""
        with self._lock:
            return sum(len(side) for owner in self._driver.owners.values() for side in owner.fold.state.sides)

    @property
    def owners(self) -> list[Owner]:
        """The owners of these partitions, for tools that look inside."""
        with self._lock:
            return list(self._driver.owners.values())

    def ask(self, partition: int, question: Callable[[Partition], Any]) -> Any:
        """Apply `question` to the state of a partition, for tools that look inside; None when it is not owned here."""
        with self._lock:
            owner = self._driver.owners.get(partition)
            return question(owner.fold.state) if owner is not None and owner.phase is LEADING else None

    def keep_up(self) -> None:
        """Commit and fetch without waiting, for a thread of the application that is waiting for something else."""
        self._advance(keep_up=True)

    @checked
    def wait_for_partitions(self, count: int, timeout_s: Seconds = 30.0) -> None:
        """Return when this reader owns at least `count` partitions. Raises SteppedDown after `timeout_s`.

        Raises BadInput when the queue has fewer.
        """
        if count > self.queue.partitions:
            raise BadInput(
                f"queue {self.queue.name!r} has {counted(self.queue.partitions, 'partition')}; a reader cannot have "
                f"{count}"
            )
        deadline = time.monotonic() + timeout_s
        while len(self.partitions) < count:
            self._assignment.check()
            self._check_open()
            if time.monotonic() > deadline:
                raise SteppedDown(
                    f"this reader has {len(self.partitions)} of {counted(count, 'partition')} of {self.queue.name!r} "
                    f"after {timeout_s:g} s; other readers may hold the rest"
                )
            self._advance()

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerClosed(f"the reader of queue {self.queue.name!r} was closed; make another with broker.reader")

    def at_exit(self, timeout_s: float) -> None:
        """When the program ends: if `run` is working, stop it, wait up to `timeout_s` for its handlers, and close."""
        if self._crew.busy:
            self.stop()
            self._crew.wait(timeout_s)
            self.close()

    def close(self) -> None:
        """Commit finished work, deliver its outputs, give the partitions back, leave the group. Safe to call twice.

        Raises InvalidState in a signal handler while its thread waits inside the reader: call `stop` there. The next
        owner receives the messages of unfinished transactions again.
        """
        try:
            self.settle(CLOSE_S)
        except (SteppedDown, OutcomeUnknown) as error:
            log.warning("%s", error)
        finally:
            with (turn := threading.Lock()):
                self._pumping.take(turn)
                first = self._let_go()
            if first:
                self._assignment.wait_until_left()
                self._crew.wait(CLOSE_S)

    def _let_go(self) -> bool:
        """Give the partitions back and leave the group. True at the first call, which alone does it."""
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                try:
                    self._driver.close()
                finally:
                    self._assignment.close()
                    self._handing_out.resting.clear()
            return first

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._closed = True
        self._lock = threading.RLock()
        self._returned = threading.Condition(self._lock)
        self._pumping = ThreadLock(_IN_A_SIGNAL_HANDLER)
        self._crew = Crew()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ transactions

    def _attach(self, owner: Owner) -> None:
        """Make this reader serve the owner's transactions."""
        owner.staging.context.host = OwnerHost(owner, self._driver, self._lock, self._report_peer_ends, self._done)

    def _handed(self, owner: Owner, transaction: Transaction) -> Transaction:
        transaction.await_block()
        self._skipped.handed(owner, transaction)
        if transaction.dialog.role is Role.INITIATOR:
            self._report_peer_ends(transaction)
        return transaction

    def _done(self, owner: Owner, transaction: Transaction, commit: bool) -> None:  # noqa: FBT001  # a callback's shape
        with self._returned:
            error = "" if commit else failure()
            times = self._handing_out.ended(owner, transaction, commits=commit, error=error, now_ms=now_ms())
            if times:
                self._warn_idle_handler(transaction, times)
            if self._others_wait:
                self._returned.notify()

    # ------------------------------------------------------------------------------------------------------ pumping

    def _advance(self, *, keep_up: bool = False) -> bool:
        """Drive the owners; wait a little when there is nothing to do. True when there may be something to take.

        With `keep_up` it does not wait, and works even if there is something to take: it commits the work that slow
        handlers have finished, and polls, so that the group does not expel this reader.
        """
        self._advance_at = time.monotonic() + ADVANCE_EVERY_S
        with (turn := threading.Lock()):
            if self._pumping.take(turn, blocking=False):
                return self._pump(keep_up=keep_up)
        if keep_up:
            return False  # the thread that pumps keeps up
        with self._returned:
            self._others_wait += 1
            self._returned.wait(WAIT_S)
            self._others_wait -= 1
        return False

    def _pump(self, *, keep_up: bool) -> bool:
        self._driver.catalog_changes.read()
        with self._lock:
            if self._closed:
                return False
            self._driver.pump()
            self._assignment.maintain()
            self._handing_out.hand_out_again(now_ms())
            if keep_up:  # before the group may revoke a partition
                self._commit_finished(acknowledgements=False)
            elif self._handing_out.ready:
                return True
        fetched = (
            self._assignment.fetch(0.0)
            if self._handing_out.scarce(self._unread_max)
            else keep_up and self._assignment.poll_when_due()
        )
        if fetched or keep_up:
            return True
        with self._lock:
            self._commit_finished(acknowledgements=False)
            if any(owner.committing for owner in self._driver.owners.values()):
                self._driver.pump(WAIT_S)
                return self._handing_out.ready
        return self._assignment.fetch(WAIT_S)

    def _commit_finished(self, *, acknowledgements: bool) -> None:
        for owner in list(self._driver.owners.values()):
            if should_commit(owner, acknowledgements=acknowledgements):
                self._driver.commit(owner)

    def _warn_idle_handler(self, transaction: Transaction, times: int) -> None:
        log.warning(
            "a handler of queue %r received nothing from conversation %s %d times in a row; it is now called every "
            "%.0f s. Receive the messages, or end the conversation",
            self.queue.name,
            transaction.dialog.id,
            times,
            REST_MAX_MS / 1_000,
        )


def _size_of(transaction: Transaction, size_bytes: int | None) -> int:
    """Bytes of the bodies that wait for its conversations; 0 when `size_bytes` sets no bound."""
    return 0 if size_bytes is None else sum(bytes_of(endpoint.queue) for endpoint in transaction.members)
