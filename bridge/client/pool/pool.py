"""Reuse and recycling of conversations: `usp_Send` of Service Broker's pattern as an object (behaviours 224 to 229).

Order exists only inside a conversation, and beginning and ending one for each message costs several times as much as
sending the message. So a pool reuses conversations: one for each key, one for each thread, or `size` in rotation. Each
is recycled from time to time, so that not too much depends on one conversation, and so that later messages go where new
conversations go.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from konverse.bridge.runtime.arguments import Seconds, checked
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.places import PoolStatistics
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, BrokerClosed, ConversationEnded, QueueFull
from konverse.schemas.identifiers import pool_namespace
from konverse.schemas.limits import POOL_ATTEMPTS_MAX, POOL_CLOSE_MS_MAX, POOL_STILL_MS_MAX
from konverse.schemas.system_messages import DEFAULT

from .context import PoolContext
from .groups import PoolGroups
from .keeper import PoolKeeper
from .routes import Undelivered
from .slots import Slot
from .takeover import PoolTakeover
from .worker import PoolWorker

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.bridge.client.dialog import Dialog
    from konverse.dialog.pool.recycling import Farewell
    from konverse.dialog.transaction.received import Message

    from .lease import Lease

log: Final = logging.getLogger("konverse.pool")

NO_LIMIT: Final = 2**63
POLL_S: Final = 0.02

Answer = Callable[["Transaction"], "list[Message]"]


class Pool:
    """Conversations that are reused. Thread-safe; close it, or use it as a context manager."""

    def __init__(
        self, options: PoolOptions, context: PoolContext, database: str, answer: Answer, lease: Lease | None = None
    ) -> None:
        self.options = options
        self._answer = answer
        self._sender = context.sender
        self._patience_s = context.timeout_s
        self._keeper = PoolKeeper(options, context)
        self._slots = self._keeper.slots
        name = random_id().hex() if options.name is None else options.name
        names = (name, options.from_service, options.to_service, options.contract, options.end_of_stream)
        self._groups = PoolGroups(pool_namespace(database, *names), options.size, self._slots)
        self._takeover = PoolTakeover(self._keeper, self._groups)
        # bound once, for the fast path of `send`
        self._sends = self._slots.sends
        self._name = self._groups.name
        self._end_of_stream = options.end_of_stream
        self._last = NO_LIMIT if options.max_messages is None else options.max_messages - 1
        """Sequence number of the last message that a conversation takes."""
        self._worker = PoolWorker(self._keeper, self._takeover, lease)

    # ------------------------------------------------------------------------------------------------------- calls

    def send(self, message_type: str = DEFAULT, body: bytes = b"", key: str | bytes | None = None) -> int:
        """Send on the conversation of `key`, which is begun if there is none; returns the message's number on it.

        `key` is also the Kafka key of its records. Without it the conversation is that of this thread, or, with `size`,
        the next of `size` conversations in rotation. If the target has ended the conversation, the message goes on
        another one, after the messages that came back from the first; at most 10 that were ended are tried (225), for
        at most `send_timeout_s`. The returned number is that of `dialog.send`.

        Raises the errors of `dialog.send` and `begin_dialog`; ConversationEnded when every conversation that was tried
        had been ended; BrokerClosed after `close`; QueueFull when the undelivered messages of an ended conversation,
        which must go first, do not come back within `send_timeout_s`; InvalidRoute while routers redirect this key in
        a circle or to a service that does not accept it (see `undelivered`); OutcomeUnknown when a named pool cannot
        find the messages that another process left, because its queue or that of the target has no reader.
        """
        if message_type == self._end_of_stream:
            raise BadInput(
                f"{message_type!r} is the end_of_stream type of this pool, which only the pool sends: call "
                "pool.recycle(), or name another type as end_of_stream"
            )
        if key.__class__ is bytes or key.__class__ is str:
            name: object = key
        else:
            name = self._name(key)
        dialog = self._sends.get(name)
        if dialog is not None:
            try:
                sequence = dialog.send(message_type, body)
            except ConversationEnded:
                pass  # the conversation was recycled or ended a moment ago
            else:
                if not 0 <= sequence < self._last:
                    self._recycle_full(name)
                return sequence
        return self._send_slowly(name, key, message_type, body)

    def answer(self, transaction: Transaction) -> list[Message]:
        """Receive a transaction's messages from the queue of `from_service`, and handle those that concern pools.

        On a DialogTimer it sends EndOfStream. On an EndDialog it ends the conversation. On an Error it logs Code and
        Description, then ends the conversation (226). Returns the messages for the application: replies, and all
        messages of conversations that no pool began. An application that reads this queue itself creates the pool with
        `read=False`, and its handler calls this first.
        """
        if not isinstance(transaction, Transaction):
            raise BadInput(f"answer takes a transaction that a reader has delivered, not {transaction!r}")
        return self._answer(transaction)

    def undelivered(self) -> list[Undelivered]:
        """Messages that were redirected in a circle, or to a service that does not accept them, with the reasons.

        The pool tries again every 10 seconds, starting at its own service. Raises OutcomeUnknown, KafkaUnavailable.
        """
        return self._keeper.routes.undelivered()

    @property
    def statistics(self) -> PoolStatistics:
        """Counts of the pool's work so far."""
        return self._keeper.pooling.statistics

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._slots.shut

    @property
    def over(self) -> bool:
        """Whether the pool no longer manages its conversations."""
        return self._worker.over

    @property
    def conversations(self) -> int:
        """Number of conversations that are not over: open ones, and recycled ones not yet ended by their targets."""
        with self._slots.changed:
            return len(self._keeper.pooling.known)

    @checked
    def flush(self, timeout: Seconds | None = None) -> None:
        """As `broker.flush`: return when Kafka has everything that this process has sent. Raises OutcomeUnknown."""
        self._sender.flush(timeout)

    @checked
    def recycle(self) -> None:
        """Recycle all conversations now; later messages go on new ones."""
        with self._slots.changed:
            self._check_open()
            self._keeper.recycle_all()
        self._worker.wake()

    @checked
    def close(self, timeout: Seconds | None = None) -> None:
        """Recycle all conversations, and wait up to `timeout` seconds for the targets to end them. Safe to call twice.

        Without `timeout` it waits up to 10 s, but gives up when no target has ended a conversation for 2 s: the targets
        are taken to be down, and a second call does not wait again. Until the broker is closed, the pool manages the
        remaining conversations, and resends messages that come back. After that, a reader of the queue of
        `from_service` ends the conversations that their targets end, and messages that come back wait at their homes,
        because no other process has this pool. A named pool leaves its conversations and bounced messages to the next
        process that opens it.
        """
        slots, worker = self._slots, self._worker
        with slots.changed:
            if slots.shut and (worker.over or (worker.lingers and timeout is None)):
                return
            slots.shut_out()
            if self.options.name is None:
                self._keeper.recycle_all()
        worker.wake()
        patience_s = POOL_STILL_MS_MAX / 1000 if timeout is None else timeout
        since, left = time.monotonic(), -1
        deadline = since + (POOL_CLOSE_MS_MAX / 1000 if timeout is None else timeout)
        while not worker.over and (unfinished := self._keeper.unfinished()) and time.monotonic() < deadline:
            if unfinished != left:
                left, since = unfinished, time.monotonic()
            elif time.monotonic() - since > patience_s:
                break
            worker.wake()
            time.sleep(POLL_S)
        with slots.changed:
            worker.lingers = not worker.over and self.options.name is None and self._keeper.unfinished() > 0
            slots.changed.notify_all()
        if worker.lingers:
            left_over = self._keeper.describe_unfinished()
            log.info("%s was closed with unfinished work: %s", self.options.title, left_over)
        else:
            worker.stop()

    def shut_down(self) -> None:
        """Called when the broker is closed: close the pool if it is open, and stop managing its conversations."""
        if not self._slots.shut:
            self.close()
        if self._worker.over:
            return
        if self._keeper.unfinished():
            log.warning(
                "%s ends with unfinished work: %s. Messages returned from now on stay at the queue of %r; a named pool "
                "would resend them when it is next opened",
                self.options.title,
                self._keeper.describe_unfinished(),
                self.options.from_service,
            )
        self._worker.stop()

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._worker.over = True
        self._slots.after_fork()

    def keeps(self, farewell: Farewell) -> bool:
        """Whether this pool will end that conversation itself, once its undelivered messages have come back (229)."""
        with self._slots.changed:
            return not self._worker.over and self._keeper.keeps(farewell)

    def on_farewell(self, farewell: Farewell) -> None:
        """A target has ended a conversation, possibly one of this pool."""
        with self._slots.changed:
            if self._worker.over or not self._keeper.on_farewell(farewell):
                return
        self._worker.wake()

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

    def _send_slowly(self, name: object, key: str | bytes | None, message_type: str, body: bytes) -> int:
        """The slow path of `send`: there is no conversation yet, or it was recycled or ended.

        A conversation that the pool itself has recycled meanwhile is no failed attempt. On a busy machine it may be
        over its age before this thread goes on.
        """
        attempts, ended, deadline = 0, 0, time.monotonic() + self._patience_s
        while True:
            dialog, attempts = self._dialog(name, key), attempts + 1
            try:
                sequence = dialog.send(message_type, body)
            except ConversationEnded as error:
                failure = error
            else:
                if not 0 <= sequence < self._last:
                    self._recycle_full(name)
                return sequence
            if self._keeper.refused(dialog):
                ended += 1
                self._worker.wake()
            if ended == POOL_ATTEMPTS_MAX or time.monotonic() > deadline:
                break
        log.error("%s failed to send on a conversation %d times in a row: %s", self.options.title, attempts, failure)
        raise failure

    def _dialog(self, name: object, key: str | bytes | None) -> Dialog:
        """The open conversation of a name; waits until the undelivered messages of an ended one have been resent."""
        slots, routes = self._slots, self._keeper.routes
        self._check_open()
        self._takeover.adopt_all()
        with slots.changed:
            self._check_open()
            slot = self._slot(name, key)
            routes.check(slot.place)
        self._takeover.adopt_returned(slot)
        deadline = time.monotonic() + self._patience_s
        with slots.changed:
            # looked up again each time: the slot may have been evicted meanwhile
            while (slot := self._slot(name, key)).place.waits:
                if time.monotonic() > deadline:
                    raise QueueFull(self._keeper.resends.why_waiting(slot))
                slots.changed.wait(POLL_S)
                self._check_open()
            routes.check(slot.place)
            dialog = slot.dialog or routes.open(slot)
            slots.publish(slot)
            return dialog

    def _slot(self, name: object, key: str | bytes | None) -> Slot:
        """The slot of a name, created if there is none."""
        slot = self._slots.by_name.get(name)
        if slot is None:
            group, kafka_key = self._groups.of(name, key)
            slot = self._keeper.slot_of(group, kafka_key)
            self._slots.name(slot, name)
        return slot

    def _recycle_full(self, name: object) -> None:
        """Recycle the conversation of a name if it has carried `max_messages` messages."""
        with self._slots.changed:
            slot = self._slots.by_name.get(name)
            pooled = slot.place.current if slot is not None else None
            if slot is None or pooled is None or slot.dialog is None or self._last == NO_LIMIT:
                return
            staged = slot.dialog.staged
            pooled.unnumbered += staged.redirects is not None
            if staged.sent + len(staged.held) + pooled.unnumbered > self._last:
                self._keeper.recycle(pooled)
                self._worker.wake()

    def _check_open(self) -> None:
        if self._slots.shut:
            raise BrokerClosed(f"the pool to {self.options.to_service} was closed; create another with broker.pool")
