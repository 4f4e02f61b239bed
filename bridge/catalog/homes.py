"""Applies ALTER SERVICE … ON QUEUE to one queue: conversations follow their service to its new queue (behaviour 19)."""

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
"""Interval at which a queue that services have left is checked for late arrivals."""


class MovedServices(NamedTuple):
    """Services that have changed their queue, according to the catalog."""

    gone: Mapping[str, Queue]
    """Service that has left the queue being read -> its new queue."""
    left: Sequence[Queue]
    """Former queues of services that are on the queue being read."""


class ServiceMoves:
    """Tracks, for one queue, the services that have left it and the former queues of services that have come to it."""

    def __init__(self, rules: Rules, queue: Queue) -> None:
        """Reads the catalog. Raises Unavailable."""
        self._judge = rules.judge
        self._look_after = rules.look_after
        self._queue = queue
        self.places: dict[str, Place] = {}
        """Service that has left this queue -> function from a group id to its new address."""
        self._names: dict[str, str] = {}
        self.update(self.read(), {})

    def read(self) -> MovedServices:
        """Read the catalog. Raises Unavailable."""
        judge = self._judge
        if judge is None:
            return MovedServices({}, ())
        return MovedServices(dict(judge.departed_services(self._queue)), self._left(judge))

    def _left(self, judge: CatalogJudge) -> Sequence[Queue]:
        return () if self._look_after is None else judge.former_queues(self._queue)

    def update(self, moved: MovedServices, owners: Mapping[Owner, Mapping[int, Arrival]]) -> None:
        """Have these owners move the conversations of departed services (`AlteredServices.find`).

        `owners` gives, per owner, the conversations that had arrived from elsewhere before the catalog was read. Later
        arrivals stay until the next reading.
        """
        gone = moved.gone
        self._names = {service: queue.name for service, queue in gone.items()}
        self.places = {service: partial(place_in, queue) for service, queue in gone.items()}
        for owner, arrivals in owners.items():
            owner.staging.altering.find(self.places, arrivals)
        if self._look_after is not None:
            for queue in moved.left:
                self._look_after(queue)

    def check(self, service: str) -> None:
        """Raise ServiceAltered (8468) when the service has left this queue (behaviour 79)."""
        if service in self._names:
            raise ServiceAltered(
                f"service {service!r} was moved from queue {self._queue.name!r} to queue {self._names[service]!r} "
                "while this call waited for its messages; receive them there"
            )


def place_in(queue: Queue, group: bytes) -> Address:
    """The partition where a group lives after its move to a queue: the same for every sender of the group."""
    return queue.address(choose_home(group, queue.partitions, frozenset[int]()))
