"""The owner of a partition as a machine without I/O: recover, claim, commit, step down (protocol.md section 4).

    RECOVERING  --journal folded-->  CLAIMING  --CLAIM acknowledged-->  READING_BACK  --it counts-->  LEADING
    RECOVERING  --Follow-->  FOLLOWING  --Recover-->  RECOVERING, from the fold's position
        any  --outcome unknown, claim lost, another owner-->  STOPPED        any  --contradiction-->  HALTED

Two rules. An acknowledgement proves that the owner's append counts only if its offset comes directly after the last
verified record; otherwise the owner reads the journal and judges it. And an owner that does not learn an outcome stops
at once: the next owner, perhaps in the same process, folds the journal and learns it.

The drivers are `bridge.owner.driver` and the simulator. They feed events to `step` and carry out the effects. Between
events they take transactions and give them back.

`LossDetector` handles data that was deleted before it was ingested. `Flight` is the COMMIT in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from konverse.dialog.fold.fold import Fold, Overtaken
from konverse.dialog.rules.batches import overflowing
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.ready import NOTHING_READY, Ranked
from konverse.dialog.state.recent import Alarm
from konverse.dialog.state.transitions import next_state
from konverse.dialog.transaction.received import Rule
from konverse.dialog.transaction.transaction import Transaction
from konverse.dialog.window import Window
from konverse.schemas.errors import WAY_ON, PartitionHalted, Unavailable
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.limits import LOOK_AHEAD_BYTES_MAX, LOOK_AHEAD_RECORDS_MAX, OUTBOX_RECORDS_MAX
from konverse.schemas.wire.journal import Commit, cut, encode_commit
from konverse.schemas.wire.operations import Cleanup, Lost, Rare, Withdraw

from .emitter import Emitter
from .events import (
    LEADING,
    PHASE_TRANSITIONS,
    Append,
    Appended,
    DataEnd,
    DataGone,
    DataRead,
    Drained,
    Effect,
    Feed,
    Follow,
    Halted,
    JournalRead,
    Leading,
    OutOfRange,
    Phase,
    PhaseEvent,
    ProducerReplaced,
    ReadData,
    ReadJournal,
    Recover,
    SnapshotsHeld,
    SnapshotsRead,
    SnapshotWritten,
    Stopped,
    Tick,
    ViewLost,
)
from .poison import PoisonWatch
from .recovery import Recovery
from .settings import OwnerSettings
from .snapshots import SnapshotMaker
from .staging import Staging
from .timekeeping import Upkeep
from .view import Show, ViewFeed


class Owner:
    """One attempt of a process to own or follow a partition. A stopped owner is discarded."""

    def __init__(self, identity: LogIdentity, claim: bytes, rule: Rule, settings: OwnerSettings) -> None:
        self.identity = identity
        self.claim_id = claim
        """16 random bytes, used for this claim alone."""
        self.phase = Phase.RECOVERING
        """Changed by `_enter` alone."""
        self.fold = Fold(identity)
        self.emitter = Emitter(self.fold.state.streams)
        self.staging = Staging(self.fold.state, rule, settings)
        self.trial = PoisonWatch(self.fold.state, self.staging)
        self.view = ViewFeed(self.fold, settings.view_interval_ms)
        self.recovery = Recovery(self.fold)
        self.snapshots = SnapshotMaker(self.fold)
        self.counters = Counters()
        self.losing = LossDetector(self.fold, self.snapshots)
        self.upkeep = Upkeep(self.fold, self.snapshots, settings.alive_every_ms)
        self.duties: list[Rare] = []
        """The owner's own operations for the next COMMIT."""
        self.congested = False
        """The outbox is full. No group is handed out until the journal records acknowledgements."""
        self._journal_end = 0
        self._in_flight: Flight | None = None
        self._journaled_to = 0
        self.waiting_since: int | None = None
        """Time (ms) since which the journal lacks data that was ingested or outputs that arrived; None: it lacks
        nothing."""
        self._releasing = False
        self._unsaid: list[Effect] = []

    # ------------------------------------------------------------------------------------------------------ events

    def step(self, event: Any, now_ms: int) -> list[Effect]:
        """Process an event and return the effects. After STOPPED or HALTED events have no effect."""
        if self.phase in (Phase.STOPPED, Phase.HALTED):
            unsaid, self._unsaid = self._unsaid, []
            return unsaid
        try:
            return _STEPS[type(event)](self, event, now_ms)
        except Exception as error:  # noqa: BLE001  # after any error the state is suspect
            return [self._halt(error)]
        except BaseException:
            self.interrupted()
            raise

    def interrupted(self) -> None:
        """Stop, because an exception from outside, such as Ctrl-C, cut a call short. The next step returns Stopped."""
        self._unsaid.append(self._stop("this process was interrupted; the partition must be recovered again"))

    def _enter(self, event: PhaseEvent) -> None:
        self.phase = next_state(PHASE_TRANSITIONS, self.phase, event)

    def _halt(self, error: Exception) -> Halted | Stopped:
        """Stop or halt: a step failed part-way, so the state may differ from the fold of the journal."""
        if isinstance(error, Overtaken | Unavailable):  # Unavailable: the judge of messages could not ask the catalog
            return self._stop(f"{error}; the partition must be recovered again")
        self._enter(PhaseEvent.HALT)
        return Halted(str(error) or repr(error), None if isinstance(error, PartitionHalted) else error)

    # ---------------------------------------------------------------------------------------------------- recovery

    def _follow(self, event: Follow, now_ms: int) -> list[Effect]:
        self._enter(PhaseEvent.FOLLOW)
        self.snapshots.note_topic_end(event.bounds.snapshots_end)
        return self.recovery.start(event.bounds) or self._journal_folded(now_ms)

    def _recover(self, event: Recover, now_ms: int) -> list[Effect]:
        self._enter(PhaseEvent.RECOVER)
        self.snapshots.abandon()
        return self.recovery.start(event) or self._journal_folded(now_ms)

    def _snapshots_read(self, event: SnapshotsRead, now_ms: int) -> list[Effect]:
        return self.recovery.snapshots_read(event) or self._journal_folded(now_ms)

    def _journal_read(self, event: JournalRead, now_ms: int) -> list[Effect]:
        if self.phase is Phase.LEADING:
            return [*self._judge_tail(event), *self._commit_lost(now_ms)]
        return self.recovery.journal_read(event) or self._journal_folded(now_ms)

    def _data_read(self, event: DataRead, now_ms: int) -> list[Effect]:
        if self.phase is Phase.LEADING:
            return [ReadData(*span) for span in self.fold.feed_data(event.columns)]
        return self.recovery.data_read(event) or self._journal_folded(now_ms)

    def _out_of_range(self, event: OutOfRange, _now_ms: int) -> list[Effect]:
        self.recovery.out_of_range(event)

    def _journal_folded(self, now_ms: int) -> list[Effect]:
        head = self.fold.head
        self.snapshots.recovered(self.recovery)
        if self.phase is Phase.FOLLOWING:
            return self.snapshots.followed(now_ms)
        if self.phase is Phase.RECOVERING:
            self._enter(PhaseEvent.FOLDED)
            return [Append([self.upkeep.claim(self.claim_id, now_ms)])]
        if head.owner != self.claim_id:
            return [self._stop("another process claimed the partition first", fenced=True)]
        return self._lead(now_ms)

    def _lead(self, now_ms: int) -> list[Effect]:
        self.losing.lead(self.recovery.data_start)
        self._enter(PhaseEvent.LED)
        self.counters.claims += 1
        self.congested = self.emitter.waiting >= OUTBOX_RECORDS_MAX
        self._journaled_to = self.fold.state.ingest_to
        self.fold.state.judged_by(self.staging.judge)
        self.trial.lead(self.recovery.data_end, now_ms)
        self.staging.leaving.find()
        self.emitter.allow(self.emitter.limits())
        return [Leading(self.fold.data_to), *self.emitter.pending(), *self._commit_lost(now_ms), *self._show(now_ms)]

    def _data_gone(self, event: DataGone, now_ms: int) -> list[Effect]:
        self.losing.note_data_start(event.data_start)
        return self._commit_lost(now_ms) if self.losing.gone else [Feed()]

    def _snapshots_held(self, event: SnapshotsHeld, _now_ms: int) -> list[Effect]:
        self.snapshots.held(*event)
        return []

    def _commit_lost(self, now_ms: int) -> list[Effect]:
        """If the next data is gone, commit a LOST and continue after it. Waits while another COMMIT is in flight."""
        if self.phase is not LEADING or self._in_flight is not None or not self.losing.gone:
            return []
        if self.upkeep.late(now_ms):
            return self.commit(now_ms)
        self.duties.append(self.losing.lose())
        return [Feed(), *self.commit(now_ms)]

    # ------------------------------------------------------------------------------------------------ transactions

    @property
    def free(self) -> bool:
        """Whether groups may be handed out."""
        return self.phase is LEADING and not (self._releasing or self.congested)

    def take(self, wanted: Endpoint | None = None, *, whole: bool = True) -> Transaction | None:
        """Lock the next free group, or that of `wanted`, and return its ready messages; None when it is not free.

        Without `whole` the transaction has the messages of `wanted` alone, and the group is locked all the same.
        """
        if not self.free:
            return None
        try:
            return self.staging.take() if wanted is None else self.staging.take_from(wanted, whole=whole)
        except BaseException:
            self.interrupted()
            raise

    def finish(self, transaction: Transaction) -> None:
        """Put a handler's finished work into the next COMMIT."""
        self.staging.finish(transaction)
        self.counters.transactions += 1

    # ---------------------------------------------------------------------------------------------------- commits

    @property
    def committing(self) -> bool:
        """Whether a COMMIT is in flight, so that the next one must wait."""
        return self._in_flight is not None

    @property
    def settled(self) -> bool:
        """Whether all finished work is in the journal, and all of its outputs are acknowledged there.

        A later send on the same side then arrives after that work, whichever way it takes (protocol.md 9c).
        """
        under_way = self.committing or not self.emitter.idle or self.emitter.acknowledged()
        return not (under_way or self.trial.due or self.staging.waiting or self._unsaid)

    @property
    def has_room(self) -> bool:
        """Whether more data may be ingested: look-ahead and outbox are bounded (invariant I15)."""
        unread, unread_bytes = self.trial.unread
        named = len(self.fold.state.rejected) + len(self.fold.state.recent.contested)  # by the next COMMIT
        full = unread + named >= LOOK_AHEAD_RECORDS_MAX or unread_bytes >= LOOK_AHEAD_BYTES_MAX
        return not full and not self.congested

    def ingest(self, now_ms: int) -> int:
        """Ingest data that was read, within the look-ahead. Returns the number of records."""
        if self.phase is not Phase.LEADING or not self.fold.data or not self.has_room or self.upkeep.late(now_ms):
            return 0
        if self.waiting_since is None:
            self.waiting_since = now_ms
        try:
            return self.fold.ingest_some(LOOK_AHEAD_RECORDS_MAX, LOOK_AHEAD_BYTES_MAX + self.trial.parked.size_bytes)
        except Exception as error:  # noqa: BLE001  # as in `step`, which returns the effect
            self._unsaid.append(self._halt(error))
            return 0
        except BaseException:
            self.interrupted()
            raise

    def commit(self, now_ms: int) -> list[Effect]:
        """Append a COMMIT of staged work and ingested data, unless one is in flight or there is nothing to commit."""
        if self.phase is not Phase.LEADING or self._in_flight is not None:
            return []
        try:
            return self._commit(now_ms)
        except Exception as error:  # noqa: BLE001  # as in `step`
            return [self._halt(error)]
        except BaseException:
            self.interrupted()
            raise

    def _commit(self, now_ms: int) -> list[Effect]:
        state, head, staging = self.fold.state, self.fold.head, self.staging
        acks = self.emitter.acknowledged()
        told = staging.waiting or acks or self.duties or self.trial.due or self.upkeep.due(now_ms)
        if not (told or state.ingest_to > self._journaled_to or self._releasing):
            return []
        operations, transactions = staging.merge()
        operations.rare += overflowing(state)
        self.trial.fill(operations, now_ms, releasing=self._releasing)
        self.upkeep.commits(operations, now_ms)
        operations.rare += self.duties  # last: a LOST forgets endpoints that the other operations may name
        self.duties = []
        release = self._releasing and not staging.finished
        place = head.epoch, self.claim_id, head.number + 1, head.hash, state.ingest_to
        commit = Commit(*place, operations, acks, [*state.rejected.items()], [*state.recent.contested], release)
        data = encode_commit(commit)
        self.fold.apply(commit)
        self.emitter.held = any(isinstance(operation, Cleanup | Withdraw) for operation in operations.rare)
        self.congested = self.emitter.waiting >= OUTBOX_RECORDS_MAX
        self._journaled_to = state.ingest_to
        self.waiting_since = None
        self.trial.release(transactions)
        show = self.view.due(now_ms, last=release)
        if not release and self.snapshots.due(self.counters.journal_bytes, now_ms):
            self.snapshots.begin(self.counters.journal_bytes)
        append = Append(cut(commit, data))
        self._in_flight = Flight(commit, data, len(append.records), self.emitter.limits(), show)
        self.counters.journal_bytes += len(data)
        return [append]

    def _appended(self, event: Appended, now_ms: int) -> list[Effect]:
        head = self.fold.head
        if event.offset is None:
            return [self._stop("the outcome of an append to the journal is unknown")]
        if event.offset <= head.offset:
            raise PartitionHalted(
                f"Kafka acknowledged offset {event.offset} in the journal of {head.where}, although {head.offset} was "
                f"already read: the topic was recreated or truncated. {WAY_ON}"
            )
        if self.phase is Phase.CLAIMING:
            self._enter(PhaseEvent.CLAIMED)
            return self.recovery.read_on(event.offset + 1) or self._journal_folded(now_ms)
        flight = self._in_flight
        assert flight is not None
        if event.offset == head.offset + flight.records and event.together:
            return [*self._committed(event.offset, event.timestamp_ms), *self._commit_lost(now_ms)]
        self._journal_end = event.offset + 1
        return [ReadJournal(head.offset + 1, self._journal_end)]

    def _judge_tail(self, event: JournalRead) -> list[Effect]:
        """Our COMMIT does not directly follow the last verified record: judge the records between by the log alone."""
        flight, head = self._in_flight, self.fold.head
        assert flight is not None
        effects: list[Effect] = []
        for record, decision in self.fold.journal.decisions(event.records):
            if self._in_flight is None or record.data != flight.data:
                if head.accepts(decision):
                    return [self._stop("another process has claimed the partition", fenced=True)]
                head.skip(record.offset)
            elif head.accepts(flight.commit):
                effects += self._committed(record.offset, record.timestamp_ms)
        head.offset = max(head.offset, event.next_offset - 1)
        if self._in_flight is None:
            return effects
        if event.next_offset < self._journal_end:  # the read was short: our record may come later
            return [ReadJournal(event.next_offset, self._journal_end)]
        # a part that was sent twice may still arrive, and complete the COMMIT
        return [
            self._stop(
                "the outcome of an append to the journal is unknown: the record is not at the offset that Kafka "
                "acknowledged"
            )
        ]

    def _committed(self, offset: int, timestamp_ms: int) -> list[Effect]:
        flight, self._in_flight = self._in_flight, None
        assert flight is not None
        self.fold.head.take(flight.commit, flight.data, offset, timestamp_ms)
        self.snapshots.confirm()
        self.fold.journal.alarms += self.trial.counted()
        self.counters.commits += 1
        self.emitter.allow(flight.limits)
        effects: list[Effect] = [*self.emitter.pending()]
        if flight.show is not None:
            effects.append(flight.show._replace(journal_offset=offset))
        if flight.commit.release:
            effects.append(self._stop("released", clean=True))
        return effects

    # --------------------------------------------------------------------------------------------------- emission

    def _drained(self, event: Drained, now_ms: int) -> list[Effect]:
        self.emitter.drained(event.addresses)
        return self._acknowledged(now_ms)

    def _acknowledged(self, now_ms: int) -> list[Effect]:
        if self.waiting_since is None:
            self.waiting_since = now_ms
        return [*self.emitter.pending()]

    def _producer_replaced(self, event: ProducerReplaced, now_ms: int) -> list[Effect]:
        self.emitter.restart(event.refused, now_ms)
        return [*self.emitter.pending()]

    # ------------------------------------------------------------------------------------------------------- time

    def _tick(self, _event: Tick, now_ms: int) -> list[Effect]:
        if self.phase is not Phase.LEADING:
            return self.snapshots.go_on() if self.phase is Phase.FOLLOWING else []
        effects: list[Effect] = self.upkeep.go_on()
        self.staging.leaving.tick(now_ms)
        since, gated, most_ms = self.waiting_since, self.fold.state.gated, self.staging.settings.uncommitted_ms
        late = since is not None and (now_ms - since >= most_ms or self.emitter.opens(gated))
        due = late or self.upkeep.due(now_ms) or self.staging.dropping or self.staging.moving
        # while a COMMIT is in flight all of this waits, also groups whose pause is over
        if self._in_flight is None and (self.trial.tick(now_ms) or due):
            self.waiting_since = None
            effects += self.commit(now_ms)
        return [*effects, *self.emitter.resume(now_ms), *self.snapshots.go_on(), *self._show(now_ms)]

    def release(self, now_ms: int) -> list[Effect]:
        """Give the partition back: commit all finished work, and mark the COMMIT as a release."""
        self._releasing = True
        return self.commit(now_ms)

    # ------------------------------------------------------------------------------------------------------- view

    def _view_lost(self, _event: ViewLost, now_ms: int) -> list[Effect]:
        self.view.lost()
        return self._show(now_ms)

    def _show(self, now_ms: int) -> list[Effect]:
        """Show the state in the view, provided that it is exactly the verified state."""
        if self._in_flight is not None or self.fold.state.ingest_to != self._journaled_to:
            return []
        show = self.view.due(now_ms)
        return [] if show is None else [show]

    def _stop(self, reason: str, *, clean: bool = False, fenced: bool = False) -> Stopped:
        self._enter(PhaseEvent.STOP)
        return Stopped(reason, clean, fenced)


