"""A process that tries to own one partition: the driver of `Owner`, with everything that can befall it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from konverse.dialog.emitter import Emit
from konverse.dialog.events import (
    Append,
    Appended,
    DataRead,
    Effect,
    Halted,
    Leading,
    ReadData,
    ReadJournal,
    Recover,
    ReplaceProducer,
    Stopped,
    Tick,
    ViewLost,
)
from konverse.dialog.owner import Owner, Phase
from konverse.dialog.staging import OwnerSettings
from konverse.dialog.transaction import Transaction
from konverse.dialog.view import Show

from .failure import SimulationFailure
from .handlers import Progress, Work
from .kafka import Outcome, Request
from .outputs import Outputs
from .places import Place, columns, journal_read
from .redis_view import Written

if TYPE_CHECKING:
    from .world import World

BACK_OFF_STEPS_MAX: Final = 25
WORKS_MAX: Final = 3
READS_AHEAD_MAX: Final = 3


@dataclass(slots=True)
class _Flight:
    """A commit on its way."""

    number: int
    works: list[Work]


class OwnerProcess:
    """One process, one partition; a stopped owner is replaced by a new one with a new claim id."""

    def __init__(self, world: World, place: Place) -> None:
        self.world = world
        self.place = place
        self.asleep_until = 0
        self.dead = False
        self.owner: Owner | None = None
        self.works: list[Work] = []
        self._finished: list[Work] = []
        """Handlers that are done and wait for the commit."""
        self._reads: deque[ReadJournal | ReadData] = deque()
        self._request: Request | None = None
        self._answer_lost = False
        self._flight: _Flight | None = None
        self._overtaken: list[Transaction] = []
        self._shows: deque[Show] = deque()
        self._view_lost = False
        self._position = 0
        self._releasing = False
        self._clock_ms = world.choices.choose(60_000) * 1_000
        self._outputs = Outputs(world, loose=world.choices.chance(world.swarm.loose))

    # ---------------------------------------------------------------------------------------------------- a step

    def step(self) -> None:
        """One thing, chosen among all that it could do."""
        actions = self._actions()
        actions[self.world.choices.choose(len(actions))]()

    def _actions(self) -> list[Callable[[], None]]:
        owner = self.owner
        if owner is None:
            return [self._start]
        if owner.phase is not Phase.LEADING:
            return [self._read] if self._reads else [self._outcome]
        actions: list[Callable[[], None]] = []
        if self._reads:
            actions.append(self._read)
        if self._request is not None:
            actions.append(self._outcome)
        if self.works:
            actions.append(self._work)
        if self._outputs.waiting:
            actions += (self._transmit, self._transmit)
        if self._outputs.news:
            actions.append(self._settle)
        if self._position < self.place.data.end and len(owner.fold.data) < READS_AHEAD_MAX:
            actions.append(self._poll)
        if owner.fold.data:
            actions.append(self._ingest)
        if owner.fold.state.ready and len(self.works) < WORKS_MAX:
            actions.append(self._take)
        if owner.staging.finished and not owner.committing:
            actions.append(self._commit)
        if self._releasing and not owner.committing:
            actions.append(self.release)
        if self._shows:
            actions.append(self._write_view)
        if self._view_lost:
            actions.append(self._report_lost_view)
        actions.append(self._tick)
        return actions

    @property
    def now_ms(self) -> int:
        """This process's own clock."""
        return self.world.kafka.now_ms + self._clock_ms

    @property
    def leading(self) -> bool:
        """Its owner believes that the partition is its own."""
        return self.owner is not None and self.owner.phase is Phase.LEADING

    # ------------------------------------------------------------------------------------------------ start and end

    def _start(self) -> None:
        world, journal = self.world, self.place.journal
        end = journal.end
        if not world.kafka.calm and end and world.choices.chance(world.swarm.stale_ends):
            end -= 1 + world.choices.choose(end)
            world.sometimes.happened("stale end")
        swarm = world.swarm
        settings = OwnerSettings(swarm.batch, swarm.max_messages, swarm.view_interval_ms)
        owner = self.owner = Owner(self.place.identity, world.identifier(b"claim"), lambda *_: None, settings)
        judge = owner.staging._overtaken

        def overtaken(transaction: Transaction) -> bool:
            found = judge(transaction)
            if found:
                self._overtaken.append(transaction)
            return found

        owner.staging._overtaken = overtaken  # type: ignore[method-assign]
        self._tell(Recover(0, end))

    def crash(self) -> None:
        """The process dies; what it had sent lives on."""
        owner, happened = self.owner, self.world.sometimes.happened
        happened("owner crashed")
        if owner is not None and self.leading:
            if self._flight is not None:
                happened("owner crashed in a commit")
            elif self._outputs.waiting:
                happened("owner crashed before emission")
        self._drop()
        self.dead = True

    def _drop(self) -> None:
        """Forget the owner and everything of it."""
        self._outputs.abandon()
        if self._request is not None:
            self._request.abandoned = True
        self.world.late_shows += [(self.place.view, show) for show in self._shows]
        self.owner = None
        self.works = []
        self._finished = []
        self._reads.clear()
        self._request = None
        self._flight = None
        self._shows.clear()
        self._view_lost = False
        self._releasing = False

    def _stopped(self, effect: Stopped) -> None:
        owner = self.owner
        assert owner is not None
        happened = self.world.sometimes.happened
        if effect.clean:
            happened("released")
        elif effect.fenced:
            if self._flight is None:
                happened("claim lost")
            else:
                happened("offset judged, invalid")
                counted = self.place.judge.commits.get(self._flight.number)
                if counted is not None and counted[1] == owner.claim_id:
                    raise SimulationFailure(f"I2: {self.place.name}: an owner says that commit {self._flight.number} "
                                            "does not count, and it does")  # fmt: skip
        self._drop()
        if not self.world.kafka.calm:
            self.asleep_until = self.world.steps + self.world.choices.choose(BACK_OFF_STEPS_MAX)

    def release(self) -> None:
        """Ask the owner to give the partition back."""
        owner = self.owner
        if owner is not None and self.leading:
            self._releasing = True
            self._call(lambda: owner.release(self.now_ms))

    # ------------------------------------------------------------------------------------------- effects and events

    def _tell(self, event: Any) -> None:
        owner = self.owner
        assert owner is not None
        self._call(lambda: owner.step(event, self.now_ms))

    def _call(self, call: Callable[[], list[Effect]]) -> None:
        owner = self.owner
        assert owner is not None
        commits = owner.counters.commits
        self._overtaken.clear()
        effects = call()
        if owner.counters.commits != commits:
            self._believe(owner)
        for effect in effects:
            if isinstance(effect, Append):
                self._append(owner, effect)
            else:
                _EFFECTS[type(effect)](self, effect)

    def _append(self, owner: Owner, effect: Append) -> None:
        happened = self.world.sometimes.happened
        if owner.phase is Phase.LEADING:
            happened("overtaken", len(self._overtaken))
            overtaken = {id(transaction) for transaction in self._overtaken}
            works = [work for work in self._finished if id(work.transaction) not in overtaken]
            self._finished = []
            self._flight = _Flight(owner.fold.head.number + 1, works)
            self.world.history.committed[self.place.name, owner.claim_id, self._flight.number] = works
        self._request = Request(self.place.journal, [(None, b"", effect.data)])
        self._answer_lost = self.world.kafka.send(self._request) is Outcome.SILENT

    def _outcome(self) -> None:
        """The append was answered, or the driver stops waiting."""
        request, world = self._request, self.world
        assert request is not None
        if request.landed and not self._answer_lost:
            record = world.choices.pick(request.landed)
            outcome = Appended(record.offset, record.timestamp_ms)
        elif self._answer_lost or world.kafka.calm or world.choices.chance(300):
            outcome = Appended(None)
            world.sometimes.happened("append unknown, landed" if request.landed else "append unknown")
        else:
            return
        owner = self.owner
        if owner is not None and outcome.offset is not None and outcome.offset > owner.fold.head.offset + 1:
            world.sometimes.happened("offset judged", self.leading)
        self._request = None
        request.abandoned = True
        self._tell(outcome)

    def _believe(self, owner: Owner) -> None:
        """The owner reports a commit: it must be right, and its state must be what the logs say (I2, I3)."""
        flight, self._flight = self._flight, None
        assert flight is not None
        place = self.place
        counted = place.judge.commits.get(flight.number)
        if counted is None or counted[1] != owner.claim_id:
            raise SimulationFailure(f"I2: {place.name}: an owner reports commit {flight.number}, which does not count")
        if counted[0] != place.journal.records[-1].offset:
            self.world.sometimes.happened("offset judged, valid")
        if self.world.choices.chance(250):
            self._compare(owner)

    def _compare(self, owner: Owner) -> None:
        state, place = owner.fold.state, self.place
        if state.ingest_to != owner._journaled_to or not place.follow(owner.fold.head.offset):
            return
        if state.digest() != place.shadow.state.digest():
            raise SimulationFailure(f"I3: {place.name}: the owner's state is not the fold of the logs")

    def _leading(self, effect: Leading) -> None:
        owner, place = self.owner, self.place
        assert owner is not None
        if owner.claim_id not in place.judge.claims:
            raise SimulationFailure(f"I2: {place.name}: an owner leads without a CLAIM that counts")
        self._position = effect.data_from
        self.world.sometimes.happened("outbox recovered", any(s.entries for s in owner.fold.state.streams.values()))
        self._compare(owner)

    def _halted(self, effect: Halted) -> None:
        raise SimulationFailure(f"I17: {self.place.name} halted: {effect.reason}")

    # --------------------------------------------------------------------------------------------------------- reads

    def _read(self) -> None:
        effect = self._reads.popleft()
        kafka, place = self.world.kafka, self.place
        if isinstance(effect, ReadJournal):
            self._tell(journal_read(kafka.read(place.journal, effect.start, effect.end)))
        else:
            self._tell(DataRead(columns(kafka.read(place.data, effect.start, effect.end))))

    def _poll(self) -> None:
        read = self.world.kafka.read(self.place.data, self._position, self.place.data.end)
        self._position = read.next_offset
        self._tell(DataRead(columns(read)))

    def _ingest(self) -> None:
        assert self.owner is not None
        self.owner.ingest(self.now_ms)

    # ------------------------------------------------------------------------------------------------------ handlers

    def _take(self) -> None:
        assert self.owner is not None
        transaction = self.owner.take()
        if transaction is not None:
            self.works.append(Work(self.world, transaction))
            self.world.sometimes.happened("group of several", len(transaction.members) > 1)

    def _work(self) -> None:
        owner = self.owner
        assert owner is not None
        work = self.world.choices.pick(self.works)
        progress = work.go_on()
        if progress is Progress.DONE:
            self.works.remove(work)
            self._finished.append(work)
            owner.finish(work.transaction)
        elif progress is Progress.FAILED:
            self.world.sometimes.happened("rolled back")
            self.works.remove(work)
            owner.roll_back(work.transaction)

    def _commit(self) -> None:
        owner = self.owner
        assert owner is not None
        self._call(lambda: owner.commit(self.now_ms))

    def _tick(self) -> None:
        staged = self._flight is None and self.owner is not None and not self.owner.staging.finished
        self._tell(Tick())
        self.world.sometimes.happened("nothing staged", staged and self._flight is not None)

    # ------------------------------------------------------------------------------------------------------- outputs

    def _transmit(self) -> None:
        self._tell_if(self._outputs.transmit())

    def _settle(self) -> None:
        assert self.owner is not None
        self._tell_if(self._outputs.settle(self.owner))

    def _replace(self, _effect: ReplaceProducer) -> None:
        self._tell(self._outputs.replace(asked=True))

    def _tell_if(self, event: Any) -> None:
        if event is not None:
            self._tell(event)

    # ---------------------------------------------------------------------------------------------------------- view

    def _write_view(self) -> None:
        written = self.place.view.apply(self._shows.popleft())
        self._view_lost |= written is Written.LOST
        self.world.sometimes.happened("view refused", written is Written.REFUSED)

    def _report_lost_view(self) -> None:
        self._view_lost = False
        self._shows.clear()
        self.world.sometimes.happened("view lost")
        self._tell(ViewLost())

    # ---------------------------------------------------------------------------------------------------------- calm

    def settle_down(self) -> None:
        """Without faults: everything that can be done now, in a sensible order."""
        for _ in range(200):
            owner = self.owner
            if owner is None:
                self._start()
            elif self._reads:
                self._read()
            elif self._request is not None:
                self._outcome()
            elif not self.leading:
                return
            elif self._outputs.waiting:
                self._transmit()
            elif self._outputs.outstanding:
                self._settle()
            elif self._position < self.place.data.end:
                self._poll()
            elif owner.fold.data and owner.has_room:
                self._ingest()
            elif self.works:
                self._work()
            elif owner.fold.state.ready and not self._releasing:
                self._take()
            elif (owner.staging.finished or self._releasing) and not owner.committing:
                self._commit()
            elif self._shows:
                self._write_view()
            elif self._view_lost:
                self._report_lost_view()
            else:
                break
        if self.leading:
            self._tick()

    @property
    def quiet(self) -> bool:
        """Nothing is left to do."""
        owner = self.owner
        if owner is None or not self.leading or self._request is not None or self._shows:
            return False
        state = owner.fold.state
        return (
            state.ingest_to == self.place.data.end == owner._journaled_to
            and not state.unread
            and not self.works
            and not self._outputs.outstanding
            and owner.emitter.idle
            and not any(stream.entries for stream in state.streams.values())
        )


_EFFECTS: Final[dict[type, Callable[[OwnerProcess, Any], None]]] = {
    ReadJournal: lambda process, effect: process._reads.append(effect),
    ReadData: lambda process, effect: process._reads.append(effect),
    Emit: lambda process, effect: process._outputs.emit(effect),
    Show: lambda process, effect: process._shows.append(effect),
    Leading: OwnerProcess._leading,
    Stopped: OwnerProcess._stopped,
    Halted: OwnerProcess._halted,
    ReplaceProducer: OwnerProcess._replace,
}
