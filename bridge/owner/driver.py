"""Drives the owners of a reader's partitions: effects become calls, outcomes become events (protocol.md section 4).

Each partition has one `Owner`; all owners of a reader share a producer for journals, one for outputs and a log reader.
The thread that holds the reader's lock makes every step of every owner, one step at a time.

When a partition is lost, `LateTransactions` replaces the reader as host of its open transactions. It counts those that
would have committed: their work is discarded, and the new owner delivers their messages again.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Message

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.catalog.judge import Rules
from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.columns import columns_of
from konverse.bridge.kafka.headers import WITHOUT_GROUP
from konverse.bridge.kafka.offsets import BEGINNING
from konverse.bridge.redis.view import ViewWriter
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import (
    Append,
    Appended,
    AppendSnapshot,
    DataEnd,
    DataGone,
    DataRead,
    Effect,
    Feed,
    Halted,
    Leading,
    Phase,
    ReadData,
    ReadDataEnd,
    ReadJournal,
    ReadSnapshots,
    SnapshotWritten,
    Stopped,
    Tick,
    Truncate,
    ViewLost,
)
from konverse.dialog.owner.handing_out import HandingOut
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.view import Show
from konverse.dialog.rules.accepted_loss import AcceptedLoss
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import Transaction, TransactionContext
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from konverse.schemas.limits import UNCOMMITTED_MS_MAX

from .alarms import log_alarms
from .catalog_changes import CatalogChanges
from .closing_log import log_unreleased
from .effects import EffectMethod, run_effects
from .group_locator import GroupLocator
from .journal import JournalAppender
from .log_starts import OffsetWatch, SnapshotWatch
from .logs import Question, QueueLogs
from .outputs import Outputs
from .sender_notifier import SenderNotifier
from .snapshots import SnapshotTopic, Truncation
from .standby import Standby

log: Final = logging.getLogger("konverse.owner")
URGENT_S: Final = 10.0
"""`give_back` waits this long for urgent snapshots, without which no owner could recover the partitions."""
HURRY_S: Final = 1.0
"""While senders wait for commits, the reader polls every few milliseconds, until no commit succeeds for this long."""
ENDED: Final = (Phase.STOPPED, Phase.HALTED)
SIGNS_OF_LIFE: Final = 3
"""Journal writes of a living owner per `silence_timeout_s`. An owner silent for that long counts as dead (M83)."""

_Outcomes = deque[tuple[Owner, Appended]] | deque[tuple[Owner, SnapshotWritten]]


class OwnerDriver:
    """Owners of some partitions of one queue, and the clients that they share."""

    def __init__(  # noqa: PLR0913, PLR0917  # the parts of a process that its partitions need
        self,
        kafka: Kafka,
        queue: Queue,
        rules: Rules,
        settings: OwnerSettings,
        view: Callable[[], ViewWriter] | None = None,
        notifier: SenderNotifier | None = None,
    ) -> None:
        """Reads the catalog before it opens any client: after Unavailable there is nothing to close."""
        self.queue = queue
        self.owners: dict[int, Owner] = {}
        self.handing_out = HandingOut()
        """Chooses the next group to hand out among these owners."""
        self.catalog_changes = CatalogChanges(rules, queue, self.owners)
        self._kafka = kafka
        self._rules = rules
        self._notifier = notifier
        alive_every_ms = round(kafka.settings.silence_timeout_s * 1000 / SIGNS_OF_LIFE)
        interval_ms = None if view is None else settings.view_interval_ms
        self._settings = replace(settings, alive_every_ms=alive_every_ms, view_interval_ms=interval_ms)
        self._journal = journal_topic(queue.topic, queue.subscription)
        self._reading = QueueLogs(kafka, queue)
        self._appender = JournalAppender(kafka, self._journal)
        self._snapshots = SnapshotTopic(kafka, snapshot_topic(queue.topic, queue.subscription))
        self._truncation = Truncation(kafka, queue)
        self._beginnings = OffsetWatch(kafka, queue.topic, BEGINNING)
        self._snapshot_watch = SnapshotWatch(kafka, self._snapshots.topic)
        self._outputs = Outputs(kafka, self.owners, self._step, Destinations(kafka, rules.catalog))
        self._stopped: deque[tuple[int, Owner, Stopped | Halted]] = deque()
        self.misplaced: set[int] = set()
        """Partitions in which the consumer must seek to the next offset of their owner (effect `Feed`)."""
        self._ticked_at = 0
        self._awaited = settings.uncommitted_ms < UNCOMMITTED_MS_MAX
        """Whether senders wait for commits, and no handler receives: true only for the transmission queue."""
        self._hurries_until: tuple[int, float] | None = None
        """Number of commits so far, and the time until which to poll quickly; None when no commit is awaited."""
        self._standby: Standby | None = None
        self.late = LateTransactions()
        self.group_locator = GroupLocator(kafka, queue, self.owners)
        self.acceptance: AcceptedLoss | None = None
        """Lets the next owner give up commits whose data are gone; without it the owner halts (section 7.7)."""
        self.attach: Callable[[Owner], None] | None = None
        """Makes the reader the host of an owner's transactions: the reader is notified when their blocks end."""
        self._view = None if view is None else view()  # last: its thread would go on if a client cannot be created

    # -------------------------------------------------------------------------------------------------- partitions

    def expect(self, handlers: int) -> None:
        """Set how many handlers run at a time from now on."""
        self._settings = replace(self._settings, handlers=handlers)
        for owner in self.owners.values():
            owner.staging.settings = self._settings

    def leave_group_out(self) -> None:
        """Mark the journals' records: the caller named the partitions, and no consumer group knows of this process."""
        self._appender.headers = WITHOUT_GROUP

    def take_over(self, number: int) -> int | None:
        """Recover and claim a partition. Returns the data offset to read from; None if the owner stopped or halted."""
        bounds = self._reading.bounds(number)
        owner = (self._standby and self._standby.take(number)) or self._fresh(number)
        owner.staging.settings = self._settings  # a follower was made with older ones
        owner.staging.judge = judge = self._rules.judge
        owner.staging.altering.services = self.catalog_changes.service_moves.places
        if judge is not None:
            context = owner.staging.context
            context.messages = context.messages._replace(validation=judge.letter)
        if self.attach is not None:
            self.attach(owner)
        if self._rules.begin is not None:
            owner.staging.context.begin = partial(self._rules.begin, self.queue, number)
        self.owners[number] = owner
        try:
            self.handing_out.join(owner)
            self._step(owner, bounds)
            log_alarms(owner, self._journal, self._kafka.alarms)
            while owner.phase is not Phase.LEADING:
                if owner.phase in ENDED:
                    return None
                self._take_outcomes(0.05)
        except BaseException:
            self._stop_interrupted(owner)
            raise
        return owner.fold.data_to

    def _fresh(self, number: int) -> Owner:
        owner = Owner(self.queue.log_identity(number), secrets.token_bytes(16), self._rules.send, self._settings)
        owner.recovery.acceptance = self.acceptance
        return owner

    def stand_by(self) -> None:
        """Follow the partitions that are not owned here."""
        self._standby = Standby(self._kafka, self.queue, self._fresh, set(self.owners))

    def give_back(self, *numbers: int) -> None:
        """Commit finished work, record in the journals that this is not a crash, and give the partitions up.

        All of them wait for Kafka at the same time, and all are given up even if one of them is interrupted.
        """
        owners = [(number, self.owners[number]) for number in numbers if number in self.owners]
        with ExitStack() as exits:
            for number, owner in reversed(owners):
                exits.callback(self.drop, number)
                exits.callback(self._release, owner)
            exits.callback(self._begin_releases, [owner for _, owner in owners])

    def _begin_releases(self, owners: list[Owner]) -> None:
        deadline = time.monotonic() + URGENT_S
        while any(one.phase is Phase.LEADING and one.snapshots.urgent for one in owners):
            if time.monotonic() > deadline:
                break
            self.pump(0.05)
        for owner in owners:
            self._begin_release(owner)

    def _begin_release(self, owner: Owner) -> None:
        if owner.phase is Phase.LEADING and not owner.committing and not self.catalog_changes.dropped:
            self._run(owner, lambda: owner.release(now_ms()))

    def _release(self, owner: Owner) -> None:
        since = time.monotonic()
        try:
            while owner.phase is Phase.LEADING and not self.catalog_changes.dropped:
                self._begin_release(owner)
                self._take_outcomes(0.05)
                since = self.catalog_changes.look_for_drop(since)
        except BaseException:
            self._stop_interrupted(owner)
            raise

    def drop(self, number: int) -> Owner | None:
        """Forget a partition that was lost or given back. Returns the owner that it had here."""
        owner = self.owners.pop(number, None)
        if owner is not None:
            self._snapshots.forget(owner)
            owner.trial.leave()
            self.handing_out.leave(owner)
            if self.attach is not None:  # an open transaction must not keep the reader alive
                self.late.attach(owner.staging.context)
        if self._standby is not None:
            self._standby.follow_again(number)
        if self._view is not None:
            self._view.forget(number)
        return owner

    def truncated(self, number: int, why: LogTruncated) -> None:
        """Notify the owner that the data log lacks its next offset, or has other records before that offset."""
        owner = self.owners.get(number)
        if owner is not None:
            self._step(owner, self._reading.data_gone(number, owner.fold.data_to, why))
            log_alarms(owner, self._journal, self._kafka.alarms)

    def _check_offsets(self) -> None:
        """Notify the owners of deleted records that a recovery would need."""
        for number, (offset,) in self._beginnings.poll(self.owners).items():
            self._data_begins(number, offset)
        leading = {number: owner for number, owner in self.owners.items() if owner.phase is Phase.LEADING}
        newest = {number: at for number, owner in leading.items() if (at := owner.snapshots.newest) >= 0}
        for number, held in self._snapshot_watch.poll(newest):
            if number in leading:
                self._step(leading[number], held)
                log_alarms(leading[number], self._journal, self._kafka.alarms)

    def _data_begins(self, number: int, offset: int) -> None:
        """The data log begins at `offset`: notify the owner if a recovery from its last snapshot needs earlier data."""
        owner = self.owners.get(number)
        if owner is not None and owner.phase is Phase.LEADING and owner.snapshots.rests_on(offset):
            self._step(owner, DataGone(offset))
            log_alarms(owner, self._journal, self._kafka.alarms)

    def stopped(self) -> list[tuple[int, Owner, Stopped | Halted]]:
        """Owners lost since the last call, with partition and reason. A partition may have another owner by now."""
        out = list(self._stopped)
        self._stopped.clear()
        return out

    # --------------------------------------------------------------------------------------------------------- work

    def feed(self, messages: list[Message]) -> list[Message]:
        """Give records from the reader's consumer to their owners. Returns the client's events among them."""
        events: list[Message] = []
        for number, run in groupby(messages, Message.partition):
            columns, between = columns_of(list(run))
            events += between
            owner = self.owners.get(number or 0)
            if owner is not None:
                self._step(owner, DataRead(columns))
        return events

    def ingest(self) -> int:
        """Let every owner ingest the data fed to it. Returns the number of records."""
        now = now_ms()
        return sum(owner.ingest(now) for owner in self.owners.values())

    def commit(self, owner: Owner) -> None:
        """Commit the owner's staged work, unless a commit is in flight. The other owners are served next."""
        self.handing_out.served(owner)
        self._run(owner, lambda: owner.commit(now_ms()))

    @property
    def validator_pause_s(self) -> float:
        """How long a partition waits before it is claimed again while this process cannot validate its messages."""
        return 0.0 if self._rules.judge is None else self._rules.judge.pause_s

    @property
    def gated(self) -> bool:
        """Whether outputs to one destination wait for earlier outputs to another one."""
        return any(owner.fold.state.gated for owner in self.owners.values())

    def hurries(self) -> bool:
        """Whether to poll quickly: senders wait, and a commit succeeded or their wait began within the last HURRY_S.

        Because of this limit, a destination that accepts nothing does not keep the reader busy.
        """
        on_its_way = not self.settled or any(owner.waiting_since is not None for owner in self.owners.values())
        if not (self._awaited and on_its_way):
            self._hurries_until = None
            return False
        commits, now = sum(owner.counters.commits for owner in self.owners.values()), time.monotonic()
        if self._hurries_until is None or self._hurries_until[0] != commits:
            self._hurries_until = (commits, now + HURRY_S)
        return now < self._hurries_until[1]

    def pump(self, wait_s: float = 0.0) -> None:
        """Report the outcomes of appends, snapshots and outputs, hand over the next outputs, and tick the owners.

        Waits up to `wait_s` seconds for the outcome of an append.
        """
        self._take_outcomes(wait_s)
        self._report(self._snapshots.poll())
        now = now_ms()
        if now != self._ticked_at:
            self._ticked_at = now
            self.catalog_changes.step()
            # the topics of a dropped queue are gone: nothing can be committed, released or delivered there
            if self.catalog_changes.dropped:
                for number in list(self.owners):
                    self.drop(number)
            self._check_offsets()
            for owner in list(self.owners.values()):
                self._step(owner, Tick())
        self._outputs.pump()
        if self._view is not None:
            while self._view.lost:
                self._lost_view(self._view.lost.popleft())

    @property
    def settled(self) -> bool:
        """Whether all finished work of these partitions is committed, and its outputs are acknowledged."""
        return all(owner.settled for owner in self.owners.values())

    def close(self) -> None:
        """Give every partition back and stop."""
        with ExitStack() as exits:  # in reverse order, and all of them whatever fails
            exits.callback(lambda: log_unreleased(self.queue, self.stopped()))
            if self._view is not None:
                exits.callback(self._view.close)
            exits.callback(self._reading.close)
            exits.callback(self.group_locator.close)
            exits.callback(self._truncation.close)
            exits.callback(self._appender.close)
            exits.callback(self._snapshots.close)
            exits.callback(self._outputs.close)
            exits.callback(lambda: self.give_back(*self.owners))
            if self._standby is not None:
                exits.callback(self._standby.close)

    # ------------------------------------------------------------------------------------------------------ effects

    def _step(self, owner: Owner, event: Any) -> None:
        self._run(owner, lambda: owner.step(event, now_ms()))

    def _run(self, owner: Owner, decide: Callable[[], list[Effect]]) -> None:
        """Carry out the effects of an owner's decision.

        An exception from outside, such as Ctrl-C, cuts them off: the owner stops, and its partition is recovered again.
        """
        try:
            run_effects(_EFFECTS, self, owner, decide())
        except BaseException:
            self._stop_interrupted(owner)
            raise

    def _stop_interrupted(self, owner: Owner) -> None:
        """Stop an owner, unless it has stopped, and report the stop, even if an earlier report of it was cut off."""
        if owner.phase not in ENDED:
            owner.interrupted()
        effects = owner.step(Tick(), now_ms()) or [Stopped("this process was interrupted while the owner stopped")]
        if all(known is not owner for _, known, _ in self._stopped):
            run_effects(_EFFECTS, self, owner, effects)

    def _append(self, _number: int, owner: Owner, effect: Append) -> None:
        self._appender.append(owner, effect)

    def _take_outcomes(self, wait_s: float) -> None:
        self._report(self._appender.poll(wait_s))

    def _report(self, outcomes: _Outcomes) -> None:
        """Report outcomes to their owners.

        Each outcome is removed within `_run`, which stops the owner if an exception from outside interrupts it: an
        owner whose outcome was lost would wait for ever.
        """
        while outcomes:
            owner = outcomes[0][0]
            self._run(owner, lambda: _report_next(outcomes))
            log_alarms(owner, self._journal, self._kafka.alarms)

    def _read(self, number: int, owner: Owner, effect: Question) -> list[Effect]:
        return owner.step(self._reading.answer(number, effect), now_ms())

    def _read_data_end(self, number: int, owner: Owner, _effect: ReadDataEnd) -> list[Effect]:
        return owner.step(DataEnd(self._reading.data_end(number)), now_ms())

    def _append_snapshot(self, _number: int, owner: Owner, effect: AppendSnapshot) -> None:
        self._snapshots.append(owner, effect)

    def _truncate(self, number: int, _owner: Owner, effect: Truncate) -> None:
        self._truncation.truncate(number, self._snapshots.spared(number, effect))

    def _emit(self, _number: int, owner: Owner, effect: Emit) -> None:
        self._outputs.add(owner, effect)

    def _show(self, number: int, _owner: Owner, effect: Show) -> None:
        if self._view is not None:
            self._view.show(number, effect)

    def _leading(self, number: int, owner: Owner, _effect: Leading) -> None:
        if self._notifier is not None:
            self._notifier.follow(owner.fold.state)
        log.info("%s/%d: this process owns the partition now", self.queue.topic, number)
        self.catalog_changes.soon()

    def _feed(self, number: int, _owner: Owner, _effect: Feed) -> None:
        self.misplaced.add(number)

    def _stop(self, number: int, owner: Owner, effect: Stopped | Halted) -> None:
        level, mistake = (logging.ERROR, effect.mistake) if isinstance(effect, Halted) else (logging.INFO, None)
        log.log(level, "%s/%d: %s", self.queue.topic, number, effect.reason, exc_info=mistake)
        if self.owners.get(number) is owner and not (isinstance(effect, Stopped) and effect.clean):
            self._stopped.append((number, owner, effect))

    def _lost_view(self, number: int) -> None:
        owner = self.owners.get(number)
        if owner is not None:
            self._step(owner, ViewLost())