_Step = Callable[[Owner, Any, int], list[Effect]]
_STEPS: Final[dict[type, _Step]] = {
    Recover: Owner._recover,  # noqa: SLF001  # the table belongs to the class
    Follow: Owner._follow,  # noqa: SLF001
    JournalRead: Owner._journal_read,  # noqa: SLF001
    DataRead: Owner._data_read,  # noqa: SLF001
    DataGone: Owner._data_gone,  # noqa: SLF001
    SnapshotsRead: Owner._snapshots_read,  # noqa: SLF001
    DataEnd: lambda owner, event, _now_ms: owner.upkeep.data_end(event),
    SnapshotWritten: lambda owner, event, now_ms: owner.snapshots.written(event.first_offset, now_ms),
    SnapshotsHeld: Owner._snapshots_held,  # noqa: SLF001
    Appended: Owner._appended,  # noqa: SLF001
    Drained: Owner._drained,  # noqa: SLF001
    ProducerReplaced: Owner._producer_replaced,  # noqa: SLF001
    OutOfRange: Owner._out_of_range,  # noqa: SLF001
    ViewLost: Owner._view_lost,  # noqa: SLF001
    Tick: Owner._tick,  # noqa: SLF001
}


class LossDetector:
    """Detects that the next data was deleted, and makes the LOST (protocol.md section 7.7).

    Only an owner whose CLAIM counts can say so. An owner that was overtaken also sees its data truncated, by its
    successor, but its COMMIT does not count.
    """

    def __init__(self, fold: Fold, snapshots: SnapshotMaker) -> None:
        self._fold = fold
        self._snapshots = snapshots
        self._data_start = 0
        self._accepted = False
        """Whether an operator has given up lost data, together with COMMITs that had ingested it."""

    def lead(self, data_start: int) -> None:
        """Start to lead. Data below `data_start`, or below the end of data that an operator gave up, is gone."""
        given_up = self._fold.skip_given_up()
        self._accepted = given_up > 0
        self.note_data_start(max(data_start, given_up))

    def note_data_start(self, data_start: int) -> None:
        """Note where the data log begins. If ingested data was deleted, recovery needs a new snapshot."""
        self._data_start = max(self._data_start, data_start)
        self._snapshots.needed_from = max(
            self._snapshots.needed_from, min(self._data_start, self._fold.state.ingest_to)
        )

    @property
    def gone(self) -> bool:
        """Whether the data to read next is gone."""
        return self._data_start > self._fold.data_to

    def lose(self) -> Lost:
        """Ingest the data that was read, skip the data that is gone, and return the LOST for the next COMMIT.

        That COMMIT must begin a snapshot: a recovery from an older one would need the deleted data.
        """
        fold, start = self._fold, self._fold.data_to
        lost = Lost(start, self._data_start)
        fold.ingest_to(start)
        fold.pass_over(lost.end)
        self._snapshots.needed_from = lost.end
        how = "deleted before they were received"
        if self._accepted:
            how = "deleted, or are useless without the deleted ones, and an operator has given them up"
        alarm = Alarm(
            f"LOST: the records {lost.start} to {lost.end - 1} of {fold.head.where} were {how}. The conversations of "
            "this partition get an Error on both sides. A conversation that a session began in these records gets "
            "an Error at its home when its next message arrives. A conversation entirely in these records gets none: "
            "compare the data of both sides. Find out which program deletes the records"
        )
        fold.journal.alarms.append(alarm)
        return lost


