"""Reuse and recycling of conversations: `usp_Send` of Service Broker's pattern as an object (behaviours 224 to 229).

Order exists only inside a conversation, and to begin and end one for each message costs several times as much as
sending it. So a pool reuses conversations: one for each key, one for each thread, or `size` that take turns. Each is
recycled from time to time, so that not too much depends on one conversation, and so that later messages go where new
conversations go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Final, Self

from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import PoolStatistics, Recycle, Stage
from konverse.dialog.pool.recycling import is_answer
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, BrokerClosed, ConversationEnded, QueueFull
from konverse.schemas.identifiers import mark_of, pool_group, pool_namespace
from konverse.schemas.limits import POOL_ATTEMPTS_MAX, POOL_CLOSE_MS_MAX, POOL_STILL_MS_MAX
from konverse.schemas.system_messages import DEFAULT

from .keeper import Keeping
from .redirections import Undelivered
from .slots import Means, Slot

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.pool.recycling import Farewell
    from konverse.dialog.transaction.received import Message

log: Final = logging.getLogger("konverse.pool")

NO_LIMIT: Final = 2**63
POLL_S: Final = 0.02
NUMBERED_FOUND_MAX: Final = 1_000
"""A successor finds the conversations of this many threads, or of `size`; timers end those of further threads."""

Answer = Callable[["Transaction"], "list[Message]"]


class Pool(Keeping):
    """Conversations that are reused. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, options: PoolOptions, means: Means, database: str, answer: Answer) -> None:
        super().__init__(options, means)
        self._answer = answer
        name = random_id().hex() if options.name is None else options.name
        names = (name, options.from_service, options.to_service, options.contract, options.end_of_stream)
        self._namespace = pool_namespace(database, *names)
        self._send = means.sender.send  # bound once
        self._turns = count()
        self._end_of_stream = options.end_of_stream
        self._size = options.size
        self._last = NO_LIMIT if options.max_messages is None else options.max_messages - 1
        """Sequence number of the last message that a conversation takes."""
        self._threads: dict[int, int] = {}
        """Number of a thread's conversation, from 0 on -> ident of the thread."""
        self._numbered: dict[bytes, bytes] | None = None
        """Mark -> group, for conversations without a key, which are numbered by thread or below `size`."""

    # ------------------------------------------------------------------------------------------------------- calls

    def send(self, message_type: str = DEFAULT, body: bytes = b"", key: str | bytes | None = None) -> int:
        """Send on the conversation of `key`, which is begun if there is none; returns the message's number on it.

        `key` is also the Kafka key of its records. Without it the conversation is that of this thread, or with `size`
        one of so many that take turns. If the target has ended the conversation, the message goes on another one,
        behind the messages that came back from the first; at most 10 are tried (225). The number is that of
        `dialog.send`.

        Raises the errors of `dialog.send` and `begin_dialog`; ConversationEnded when every conversation that was tried
        had been ended; BrokerClosed after `close`; QueueFull when the undelivered messages of an ended conversation,
        which must go first, do not come back within `send_timeout_s`; InvalidRoute while routers redirect this key in
        a circle or to a service that does not take it (see `undelivered`); OutcomeUnknown when a named pool cannot find
        out what another process left, because its queue or that of the target has no reader.
        """
        if message_type == self._end_of_stream:
            raise BadInput(
                f"{message_type!r} is how this pool tells a target that nothing more comes, so it is not sent by hand: "
                "call pool.recycle(), or name another type as end_of_stream"
            )
        if key.__class__ is bytes or key.__class__ is str:
            name: object = key
        else:
            name = self._name(key)
        staged = self._sends.get(name)
        # inlines `Dialog.send` for message types that were sent before
        if (
            staged is not None
            and body.__class__ is bytes
            and message_type.__class__ is str
            and message_type in staged.suffixes
        ):
            try:
                sequence = self._send(staged, message_type, body)
            except ConversationEnded:
                pass  # the conversation was recycled or ended a moment ago
            else:
                if not 0 <= sequence < self._last:
                    self._count(name)
                return sequence
        return self._send_with_care(name, key, message_type, body)

    def answer(self, transaction: Transaction) -> list[Message]:
        """Receive a transaction's messages from the queue of `from_service`, and handle those that concern pools.

        DialogTimer: sends EndOfStream. EndDialog of the target: ends. Error: logs Code and Description, then ends
        (226). Returns the messages for the application: replies, and all messages of conversations that no pool began.
        An application that reads this queue itself makes the pool with `read=False`, and its handler calls this first.
        """
        if not isinstance(transaction, Transaction):
            raise BadInput(f"answer takes the transaction that a reader has handed out, not {transaction!r}")
        return self._answer(transaction)

    def undelivered(self) -> list[Undelivered]:
        """Messages that were redirected in a circle, or to a service that does not take them, with the reasons.

        The pool tries again every 10 seconds, starting at its own service. Raises OutcomeUnknown, KafkaUnavailable.
        """
        with self._changed:
            astray = [(self._by_mark.get(mark), self._astray(place)) for mark, place in self._pooling.astray.items()]
        return [Undelivered(reason, self._waiting_at(slot)) for slot, reason in astray if slot is not None]

    @property
    def statistics(self) -> PoolStatistics:
        """Counts of what the pool has done so far."""
        return self._pooling.statistics

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._shut

    @property
    def over(self) -> bool:
        """Whether the pool no longer looks after its conversations."""
        return self._closed

    @property
    def conversations(self) -> int:
        """Number of conversations that are not over: open ones, and those that their targets have not ended yet."""
        with self._changed:
            return len(self._pooling.known)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """As `broker.flush`: return when Kafka has everything that this process has sent. Raises OutcomeUnknown."""
        self._means.sender.flush(timeout)

    @checked
    def recycle(self) -> None:
        """Recycle all conversations now; later messages go on new ones."""
        with self._changed:
            self._check_open()
            self._recycle_all()

    @checked
    def close(self, timeout: Seconds | None = None) -> None:
        """Recycle all conversations, and wait up to `timeout` seconds for the targets to end them. Safe to call twice.

        Without `timeout` it waits up to 10 s, but only 2 s while no target ends a conversation: the targets are away
        then, and a second call does not wait again. Until the broker is closed, the pool looks after the conversations
        that are left, and resends messages that come back. After that, a reader of the queue of `from_service` ends the
        conversations that their targets end, and messages that come back wait at their homes, because no other process
        has this pool. A named pool leaves its conversations and bounced messages to the next process that opens it.
        """
        with self._changed:
            if self._shut and (self._closed or (self._lingers and timeout is None)):
                return
            self._closing()
        patience_s = POOL_STILL_MS_MAX / 1000 if timeout is None else timeout
        since, left = time.monotonic(), -1
        deadline = since + (POOL_CLOSE_MS_MAX / 1000 if timeout is None else timeout)
        while not self._closed and (waiting := self._waiting()) and time.monotonic() < deadline:
            if waiting != left:
                left, since = waiting, time.monotonic()
            elif time.monotonic() - since > patience_s:
                break
            self._awaken.set()
            time.sleep(POLL_S)
        with self._changed:
            self._lingers = not self._closed and self.options.name is None and self._waiting() > 0
            self._changed.notify_all()
        if self._lingers:
            log.info("a pool to %s was closed, and is not empty: %s", self.options.to_service, self._left())
        else:
            self._leave()

    def leave(self) -> None:
        """The broker is closed: close the pool if it is open, and stop looking after its conversations."""
        if not self._shut:
            self.close()
        if self._closed:
            return
        if self._waiting():
            log.warning(
                "a pool to %s ends, and is not empty: %s. What comes back of that from now on waits at the queue of "
                "%s; a pool with a name would send it again when it is next opened",
                self.options.to_service,
                self._left(),
                self.options.from_service,
            )
        self._leave()

    def _leave(self) -> None:
        self._closed = True
        self._awaken.set()
        self._thread.join()
        if self.lease is not None:
            self.lease.close()

    def _left(self) -> str:
        pooling = self._pooling
        return (
            f"{len(pooling.known)} conversations that their targets have not ended, and "
            f"{len(pooling.behind) + len(pooling.astray)} keys whose messages have come back"
        )

    def forked(self) -> None:
        """Be closed in a forked child (`bridge.runtime.forks`)."""
        self._closed = self._shut = True
        self._sends = {}
        self._changed = threading.Condition(threading.RLock())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self.options
        return f"<Pool {options.name or ''} {options.from_service} -> {options.to_service}, {self.conversations}>"

    # ------------------------------------------------------------------------------------------------------ inside

    def _name(self, key: object) -> object:
        """The name under which senders find a conversation: the key, the next number below `size`, or the thread."""
        if isinstance(key, (str, bytes)):
            return key
        if key is not None:
            raise BadInput(f"the key of a pool is a text or bytes, not {key!r}")
        return get_ident() if self._size is None else next(self._turns) % self._size

    def _send_with_care(self, name: object, key: str | bytes | None, message_type: str, body: bytes) -> int:
        """The slow path of `send`: there is no conversation yet, or it was recycled or ended."""
        failure: ConversationEnded | None = None
        for _ in range(POOL_ATTEMPTS_MAX):
            dialog = self._dialog(name, key)
            try:
                sequence = dialog.send(message_type, body)
            except ConversationEnded as error:
                failure = error
                with self._changed:
                    self._lost(dialog)
            else:
                if not 0 <= sequence < self._last:
                    self._count(name)
                return sequence
        log.error("failed to send on a conversation %d times in a row: %s", POOL_ATTEMPTS_MAX, failure)
        assert failure is not None, "a send is attempted once at least"
        raise failure

    def _lost(self, dialog: Dialog) -> None:
        """The session refuses sends on a dialog. Nothing to do if the pool recycled it: it is not OPEN then."""
        pooled = self._pooling.known.get(dialog.id.bytes)
        if pooled is not None and pooled.stage is Stage.OPEN:
            self._do(self._pooling.broken(pooled.conversation, None, now_ms()))
            self._awaken.set()

    def _dialog(self, name: object, key: str | bytes | None) -> Dialog:
        """The open conversation of a name; waits until the undelivered messages of an ended one were sent again."""
        self._check_open()
        self._inherit(self._group_of)
        with self._changed:
            self._check_open()
            slot = self._slots.get(name) or self._slot(name, key)
            self._check_way(slot.place)
        self._inherit_returned(slot)
        deadline = time.monotonic() + self._means.timeout_s
        with self._changed:
            # looked up again each time: the slot may have been evicted meanwhile
            while (slot := self._slots.get(name) or self._slot(name, key)).place.waits:
                if time.monotonic() > deadline:
                    raise QueueFull(self._why_waiting(slot))
                self._changed.wait(POLL_S)
                self._check_open()
            self._check_way(slot.place)
            dialog = slot.dialog or self._open(slot)
            self._publish(slot)
            return dialog

    def _slot(self, name: object, key: str | bytes | None) -> Slot:
        """The slot of a name that has none yet."""
        if key is not None:
            try:
                kafka_key = key.encode() if isinstance(key, str) else key
            except UnicodeEncodeError as error:
                raise BadInput(f"the key {key!r} of a pool is no text that UTF-8 has: {error.reason}") from None
            group = pool_group(self._namespace, f"key {kafka_key.hex()}")
        else:
            kafka_key = None
            group = pool_group(self._namespace, f"{name}" if self._size is not None else f"{self._session(name)}")
        slot = self._place(group, kafka_key)
        slot.names.append(name)
        self._slots[name] = slot
        self._publish(slot)
        return slot

    def _group_of(self, mark: bytes, key: bytes | None) -> bytes | None:
        """The group of this pool with a mark and a Kafka key; without a key, that of a thread or a number."""
        if key is not None:
            group = pool_group(self._namespace, f"key {key.hex()}")
            if mark_of(group) == mark:
                return group
        if self._numbered is None:
            numbers = range(max(NUMBERED_FOUND_MAX, self._size or 0))  # an earlier process may have had a larger size
            groups = (pool_group(self._namespace, f"{number}") for number in numbers)
            self._numbered = {mark_of(group): group for group in groups}
        return self._numbered.get(mark)

    def _session(self, thread: object) -> int:
        """The number of a thread's conversation: its own, or one of a thread that has ended, else the next one."""
        assert isinstance(thread, int), "who names no key is a thread"
        threading.current_thread()  # lets `enumerate` list a thread that Python did not start
        living = {one.ident for one in threading.enumerate()}
        gone = [number for number, ident in self._threads.items() if ident not in living]
        own = [number for number, ident in self._threads.items() if ident == thread]  # its slot was evicted
        number = next(iter(own + gone), len(self._threads))
        before = self._threads.get(number)
        if before in self._slots:  # the system may give the ident to a later thread, which has its own conversation
            self._slots.pop(before).names.remove(before)
            self._sends.pop(before, None)
        self._threads[number] = thread
        return number

    def _count(self, name: object) -> None:
        """Recycle the conversation of a name if it has had `max_messages`."""
        with self._changed:
            slot = self._slots.get(name)
            pooled = slot.place.current if slot is not None else None
            if slot is None or pooled is None or slot.dialog is None or self._last == NO_LIMIT:
                return
            staged = slot.dialog.staged
            pooled.unnumbered += staged.redirects is not None
            if staged.sent + len(staged.held) + pooled.unnumbered > self._last:
                self._do([Recycle(pooled)])
                self._awaken.set()

    def keeps(self, farewell: Farewell) -> bool:
        """Whether this pool will end that conversation itself, once its undelivered messages have come back (229)."""
        with self._changed:
            pooled = self._pooling.known.get(farewell.conversation)
            if self._closed or pooled is None:
                return False
            staged = self._dialogs[pooled.conversation].staged
            return not is_answer(self._means.sender.session, staged, pooled, farewell)

    def hear(self, farewell: Farewell) -> None:
        """A target has ended a conversation, possibly one of this pool."""
        conversation = farewell.conversation
        with self._changed:
            pooled = self._pooling.known.get(conversation)
            if pooled is None or self._closed:
                return
            if farewell.kept:
                self._do(self._pooling.broken(conversation, farewell.first_code, now_ms()))
            else:
                self._do(self._pooling.ended(conversation))
        self._awaken.set()

    def _closing(self) -> None:
        """Refuse sends from now on; recycle all conversations unless the pool has a name."""
        self._shut = True
        self._sends = {}
        if self.options.name is None:
            self._recycle_all()

    def _check_open(self) -> None:
        if self._shut:
            raise BrokerClosed(f"the pool to {self.options.to_service} was closed; make another with broker.pool")
