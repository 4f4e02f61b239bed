"""Sends messages of many conversations, each delivery checked, until all are acknowledged."""

from __future__ import annotations

import os
from typing import Final

from confluent_kafka import KafkaError, Message

from tests.bench import conversations
from tests.bench.clients import DEADLINE_S, PARTITIONS, Headers, create_topic, producer
from tests.bench.measure import Meter
from tests.bench.model import Case, Figures, Load, Place, Row, Run

WARM_UP_MESSAGES: Final = 4_000


def raw(place: Place, load: Load) -> Figures:
    """A plain idempotent producer, with a header of the same size and a Python delivery callback for each message."""
    topic = create_topic(place.bootstrap, place.name)
    sender = producer(place.bootstrap)
    produce, poll = sender.produce, sender.poll
    keys = [os.urandom(16) for _ in range(load.conversations)]
    body = os.urandom(load.body_bytes)
    headers: Headers = {"konverse": os.urandom(load.header_bytes)}
    delivered = 0
    failed: KafkaError | None = None

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        elif failed is None:
            failed = error

    def send(messages: int) -> int:
        for i in range(messages):
            produce(topic, body, keys[i % load.conversations], i % PARTITIONS, on_delivery, None, 0, headers)
            if not i % 1_000:
                poll(0)
        return sender.flush(DEADLINE_S)

    send(WARM_UP_MESSAGES)
    delivered = 0
    with Meter() as meter:
        left = send(load.messages)
    if left or failed or delivered != load.messages:
        raise RuntimeError(f"{delivered} of {load.messages} delivered, {left} left, first error: {failed}")
    return meter.figures(load.messages)


def product(place: Place, load: Load) -> Figures:
    """Send `load.messages` over `load.conversations` dialogs in turn, until all are acknowledged."""
    with conversations.connect(place) as broker:
        conversations.create(broker)
        opened = conversations.dialogs(broker, load.conversations)
        conversations.send_in_turn(opened, WARM_UP_MESSAGES, load.body_bytes)
        broker.flush()
        with Meter() as meter:
            conversations.send_in_turn(opened, load.messages, load.body_bytes)
            broker.flush()
    return meter.figures(load.messages)


def _case(body_bytes: int) -> Case:
    load = Load(messages=200_000, body_bytes=body_bytes)
    row = Row(f"send-{body_bytes}", "rate", "msg/s")
    return Case((row,), Run(product, load), Run(raw, load), rounds=9)


CASES: Final = (_case(100), _case(1_024))
