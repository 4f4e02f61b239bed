"""An owner's producer of outputs and what becomes of them: the driver between `Emit` and the two events about it."""

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
    """The outputs of one owner that were handed over and do not count yet."""

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
        """Something is left to hand to Kafka."""
        return not self._producer.empty

    @property
    def outstanding(self) -> bool:
        """The owner has to be told of something that it emitted."""
        return bool(self._handed)

    @property
    def news(self) -> bool:
        """There may be something to tell it."""
        return bool(self._handed) and self._producer.empty

    def emit(self, effect: Emit) -> None:
        """Take what the owner emits."""
        self._handed[effect.address] = None
        self._producer.hand(effect.address, records_of(effect))

    def transmit(self) -> ProducerReplaced | None:
        """One exchange with Kafka; an event when the producer failed by it."""
        self._producer.transmit()
        return self.replace() if self._producer.failed else None

    def settle(self) -> Drained:
        """What to tell the owner when the producer ran empty."""
        addresses = list(self._handed)
        self._handed.clear()
        return Drained(addresses)

    def replace(self) -> ProducerReplaced:
        """A new producer; the old one's requests may still be on their way."""
        world = self._world
        world.sometimes.happened("producer replaced")
        refused = None
        if not world.kafka.calm and self._handed and world.choices.chance(world.swarm.refused):
            refused = world.choices.pick(list(self._handed))
            world.sometimes.happened("producer refused")
        self.abandon()
        return ProducerReplaced(refused)

    def abandon(self) -> None:
        """Nobody waits for what was handed over any more."""
        abandon(self._producer, self._world.choices)
        self._producer = self._new_producer()
        self._handed.clear()