def _report_next(outcomes: _Outcomes) -> list[Effect]:
    owner, outcome = outcomes.popleft()
    return owner.step(outcome, now_ms())


_EFFECTS: Final[dict[type, EffectMethod[OwnerDriver]]] = {
    Append: OwnerDriver._append,  # noqa: SLF001  # the table belongs to the class
    ReadJournal: OwnerDriver._read,  # noqa: SLF001
    ReadData: OwnerDriver._read,  # noqa: SLF001
    ReadSnapshots: OwnerDriver._read,  # noqa: SLF001
    ReadDataEnd: OwnerDriver._read_data_end,  # noqa: SLF001
    AppendSnapshot: OwnerDriver._append_snapshot,  # noqa: SLF001
    Truncate: OwnerDriver._truncate,  # noqa: SLF001
    Emit: OwnerDriver._emit,  # noqa: SLF001
    Show: OwnerDriver._show,  # noqa: SLF001
    Leading: OwnerDriver._leading,  # noqa: SLF001
    Feed: OwnerDriver._feed,  # noqa: SLF001
    Stopped: OwnerDriver._stop,  # noqa: SLF001
    Halted: OwnerDriver._stop,  # noqa: SLF001
}


class LateTransactions:
    """Counts transactions that would have committed after their partition was lost.

    It replaces the reader as their host, so that they do not keep the reader alive.
    """

    def __init__(self) -> None:
        self.count = 0

    def attach(self, context: TransactionContext) -> None:
        """Take the reader's place for the transactions of an owner that has lost its partition."""
        context.host = self

    def lock(self, _transaction: Transaction, _dialog: Endpoint | NewDialog, _group: bytes, /) -> None:
        """Lock nothing: the move is dropped with the transaction."""

    def further(self, _transaction: Transaction, /) -> None:
        """No group of a lost partition is free."""

    def done(self, transaction: Transaction, commits: bool, /) -> None:  # noqa: FBT001  # a callback's shape
        """Count a transaction whose `with` block succeeded (`commits`) and left work to commit."""
        self.count += commits and not transaction.idle
