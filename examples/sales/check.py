"""Checks, from the topics alone, that every order was received once, in order, and answered once.

The check shares only the decoder of headers with the fold. It keeps the counters and judges the records itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.envelope import HEADER, decode
from konverse.schemas.wire.records import NO_SEQUENCE, Envelope, Kind

READ_S = 30.0


@dataclass
class Verdict:
    """Counts and problems found in the topics."""

    received: int = 0
    replied: int = 0
    duplicates: int = 0
    """Records that were written again after a crash, which every reader drops."""
    conversations: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Nothing is missing, doubled or out of order."""
        return not self.problems


def check(bootstrap: str, orders: Queue, shop: Queue, sent: int) -> Verdict:
    """Judge a run that sent the orders 0 … sent-1 of a file."""
    verdict = Verdict()
    received = numbers(bootstrap, orders, verdict)
    replied = numbers(bootstrap, shop, verdict)
    verdict.conversations = len(received)
    verdict.received = sum(map(len, received.values()))
    verdict.replied = sum(map(len, replied.values()))
    once(verdict, "order", received, sent)
    once(verdict, "receipt", replied, sent)
    for conversation, got in received.items():
        if got != sorted(got):
            verdict.problems.append(f"conversation {conversation.hex()} received orders out of order: {got[:20]}")
        if replied.get(conversation, []) != got:
            verdict.problems.append(f"conversation {conversation.hex()} was not answered order by order")
    return verdict


def once(verdict: Verdict, what: str, found: dict[bytes, list[int]], sent: int) -> None:
    """Note which of the numbers 0 … sent-1 are missing or came more than once."""
    counts = [0] * sent
    for got in found.values():
        for number in got:
            counts[number] += 1
    missing = [number for number, count in enumerate(counts) if count == 0]
    doubled = [number for number, count in enumerate(counts) if count > 1]
    if missing:
        verdict.problems.append(f"{len(missing)} {what}s are missing, the first is {missing[0]}")
    if doubled:
        verdict.problems.append(f"{len(doubled)} {what}s came more than once, the first is {doubled[0]}")


def numbers(bootstrap: str, queue: Queue, verdict: Verdict) -> dict[bytes, list[int]]:
    """The numbers in the bodies of accepted messages, by conversation, in the order of the log."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    sequences: defaultdict[bytes, int] = defaultdict(int)
    for partition in range(queue.partitions):
        counters: dict[bytes, int] = {}
        for message in _records(bootstrap, queue.topic, partition):
            envelope = _envelope(message)
            if envelope is None:
                continue
            expected = counters.get(envelope.writer, 0)
            if envelope.counter != expected:
                verdict.duplicates += envelope.counter < expected
                continue
            counters[envelope.writer] = expected + 1
            if envelope.kind is not Kind.MESSAGE:
                continue
            if envelope.sequence not in {NO_SEQUENCE, sequences[envelope.conversation]}:
                verdict.problems.append(f"{queue.name}/{partition}@{message.offset()} has number {envelope.sequence}")
            sequences[envelope.conversation] += 1
            body = json.loads(message.value() or b"{}")
            if "number" in body:  # EndOfStream and the like have none
                found[envelope.conversation].append(body["number"])
    return dict(found)


def _envelope(message: Message) -> Envelope | None:
    pairs: Any = message.headers() or ()
    header = next((value for name, value in pairs if name == HEADER), None)
    try:
        return decode(header if isinstance(header, bytes) else b"")
    except MalformedRecord:
        return None


def _records(bootstrap: str, topic: str, partition: int) -> Iterator[Message]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "sales-check",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        while True:
            message = consumer.poll(READ_S)
            if message is None:
                raise TimeoutError(f"{topic}/{partition} could not be read")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the client's public name for it
                return
    finally:
        consumer.close()
