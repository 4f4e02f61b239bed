"""A reader: one process's share of a queue, handed out as transactions (RECEIVE).

The consumer group only suggests which partitions are ours; a partition is ours when its journal says so. Whoever asks
for the next transaction drives everything: acknowledgements, outputs, new data, commits. Several threads may ask.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

from konverse.dialog.handing_out import should_commit
from konverse.dialog.owner import Owner
from konverse.dialog.phase import LEADING
from konverse.dialog.resting import REST_MAX_MS
from konverse.dialog.transaction import Transaction
from konverse.schemas.errors import BadInput, BrokerClosed, InvalidSettings, OutcomeUnknown, SteppedDown
from konverse.schemas.limits import HANDLER_THREADS_MAX
from konverse.schemas.records import Role

from .arguments import Seconds, checked
from .clock import now_ms
from .exits import leave_at_exit
from .handling import Crew, Handling, failure
from .health import SILENT_S
from .kafka import FETCH_RECORDS, Kafka
from .operating import Operating
from .owning import Owning
from .passed_over import PassedOver
from .receiving import Receiving
from .settings import ReaderOptions
from .share import Share

if TYPE_CHECKING:
    from types import TracebackType

    from konverse.dialog.partition import Partition

log: Final = logging.getLogger("konverse.reader")

WAIT_S: Final = 0.05
ADVANCE_EVERY_S: Final = 0.005
"""Slow handlers must not keep commits, acknowledgements and the consumer group waiting."""

PLENTY_RECORDS: Final = 4 * FETCH_RECORDS
"""Unread messages are so many when there is no hurry to fetch more, unless somebody asks for larger batches."""

SETTLE_S: Final = 30.0
CLOSE_S: Final = 10.0


class Reader(Operating, Receiving):
    """Iterate over it for transactions; use it as a context manager, or close it."""

    def __init__(self, kafka: Kafka, owning: Owning, options: ReaderOptions, on_ended: Callable[[bytes], None]) -> None:
        self.queue = owning.queue
        self.options = options
        self._owning = owning
        self._on_ended = on_ended
        self._lock = threading.RLock()
        """Guards owners and everything that they decide."""
        self._pumping = threading.Lock()
        """Held by the one thread that waits for Kafka."""
        self._returned = threading.Condition(self._lock)
        self._closed = False
        self._others_wait = 0
        self._stopping = False
        """`run` was interrupted: nothing further is handed out there."""
        self._handing_out = owning.handing_out
        self._passed = PassedOver(owning.queue.name)
        self._crew = Crew()
        self._lost_told = 0
        """Partitions that were lost, as far as `settle` has told."""
        self._plenty = PLENTY_RECORDS
        """So many unread messages are worked off before more are fetched."""
        self._advance_at = 0.0
        """When Kafka must be looked after again, however much there is to hand out."""
        owning.attach = self._attach
        leave_at_exit(self)
        try:
            self._share = Share(kafka, owning, options, self._lock)
        except BaseException:
            owning.close()
            raise
        if options.standby:
            owning.stand_by()

    # --------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Transaction]:
        self._check_open()
        return self

    def __next__(self) -> Transaction:
        """The ready messages of the next conversation group. Use it in a `with` block: its end commits or rolls back.

        Leaving the block hands the work to the next commit, which up to `batch` groups share; nothing is lost when the
        process dies before, the messages are received again. Raises QueueDisabled while the queue's STATUS is OFF (77),
        PartitionHalted when Kafka contradicts itself, SteppedDown when another process claims a partition that we were
        told to take, OutcomeUnknown when Kafka stays silent to what was finished before `timeout` ended the iteration.
        """
        idle_since = time.monotonic()
        while True:
            if time.monotonic() >= self._advance_at:
                self._advance(keep_up=True)
            with self._lock:
                self._share.check()
                if self._closed or self._stopping:
                    raise StopIteration
                self._owning.sweeping.check_enabled()
                transaction = self._take()
                if transaction is None:
                    self._take_back()
            if transaction is not None:
                return transaction
            timeout = self.options.timeout
            if self._advance() or self._expecting:
                idle_since = time.monotonic()
            elif timeout is not None and self._share.rests and time.monotonic() - idle_since >= timeout:
                if self._settled():
                    raise StopIteration
                idle_since = time.monotonic()

    @checked
    def run(self, handler: Callable[[Transaction], object], *, threads: int = 1) -> None:
        """Call `handler` for every transaction from so many threads until the reader ends, like an activated procedure.

        A handler that raises rolls its transaction back and stops nothing: the exception is logged with the ids of its
        messages, and they come again after the others. After five attempts in a row its conversation group is
        suspended, which is logged too; `resume`, `skip` or `end` it. What is no `Exception` (KeyboardInterrupt,
        SystemExit) ends the other threads, which have 30 s to finish what they are at, and is raised here, as is what
        iterating raises. InvalidProcedure (29).
        """
        if not 1 <= threads <= HANDLER_THREADS_MAX:
            raise InvalidSettings(
                f"a handler needs at least one thread, and {HANDLER_THREADS_MAX} are the most, not {threads}"
            )
        handling = Handling(self.queue.name, handler)
        with self._lock:
            self._owning.expect(threads)
        try:
            self._crew.work(lambda: handling.work(self), threads, self.stop, handling)
        finally:
            self._stopping = False

    def stop(self) -> None:
        """Let `run` return behind the handlers that are at work. A signal handler may call it."""
        self._stopping = True

    @checked
    def settle(self, timeout_s: Seconds = SETTLE_S) -> None:
        """Commit what is finished and wait until it counts and its outputs are delivered and acknowledged.

        Raises SteppedDown when, since this was called last, a partition was lost, or a `with` block ended after its
        partition had gone to another process: what was not committed is received again, here or there. Raises
        OutcomeUnknown when Kafka stays silent for `timeout_s`.
        """
        self._work_off(timeout_s)
        told, self._lost_told = self._lost_told, self._share.lost
        if self._lost_told > told:
            raise SteppedDown(
                f"a partition of queue {self.queue.name!r} was lost or given back before everything that was finished "
                "was committed; what was not is received again, here or by whoever has it now"
            )

    def _work_off(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        say_at = time.monotonic() + SILENT_S
        while not self._closed:
            with self._pumping:
                with self._lock:
                    self._commit_finished(acknowledgements=True)
                    if not self._owning.busy and not any(owner.staging.waiting for owner in self.owners):
                        break
                    self._owning.pump(0.01)
                    self._share.see_stopped()
                self._share.hear()
            if time.monotonic() > say_at:
                say_at = deadline + 1
                log.warning("waiting for Kafka to acknowledge what was finished on queue %r", self.queue.name)
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"Kafka has not acknowledged everything that was finished on queue {self.queue.name!r} within "
                    f"{timeout_s} s. It is kept and tried again while the reader is used; settle again to learn of it"
                )

    @property
    def _expecting(self) -> bool:
        """Some group is handed out again soon."""
        return bool(self._handing_out.resting) or any(owner.trial.resting for owner in self.owners)

    def _settled(self) -> bool:
        """Whether everything that was finished counts and nothing is left to be received again here."""
        lost = self._share.lost
        self._work_off(SETTLE_S)
        return self._share.lost == lost and not self._share.waiting and not self._handing_out.ready

    @property
    def lost(self) -> int:
        """How often finished work came too late for its partition, or may have, so far (see `settle`)."""
        return self._share.lost

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions that are ours now."""
        with self._lock:
            return frozenset(n for n, owner in self._owning.owners.items() if owner.phase is LEADING)

    @property
    def conversations(self) -> int:
        """Conversation endpoints that live in these partitions."""
        with self._lock:
            return sum(len(side) for owner in self._owning.owners.values() for side in owner.fold.state.sides)

    @property
    def owners(self) -> list[Owner]:
        """The owners of these partitions, for tools that look inside."""
        with self._lock:
            return list(self._owning.owners.values())

    def ask(self, partition: int, question: Callable[[Partition], Any]) -> Any:
        """What the state of a partition answers, for tools that look inside; None when the partition is not ours."""
        with self._lock:
            owner = self._owning.owners.get(partition)
            return question(owner.fold.state) if owner is not None and owner.phase is LEADING else None

    def keep_up(self) -> None:
        """Commit and fetch without waiting, for a thread of the application that waits for something else."""
        self._advance(keep_up=True)

    @checked
    def wait_for_partitions(self, count: int, timeout_s: Seconds = 30.0) -> None:
        """Return when at least `count` partitions are ours; SteppedDown when that does not happen in time.

        Raises BadInput when the queue has fewer.
        """
        if count > self.queue.partitions:
            raise BadInput(f"queue {self.queue.name!r} has {self.queue.partitions} partitions; {count} cannot be ours")
        deadline = time.monotonic() + timeout_s
        while len(self.partitions) < count:
            self._share.check()
            self._check_open()
            if time.monotonic() > deadline:
                raise SteppedDown(f"{len(self.partitions)} of {count} partitions of {self.queue.name!r} are ours")
            self._advance()

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerClosed(f"the reader of queue {self.queue.name!r} was closed; make another with broker.reader")

    def leave(self, timeout_s: float) -> None:
        """The program ends, and so does `run`, behind the handlers that are at work; close, as that is no crash."""
        if self._crew.busy:
            self.stop()
            self._crew.wait(timeout_s)
            self.close()

    def close(self) -> None:
        """Commit what is finished, deliver its outputs, give the partitions back, leave the group. Safe to call twice.

        Transactions that are not finished are received again by the next owner.
        """
        try:
            self.settle(CLOSE_S)
        except (SteppedDown, OutcomeUnknown) as error:
            log.warning("%s", error)
        finally:
            with self._pumping, self._lock:
                first, self._closed = not self._closed, True
                if first:
                    try:
                        self._owning.close()
                    finally:
                        self._share.close()
                        self._handing_out.resting.clear()
            if first:
                self._crew.wait(CLOSE_S)

    def forked(self) -> None:
        """In a forked child: closed, see `bridge.forks`."""
        self._closed = True
        self._lock = threading.RLock()
        self._returned = threading.Condition(self._lock)
        self._pumping = threading.Lock()
        self._crew = Crew()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ transactions

    def _handed(self, owner: Owner, transaction: Transaction) -> Transaction:
        self._passed.handed(owner, transaction)
        if transaction.dialog.role is Role.INITIATOR:
            self._tell_ends(transaction)
        return transaction

    def _done(self, owner: Owner, transaction: Transaction, commit: bool) -> None:  # noqa: FBT001  # a callback's shape
        with self._returned:
            error = "" if commit else failure()
            times = self._handing_out.ended(owner, transaction, commits=commit, error=error, now_ms=now_ms())
            if times:
                self._say_tired(transaction, times)
            if self._others_wait:
                self._returned.notify()

    # ------------------------------------------------------------------------------------------------------ pumping

    def _advance(self, *, keep_up: bool = False) -> bool:
        """Do what can be done; wait a little when nothing can. True when something new is there to take.

        To keep up with Kafka is to do that without waiting although there is something to take: what slow handlers
        have finished is committed, and the group hears of us.
        """
        self._advance_at = time.monotonic() + ADVANCE_EVERY_S
        if not self._pumping.acquire(blocking=False):
            if keep_up:
                return False  # whoever has it does that
            with self._returned:
                self._others_wait += 1
                self._returned.wait(WAIT_S)
                self._others_wait -= 1
            return False
        try:
            self._owning.sweeping.read()
            with self._lock:
                if self._closed:
                    return False
                self._owning.pump()
                self._share.see_stopped()
                self._handing_out.hand_out_again(now_ms())
                if keep_up:  # before the group may say that a partition is not ours any more
                    self._commit_finished(acknowledgements=False)
                elif self._handing_out.ready:
                    return True
            fetched = (
                self._share.fetch(0.0) if self._handing_out.scarce(self._plenty) else keep_up and self._share.hear()
            )
            if fetched or keep_up:
                return True
            with self._lock:
                self._commit_finished(acknowledgements=False)
                if any(owner.committing for owner in self._owning.owners.values()):
                    self._owning.pump(WAIT_S)
                    return self._handing_out.ready
            return self._share.fetch(WAIT_S)
        finally:
            self._pumping.release()

    def _commit_finished(self, *, acknowledgements: bool) -> None:
        for owner in list(self._owning.owners.values()):
            if should_commit(owner, acknowledgements=acknowledgements):
                self._owning.commit(owner)

    def _say_tired(self, transaction: Transaction, times: int) -> None:
        log.warning(
            "a handler of queue %r has taken nothing of conversation %s for %d times in a row; it is called again "
            "every %.0f s. Receive its messages, or end the conversation",
            self.queue.name,
            transaction.dialog.id,
            times,
            REST_MAX_MS / 1_000,
        )
