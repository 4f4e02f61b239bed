"""A process that tries to own one partition: the driver of an `Owner`, with crashes and losses at every step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import (
    Append,
    AppendSnapshot,
    DataEnd,
    Effect,
    Feed,
    Halted,
    Leading,
    Phase,
    ReadData,
    ReadDataEnd,
    ReadJournal,
    ReadSnapshots,
    Recover,
    Stopped,
    Tick,
    Truncate,
    ViewLost,
)
from konverse.dialog.owner.handing_out import HandingOut
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.view import Show
from konverse.dialog.transaction.transaction import Transaction

from . import beliefs, endings, moves, poison, reads, taking
from .appends import Appends, Snapshots
from .beginnings import begin_here
from .flushing import Settling
from .handlers import Progress, Work
from .outputs import Outputs
from .places import Place
from .redis_view import ViewWriter

if TYPE_CHECKING:
    from .world import World

BACK_OFF_STEPS_MAX: Final = (25, 400)
"""Most steps of waiting after an unknown outcome, and after another owner has won."""
READS_AHEAD_MAX: Final = 3
BURST_MAX: Final = 5
"""Most actions of a process before another one acts."""


class OwnerProcess:
    """One process for one partition. A stopped owner is replaced by a new one with a new claim id."""

    def __init__(self, world: World, place: Place) -> None:
        self.world = world
        self.place = place
        self.asleep_until = 0
        self.dead = False
        self.owner: Owner | None = None
        self.handing_out = HandingOut()
        self.plenty = world.choices.pick(taking.PLENTY)
        self.works: list[Work] = []
        self._finished: list[Work] = []
        """Executions that are finished and wait for the commit."""
        self._reads: deque[ReadJournal | ReadData | ReadSnapshots] = deque()
        self._appends = Appends(world, place)
        self._settling = Settling(world)
        self._snapshots = Snapshots(world, place)
        self._flight: beliefs.Flight | None = None
        self._overtaken: list[Transaction] = []
        self.position = 0
        self._releasing = False
        self._clock_ms = world.choices.choose(60_000) * 1_000
        self._view = ViewWriter(place.view, world.sometimes)
        self._outputs = Outputs(world, loose=world.choices.chance(world.swarm.loose))

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self) -> bool:
        """Some random actions. False when only time passed."""
        choices = self.world.choices
        busy = False
        for _ in range(1 + choices.choose(BURST_MAX)):
            actions = self._actions()
            actions[choices.choose(len(actions))]()
            if self.owner is not None and self.leading:
                self._settling.look(self.owner)
            if len(actions) == 1 and self.leading:
                break  # it was a tick
            busy = True
        return busy

    def _actions(self) -> list[Callable[[], None]]:
        owner = self.owner
        if owner is None:
            return [self._start]
        if owner.phase is not Phase.LEADING:
            return [self._read] if self._reads else [self._outcome]
        actions: list[Callable[[], None]] = []
        if self._reads:
            actions.append(self._read)
        if self._appends.waiting:
            actions.append(self._outcome)
        elif taking.commits(self):
            actions.append(partial(self.commit, owner))
        elif self._releasing:
            actions.append(self.release)
        if any(work.awake for work in self.works):
            actions.append(self._work)
        if self._outputs.waiting:
            actions += (self._transmit, self._transmit)
        if self._outputs.news:
            actions.append(self._settle)
        if taking.fetches(self) and len(owner.fold.data) < READS_AHEAD_MAX:
            actions.append(self._poll)
        if owner.fold.data:
            actions.append(self._ingest)
        if owner.staging.ready and len(self.works) < self.world.swarm.handlers:
            actions.append(self._take)
        actions += [partial(self.world.poisons.may_order, self.place, owner)] * self.world.poisons.may_be_ordered(owner)
        actions += [self._view.write] * bool(self._view.waiting)
        actions += [self._report_lost_view] * self._view.lost
        return [*actions, *moves.actions(self, owner), *endings.actions(self, owner), self._tick]

    @property
    def now_ms(self) -> int:
        """This process's own clock."""
        return self.world.kafka.now_ms + self._clock_ms

    @property
    def leading(self) -> bool:
        """The owner believes that it leads."""
        return self.owner is not None and self.owner.phase is Phase.LEADING

    def waits_for(self) -> Callable[[], None] | None:
        """The action that makes a calm process lead when nothing is under way."""
        return None

    # ------------------------------------------------------------------------------------------------ start and end

    def _bounds(self) -> Recover:
        world, journal = self.world, self.place.journal
        end = journal.end
        data, snapshots = self.place.data, self.place.snapshots
        if not world.kafka.calm and end and world.choices.chance(world.swarm.stale_ends):
            end -= 1 + world.choices.choose(end)
            world.sometimes.happened("stale end")
        ends = max(end, journal.start), data.start, snapshots.start, snapshots.end, data.stable
        return Recover(journal.start, *ends)

    def _start(self) -> None:
        self._begin()
        self._tell(self._bounds())

    def _begin(self) -> None:
        world = self.world
        swarm = world.swarm
        settings = OwnerSettings(swarm.batch, swarm.max_messages, swarm.view_interval_ms, handlers=swarm.handlers)
        owner = self.owner = Owner(self.place.identity, world.identifier(b"claim"), lambda *_: None, settings)
        owner.staging.context.begin = partial(begin_here, world, self.place)
        owner.staging.judge = world.rejections if world.swarm.rejecting or world.swarm.priorities else None
        owner.staging.context.host = taking.Host(owner)
        self.handing_out = HandingOut()
        self.handing_out.join(owner)
        self._snapshots.watch(owner)

    def crash(self) -> None:
        """The process dies. Its requests may still arrive."""
        happened = self.world.sometimes.happened
        happened("owner crashed")
        if self.leading:
            happened("owner crashed in a commit", self._flight is not None)
            happened("owner crashed before emission", self._flight is None and self._outputs.waiting)
        self._drop()
        self.dead = True

    def _drop(self) -> None:
        """Drop the owner and everything that belongs to it."""
        self._outputs.abandon()
        self._appends.abandon()
        self.world.late_shows += self._view.drop()
        self.owner = None
        self.works, self._finished = [], []
        self._settling.committed = []
        self._reads.clear()
        self._snapshots.abandon()
        self._flight = None
        self._releasing = False

    def _stopped(self, effect: Stopped) -> None:
        assert self.owner is not None
        self.world.sometimes.happened("released", effect.clean)
        if effect.fenced:
            beliefs.fenced(self.world, self.place, self.owner, self._flight)
        beliefs.gave_up(self.place, self.owner, self._flight, effect)
        self._drop()
        if not self.world.kafka.calm:
            most = BACK_OFF_STEPS_MAX[effect.fenced]
            self.asleep_until = self.world.steps + self.world.choices.choose(most)

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
        effects = call()
        overtaken = owner.staging.overtaken
        if owner.counters.commits != commits:
            flight, self._flight = self._flight, None
            assert flight is not None
            beliefs.committed(self.world, self.place, owner, flight)
        for effect in effects:
            self._overtaken = overtaken  # an earlier effect may have led to a nested call
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        _EFFECTS[type(effect)](self, effect)

    def _append(self, effect: Append) -> None:
        owner = self.owner
        assert owner is not None
        if owner.phase is Phase.LEADING:
            beliefs.keeps(self.place, owner)
            self.world.sometimes.happened("overtaken", len(self._overtaken))
            overtaken = {id(transaction) for transaction in self._overtaken}
            waiting = set(map(id, owner.staging.finished))  # they belong to the next commit
            merged = [work for work in self._finished if id(work.transaction) not in waiting]
            works = [work for work in merged if id(work.transaction) not in overtaken]
            self._finished = [work for work in self._finished if id(work.transaction) in waiting]
            self._flight = beliefs.Flight(owner.fold.head.number + 1)
            self.world.history.committed[self.place.name, owner.claim_id, self._flight.number] = works
            self._settling.committed += works
        self._appends.send(effect.records)

    def _outcome(self) -> None:
        """The append was answered, or the driver stops waiting."""
        outcome, owner = self._appends.outcome(), self.owner
        if outcome is None or owner is None:
            return
        if self._flight is not None and (outcome.offset or 0) > owner.fold.head.offset + 1:
            self._flight.judged = True
            self.world.sometimes.happened("offset judged")
        self._tell(outcome)

    def _leading(self, effect: Leading) -> None:
        assert self.owner is not None
        self.position = effect.data_from
        beliefs.leads(self.world, self.place, self.owner)

    def _feed(self, _effect: Feed) -> None:
        assert self.owner is not None
        self.position = self.owner.fold.data_to

    def _halted(self, effect: Halted) -> None:
        self.world.losses.halted(self.place, effect)
        self._drop()

    # --------------------------------------------------------------------------------------------------------- reads

    def _read(self) -> None:
        self._tell(reads.answer(self.world, self.place, self._reads.popleft()))

    def _poll(self) -> None:
        event, self.position = reads.poll(self.world, self.place, self.position)
        self._tell(event)

    def _ingest(self) -> None:
        assert self.owner is not None
        unread, unread_bytes = poison.unread_elsewhere(self.owner)
        beliefs.ingests(self.place, unread, unread_bytes, self.owner.ingest(self.now_ms))

    def _append_snapshot(self, effect: AppendSnapshot) -> None:
        self._tell_if(self._snapshots.append(effect))

    def _truncate(self, effect: Truncate) -> None:
        self.world.truncations.ask(self.place, effect)

    # ------------------------------------------------------------------------------------------------------ handlers

    def _take(self) -> None:
        taking.hand_out(self)

    def _work(self) -> None:
        owner, world = self.owner, self.world
        assert owner is not None
        work = world.choices.pick([work for work in self.works if work.awake])
        progress = work.go_on()
        if progress is Progress.DONE:
            self.works.remove(work)
            self._finished.append(work)
            taking.ended(self, owner, work)
        elif progress in (Progress.FAILED, Progress.STEPPED_BACK):
            if progress is Progress.STEPPED_BACK:
                world.poisons.came_back(self.place, work.members)
            self.works.remove(work)
            taking.came_back(self, owner, work, steps_back=progress is Progress.STEPPED_BACK)
        elif progress is Progress.KILLED:
            world.poisons.killed(self.place, owner, work)
            self._drop()
        elif progress is Progress.LEFT:
            world.poisons.came_back(self.place, work.members)
            self.works.remove(work)
            taking.ended(self, owner, work)

    def commit(self, owner: Owner) -> None:
        """Commit everything finished."""
        self._call(lambda: owner.commit(self.now_ms))

    def _tick(self) -> None:
        assert self.owner is not None
        beliefs.attends(self.place, self.owner)
        self.handing_out.hand_out_again(self.now_ms)
        alone = self._flight is None and not self.owner.staging.finished
        self._tell(Tick())
        self.world.sometimes.happened("nothing staged", alone and self._flight is not None)

    def _emit(self, effect: Emit) -> None:
        beliefs.emits(self.place, effect)
        self._outputs.emit(effect)

    def _show(self, effect: Show) -> None:
        beliefs.shows(self.world, self.place, effect)
        self._view.waiting.append(effect)

    def _transmit(self) -> None:
        self._tell_if(self._outputs.transmit())

    def _settle(self) -> None:
        self._tell(self._outputs.settle())

    def _tell_if(self, event: Any) -> None:
        if event is not None:
            self._tell(event)

    def _report_lost_view(self) -> None:
        self._view.tell()
        self._tell(ViewLost())


_EFFECTS: Final[dict[type, Callable[[OwnerProcess, Any], None]]] = {
    Append: OwnerProcess._append,
    ReadSnapshots: lambda process, effect: process._reads.append(effect),
    AppendSnapshot: lambda process, effect: process._append_snapshot(effect),
    ReadDataEnd: lambda process, _effect: process._tell(DataEnd(process.place.data.stable)),
    Truncate: lambda process, effect: process._truncate(effect),
    Feed: OwnerProcess._feed,
    ReadJournal: lambda process, effect: process._reads.append(effect),
    ReadData: lambda process, effect: process._reads.append(effect),
    Emit: OwnerProcess._emit,
    Show: OwnerProcess._show,
    Leading: lambda process, effect: process._leading(effect),
    Stopped: lambda process, effect: process._stopped(effect),
    Halted: OwnerProcess._halted,
}
