"""The producer of an owner's outputs: the driver's part between `Emit` and the events that report on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Drained, ProducerReplaced
from konverse.schemas.identifiers import Address
from tests.kit.builders import records_of

from .producing import IdempotentProducer, LooseProducer, Producer, abandon

if TYPE_CHECKING:
    from .world import World


class Outputs:
    """Outputs of one owner that were handed over and are not acknowledged."""

    def __init__(self, world: World, *, loose: bool) -> None:
        self._world = world
        self._loose = loose
        self._handed: dict[Address, None] = {}
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        world = self._world
        kind = LooseProducer if self._loose else IdempotentProducer
        return kind(world.kafka, world.choices, world.log_of)

    @property
    def waiting(self) -> bool:
        """Records are left to send."""
        return not self._producer.empty

    @property
    def outstanding(self) -> bool:
        """Whether the owner waits for the outcome of an emission."""
        return bool(self._handed)

    @property
    def news(self) -> bool:
        """Whether the outcome of an emission can be reported."""
        return bool(self._handed) and self._producer.empty

    def emit(self, effect: Emit) -> None:
        """Take an emission of the owner."""
        self._handed[effect.address] = None
        self._producer.hand(effect.address, records_of(effect))

    def transmit(self) -> ProducerReplaced | None:
        """One exchange with Kafka. Returns an event when the producer failed."""
        self._producer.transmit()
        return self.replace() if self._producer.failed else None

    def settle(self) -> Drained:
        """Report the emissions whose records are all acknowledged."""
        addresses = list(self._handed)
        self._handed.clear()
        return Drained(addresses)

    def replace(self) -> ProducerReplaced:
        """Make a new producer. Requests of the old one may still arrive."""
        world = self._world
        world.sometimes.happened("producer replaced")
        refused = None
        if not world.kafka.calm and self._handed and world.choices.chance(world.swarm.refused):
            refused = world.choices.pick(list(self._handed))
            world.sometimes.happened("producer refused")
        self.abandon()
        return ProducerReplaced(refused)

    def abandon(self) -> None:
        """Stop waiting for everything handed over."""
        abandon(self._producer, self._world.choices)
        self._producer = self._new_producer()
        self._handed.clear()
