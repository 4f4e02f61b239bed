"""Followers: drivers of an `Owner` that claims nothing, until the group gives them their partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner.events import AppendSnapshot, Follow, Leading, Phase, Stopped, Tick, Truncate
from tests.kit.digests import digest

from .owning import OwnerProcess
from .places import Place, fold_up_to

if TYPE_CHECKING:
    from .world import World

COMPARED: Final = 100
"""Rate of comparing a follower that has caught up."""
DOZING: Final = (20, 800)
"""Rates of falling asleep, without and with a snapshot under way."""
CALM_STEPS_MAX: Final = 300


class Reference:
    """A fold of the logs at a follower's position. It starts again when it is ahead of the follower."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._fold = Fold(place.identity)
        self._fed = 0

    def at(self, offset: int) -> Fold:
        """The fold up to a journal offset."""
        if self._fold.head.offset > offset:
            self._fold, self._fed = Fold(self._place.identity), 0
        self._fed = fold_up_to(self._place, self._fold, self._fed, offset)
        return self._fold


class FollowerProcess(OwnerProcess):
    """A process that follows one partition. Once appointed, it behaves like any other claimant."""

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(world, place)
        self.appointed = False
        self._warm = False
        """Whether the process leads, or is about to, with the state that it folded as a follower."""
        self._reference = Reference(place)

    @property
    def _following(self) -> bool:
        return self.owner is not None and self.owner.phase is Phase.FOLLOWING

    def _actions(self) -> list[Callable[[], None]]:
        if not self._following:
            return super()._actions()
        if self._reads:
            return [self._read]
        if self.appointed:
            return [self._take_over]
        return [self._go_on, self._go_on, self._let_time_pass]

    def waits_for(self) -> Callable[[], None] | None:
        """The next action that makes a calm follower lead."""
        return self._take_over if self._following else None

    def _start(self) -> None:
        if self.appointed:
            super()._start()
        else:
            self._begin()
            self._go_on()

    def _go_on(self) -> None:
        self._tell(Follow(self._bounds()))
        self._doze()
        if self._following and not self._reads and self.world.choices.chance(COMPARED):
            self.compare()

    def _let_time_pass(self) -> None:
        assert self.owner is not None
        self._tell(Tick())

    def wake(self) -> None:
        """Go on; first finish the snapshot during which it fell asleep."""
        self.asleep_until = 0
        while self.owner is not None and self.owner.snapshots.to_be_made:
            self._let_time_pass()

    def _take_over(self) -> None:
        self.world.sometimes.happened("follower promoted")
        self._snapshots.abandon()
        self._warm = True
        self._tell(self._bounds())

    def compare(self) -> None:
        """Check that the state is the fold of the logs at its offset (I3) and that nothing piles up beside it (I15)."""
        assert self.owner is not None
        state, head, name = self.owner.fold.state, self.owner.fold.head, self.place.name
        if state.ready or state.changed or state.forgotten or any(e.changed for e in state.live()):
            self.place.fail(f"I15: {name}: a follower keeps what nobody asks it for")
        reference = self._reference.at(head.offset)
        known = reference.head
        if (head.epoch, head.owner, head.number, head.hash, head.now_ms) != (
            known.epoch, known.owner, known.number, known.hash, known.now_ms,
        ):  # fmt: skip
            self.place.fail(f"I3: {name}: a follower judges the journal otherwise than a fold of it")
        if digest(state) != digest(reference.state):
            self.place.fail(f"I3: {name}: a follower's state is not the fold of the logs")
        self.world.sometimes.happened("follower compared")

    def catch_up(self) -> None:
        """Without faults: fold up to the end of the journal."""
        for _ in range(CALM_STEPS_MAX + self.place.journal.end + self.place.data.end):  # a read may give one record
            if self._reads:
                self._read()
            elif not self._following:
                self._start()
            elif self.owner is not None and self.owner.fold.head.offset + 1 < self._known_end():
                self._tell(Follow(self._bounds()))
            else:
                return
        self.place.fail(f"L1: {self.place.name}: a follower does not catch up")

    def _known_end(self) -> int:
        """The end of the last decision. Parts of an incomplete commit advance no fold."""
        return self._reference.at(self.place.journal.end).head.offset + 1

    def crash(self) -> None:
        if self.appointed:
            super().crash()
            return
        self.world.sometimes.happened("follower crashed")
        self._drop()
        self.dead = True

    def _drop(self) -> None:
        super()._drop()
        self._warm = False

    def _leading(self, effect: Leading) -> None:
        self.world.sometimes.happened("follower leads", self._warm)
        super()._leading(effect)

    def _stopped(self, effect: Stopped) -> None:
        self.world.sometimes.happened("follower overtaken", "truncated" in effect.reason and not self.appointed)
        super()._stopped(effect)

    def _append_snapshot(self, effect: AppendSnapshot) -> None:
        if self._following:
            self.world.sometimes.happened("follower wrote a snapshot", effect.last)
        super()._append_snapshot(effect)

    def _doze(self) -> None:
        """Fall asleep, preferably during a snapshot, so that the snapshot is old when it is written."""
        world, owner = self.world, self.owner
        busy = owner is not None and owner.snapshots.to_be_made
        if not world.kafka.calm and world.choices.chance(DOZING[busy]):
            self.asleep_until = world.steps + (40, 1_000)[busy or world.choices.choose(2)]

    def _truncate(self, effect: Truncate) -> None:
        if self._following:
            self.place.fail(f"I12: {self.place.name}: a follower deletes what others may need")
        super()._truncate(effect)


class Followers:
    """All followers of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all = [self._one() for _ in range(world.swarm.followers)]

    def _one(self) -> FollowerProcess:
        return FollowerProcess(self._world, self._world.choices.pick(self._world.places))

    def of(self, place: Place) -> list[FollowerProcess]:
        """The followers of a partition."""
        return [follower for follower in self.all if follower.place is place]

    def replace(self, follower: FollowerProcess) -> None:
        """Replace a follower by one of a random partition."""
        self.all.remove(follower)
        self.all.append(self._one())

    def appoint(self, place: Place) -> OwnerProcess | None:
        """The group gives a partition to one of its followers; None when it has none."""
        candidates = self.of(place)
        if not candidates:
            return None
        chosen = self._world.choices.pick(candidates)
        self.replace(chosen)
        chosen.appointed = True
        return chosen

    def agree(self) -> None:
        """Check at the end that each follower reaches the state of the logs."""
        for follower in self.all:
            follower.catch_up()
            follower.compare()