@dataclass(slots=True)
class Flight:
    """A COMMIT whose append is in flight."""

    commit: Commit
    data: bytes
    records: int
    """Number of journal records into which it was cut."""
    limits: list[tuple[Window, int]]
    show: Show | None


@dataclass(slots=True)
class Counters:
    """Counts of an owner's work, for people and benchmarks."""

    claims: int = 0
    """Claims that counted: 0 or 1."""
    commits: int = 0
    transactions: int = 0
    journal_bytes: int = 0
    commit_waits_ms: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """Waiting times for the acknowledgements of the last COMMITs; the driver fills it."""


def highest_first(owners: list[Owner]) -> Sequence[Owner]:
    """The owners in the order in which their reader asks them for a group: highest level first (behaviour 219)."""
    if not (Ranked.made and any(isinstance(owner.fold.state.ready, Ranked) for owner in owners)):
        return owners
    return sorted(owners, key=_next_level, reverse=True)


def _next_level(owner: Owner) -> int:
    """Level of the group that the owner hands out next. Entries that are no longer ready are dropped."""
    ready, table = owner.staging.ready, owner.fold.state.table
    while ready:
        endpoint = ready[0]
        if not endpoint.held and endpoint.waits and table[endpoint.index] is endpoint:
            return endpoint.level
        ready.popleft()
    return NOTHING_READY
