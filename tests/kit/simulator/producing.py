"""The two kinds of producers that a driver may have, between the product's effects and the simulated Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from konverse.schemas.identifiers import Address

from .choices import Choices
from .kafka import Kafka, Log, Outcome, Payload, Request

WINDOW_BATCHES: Final = 3
"""Batches of an idempotent producer that are on their way to one partition."""

LogOf = Callable[[Address], Log]


class Acknowledgement(NamedTuple):
    """One record is in the log."""

    address: Address
    counter: int
    offset: int


class _Batch:
    __slots__ = ("done", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False


class IdempotentProducer:
    """In order and without doubles per partition while it lives; says when everything it was given is in the logs."""

    def __init__(self, kafka: Kafka, choices: Choices, log_of: LogOf) -> None:
        self.kafka = kafka
        self.failed = False
        """It gave something up; only a new producer helps."""
        self._choices = choices
        self._log_of = log_of
        self._pid = kafka.new_pid()
        self._sequences: dict[Address, int] = {}
        self._lanes: dict[Address, deque[_Batch]] = {}

    @property
    def empty(self) -> bool:
        """Everything that it was given is in the logs, or it has failed."""
        return not self._lanes

    def hand(self, address: Address, first: int, payloads: Sequence[Payload]) -> None:
        """Take consecutive records; the counter is for producers that report each."""
        log = self._log_of(address)
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._lanes[address] = deque()
        size = (len(payloads), 1, 3)[self._choices.choose(3)] if len(payloads) > 1 else 1
        for start in range(0, len(payloads), size):
            sequence = self._sequences.get(address, 0)
            self._sequences[address] = sequence + 1
            lane.append(_Batch(Request(log, payloads[start : start + size], self._pid, sequence)))

    def transmit(self) -> None:
        """One exchange with Kafka."""
        choices = self._choices
        address = choices.pick(list(self._lanes))
        lane = self._lanes[address]
        waiting = [batch for batch in list(lane)[:WINDOW_BATCHES] if not batch.done]
        overtaking = not self.kafka.calm and choices.chance(self.kafka.swarm.reordered)
        batch = waiting[choices.choose(len(waiting)) if overtaking else 0]
        if self.kafka.send(batch.request) is Outcome.ACKNOWLEDGED:
            batch.done = True
        elif not self.kafka.calm and choices.chance(250):
            self.failed = True
        while lane and lane[0].done:
            lane.popleft()
        if not lane:
            del self._lanes[address]

    def unsent(self) -> list[Request]:
        """What it would send next."""
        return [batch.request for lane in self._lanes.values() for batch in list(lane)[:WINDOW_BATCHES]]

    def sent(self) -> list[Request]:
        """What may still be on its way."""
        return self.unsent()


class LooseProducer:
    """Each record may be lost, doubled, overtaken or late; says which acknowledgements came."""

    def __init__(self, kafka: Kafka, choices: Choices, log_of: LogOf) -> None:
        self.kafka = kafka
        self.failed = False
        self.acknowledgements: deque[Acknowledgement] = deque()
        self._choices = choices
        self._log_of = log_of
        self._waiting: list[tuple[Address, int, Request]] = []
        self._sent: list[Request] = []

    @property
    def empty(self) -> bool:
        """Nothing is left to hand to Kafka."""
        return not self._waiting

    def hand(self, address: Address, first: int, payloads: Sequence[Payload]) -> None:
        """Take consecutive records whose counters start at `first`."""
        log = self._log_of(address)
        self._waiting += [(address, first + i, Request(log, [payload])) for i, payload in enumerate(payloads)]

    def transmit(self) -> None:
        """One exchange with Kafka."""
        choices = self._choices
        overtaking = not self.kafka.calm and len(self._waiting) > 1 and choices.chance(self.kafka.swarm.reordered)
        address, counter, request = self._waiting.pop(choices.choose(min(len(self._waiting), 4)) if overtaking else 0)
        self._sent.append(request)
        outcome = self.kafka.send(request)
        if outcome is Outcome.ACKNOWLEDGED:
            copy = choices.pick(request.landed)
            self.acknowledgements.append(Acknowledgement(address, counter, copy.offset))
        elif outcome is Outcome.LATE:
            request.on_landed = lambda record: self.acknowledgements.append(
                Acknowledgement(address, counter, record.offset)
            )

    def next_acknowledgement(self) -> Acknowledgement:
        """One that came; not always the first."""
        waiting = self.acknowledgements
        if len(waiting) > 1 and self._choices.chance(self.kafka.swarm.reordered):
            waiting.rotate(-self._choices.choose(len(waiting)))
        return waiting.popleft()

    def unsent(self) -> list[Request]:
        """What it would send next."""
        return [request for _, _, request in self._waiting[:4]]

    def sent(self) -> list[Request]:
        """What may still be on its way."""
        return self._sent


Producer = IdempotentProducer | LooseProducer


def abandon(producer: Producer, choices: Choices) -> None:
    """The process is gone or has replaced it. What it was about to send may still be on its way."""
    for request in producer.sent():
        request.abandoned = True
    kafka = producer.kafka
    for request in producer.unsent():
        request.abandoned = True
        if not kafka.calm and choices.chance(kafka.swarm.delayed):
            kafka.late.append(request)
