"""What ALTER SERVICE … ON QUEUE has done to the services of one queue, as far as its readers know (behaviour 19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.relocations import Place
from konverse.dialog.state.relocations import Arrival
from konverse.routing.partitioning import choose_home
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import ServiceAltered
from konverse.schemas.identifiers import Address

from .judge import CatalogJudge, Rules

LATER_S: Final = 5.0
"""Where services have left, what may still come for them is looked for this often."""


class Elsewhere(NamedTuple):
    """What the catalog says of services that have changed their queue."""

    gone: Mapping[str, Queue]
    """Services that were on the queue that is read, and where they are."""
    left: Sequence[Queue]
    """Queues that services have left which are on it."""


class Altered:
    """Services that are on another queue by now, and queues from which services have come here."""

    def __init__(self, rules: Rules, queue: Queue) -> None:
        """Reads the catalog. Raises Unavailable."""
        self._judge = rules.judge
        self._look_after = rules.look_after
        self._queue = queue
        self.places: dict[str, Place] = {}
        """Of the services that have left this queue: where each group goes."""
        self._names: dict[str, str] = {}
        self.see(self.read(), {})

    def read(self) -> Elsewhere:
        """Read the catalog. Raises Unavailable."""
        judge = self._judge
        return Elsewhere({}, ()) if judge is None else Elsewhere(dict(judge.gone_from(self._queue)), self._left(judge))

    def _left(self, judge: CatalogJudge) -> Sequence[Queue]:
        return () if self._look_after is None else judge.left_for(self._queue)

    def see(self, elsewhere: Elsewhere, owners: Mapping[Owner, Mapping[int, Arrival]]) -> None:
        """Have these owners send away what does not belong here, but for what has come since (`Altering.look`)."""
        gone = elsewhere.gone
        self._names = {service: queue.name for service, queue in gone.items()}
        self.places = {service: partial(place_in, queue) for service, queue in gone.items()}
        for owner, arrivals in owners.items():
            owner.staging.altering.look(self.places, arrivals)
        if self._look_after is not None:
            for queue in elsewhere.left:
                self._look_after(queue)

    def check(self, service: str) -> None:
        """Raise ServiceAltered (8468) when the service has left this queue (behaviour 79)."""
        if service in self._names:
            raise ServiceAltered(
                f"service {service!r} was moved from queue {self._queue.name!r} to queue {self._names[service]!r} "
                "while something of it was waited for; receive it there"
            )


def place_in(queue: Queue, group: bytes) -> Address:
    """Where a group that comes to a queue lives there: the same place for all of it, whoever sends it."""
    return queue.address(choose_home(group, queue.partitions, frozenset[int]()))
