"""The producers of drivers, between the product's effects and the simulated Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from konverse.schemas.identifiers import Address

from .choices import Choices
from .kafka import Kafka, Log, Outcome, Payload, Request

WINDOW_BATCHES: Final = 3
"""Batches of an idempotent producer in flight to one partition."""

PATIENCE_STEPS: Final = 5
"""Steps for which a producer waits for late answers."""

LogOf = Callable[[Address], Log]


class _Batch:
    __slots__ = ("done", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False


class IdempotentProducer:
    """Keeps order and drops duplicates per partition while it lives. Empty when all its records are in the logs."""

    def __init__(self, kafka: Kafka, choices: Choices, log_of: LogOf) -> None:
        self.kafka = kafka
        self.failed = False
        """It gave up on a request. Only a new producer helps."""
        self._choices = choices
        self._log_of = log_of
        self._pid = kafka.new_pid()
        self._sequences: dict[Address, int] = {}
        self._lanes: dict[Address, deque[_Batch]] = {}

    @property
    def empty(self) -> bool:
        """All its records are in the logs."""
        return not self._lanes

    def hand(self, address: Address, payloads: Sequence[Payload]) -> None:
        """Take consecutive records."""
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
        """Requests that it would send next."""
        return [batch.request for lane in self._lanes.values() for batch in list(lane)[:WINDOW_BATCHES]]

    def sent(self) -> list[Request]:
        """Requests that may still arrive."""
        return self.unsent()


class LooseProducer:
    """Loses, duplicates, reorders or delays records. Then it fails, and the disorder stays in the logs.

    The product has no such producer. An idempotent producer can leave such disorder too, but rarely: when brokers
    forget the producer's id.
    """

    def __init__(self, kafka: Kafka, choices: Choices, log_of: LogOf) -> None:
        self.kafka = kafka
        self.failed = False
        self._choices = choices
        self._log_of = log_of
        self._waiting: list[tuple[Address, Request]] = []
        self._handed: dict[Address, list[Request]] = {}
        """Records not known to be in the logs, in the order of their counters."""
        self._awaited: set[int] = set()
        """Identities of requests whose outcome is unknown."""
        self._patience = PATIENCE_STEPS

    @property
    def empty(self) -> bool:
        """All its records are in the logs, in order."""
        return not self._handed

    def hand(self, address: Address, payloads: Sequence[Payload]) -> None:
        """Take consecutive records."""
        log = self._log_of(address)
        requests = [Request(log, [payload]) for payload in payloads]
        self._waiting += [(address, request) for request in requests]
        self._handed.setdefault(address, []).extend(requests)
        self._patience = PATIENCE_STEPS

    def transmit(self) -> None:
        """One exchange with Kafka."""
        if self._waiting:
            self._send()
        if not self._waiting:
            self._settle()

    def _send(self) -> None:
        choices = self._choices
        overtaking = not self.kafka.calm and len(self._waiting) > 1 and choices.chance(self.kafka.swarm.reordered)
        _, request = self._waiting.pop(choices.choose(min(len(self._waiting), 4)) if overtaking else 0)
        outcome = self.kafka.send(request)
        if outcome is not Outcome.ACKNOWLEDGED:
            self._awaited.add(id(request))
        if outcome is Outcome.LATE:
            request.on_landed = lambda _record: self._awaited.discard(id(request))

    def _settle(self) -> None:
        if self._awaited and self._patience and not self.kafka.calm:
            self._patience -= 1
            return
        firsts = [[request.landed[0].offset for request in lane if request.landed] for lane in self._handed.values()]
        self.failed = bool(self._awaited) or any(offsets != sorted(offsets) for offsets in firsts)
        if not self.failed:
            self._handed.clear()

    def unsent(self) -> list[Request]:
        """Requests that it would send next."""
        return [request for _, request in self._waiting[:4]]

    def sent(self) -> list[Request]:
        """Requests that may still arrive."""
        return [request for lane in self._handed.values() for request in lane]


Producer = IdempotentProducer | LooseProducer


def abandon(producer: Producer, choices: Choices) -> None:
    """Abandon a producer whose process is gone or has replaced it. Its next requests may still arrive."""
    for request in producer.sent():
        request.abandoned = True
    kafka = producer.kafka
    for request in producer.unsent():
        request.abandoned = True
        if not kafka.calm and choices.chance(kafka.swarm.delayed):
            kafka.late.append(request)
