"""Truncations: requested by an owner, carried out by Kafka at once or much later (I12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.starting_state import starts
from konverse.dialog.owner.events import Truncate
from konverse.schemas.wire.snapshot import SnapshotEnd

from .places import Place

if TYPE_CHECKING:
    from .world import World

LATE: Final = 400
"""Rate of late truncations: a thread asks Kafka several things first, and its process may sleep."""
ARRIVING: Final = 10

KEPT: Final = 2
"""Snapshots that a truncation must leave."""


class Truncations:
    """Truncations under way."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._late: list[tuple[Place, Truncate]] = []

    def ask(self, place: Place, effect: Truncate) -> None:
        """Delete everything before these offsets. Followers overtaken by that wake and finish their snapshots."""
        world = self._world
        overtaken = [
            follower
            for follower in world.followers.of(place)
            if follower.owner is not None and follower.owner.fold.head.offset + 1 < effect.journal
        ]
        if not world.kafka.calm and world.choices.chance(LATE):
            self._late.append((place, effect))
        else:
            self._carry_out(place, effect)
        for follower in overtaken:
            follower.wake()

    def step(self) -> None:
        """A late truncation may arrive, even when its sender is gone."""
        choices = self._world.choices
        if self._late and choices.chance(ARRIVING):
            self._world.sometimes.happened("truncated late")
            self._carry_out(*self._late.pop(choices.choose(len(self._late))))

    def settle_down(self) -> None:
        """All late truncations arrive."""
        while self._late:
            self._carry_out(*self._late.pop())

    def _carry_out(self, place: Place, effect: Truncate) -> None:
        self._world.sometimes.happened("truncated")
        place.truncate(effect)
        kept = usable(place)
        if kept + place.rotten < KEPT and place not in self._world.losses.struck:  # one may be damaged
            place.fail(f"I12: {place.name}: {kept} snapshots are left that one could recover from")


def left(place: Place) -> list[SnapshotEnd]:
    """The whole snapshots that were not deleted."""
    records = [record for record in place.snapshots.records if record.offset >= place.snapshots.start]
    return [start.end for start in starts(records, place.verified().identity)]


def usable(place: Place) -> int:
    """Number of snapshots from which an owner could recover: the logs after them are there."""
    journal, data = place.journal.start, place.data.start
    return len({end.snapshot for end in left(place) if end.offset + 1 >= journal and end.ingest_to >= data})
