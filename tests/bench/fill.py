"""Fills topics and queues before the clock starts, in another process: the `prepare` functions of runs."""

from __future__ import annotations

import os
from typing import Final

from confluent_kafka import KafkaError, Message

from tests.bench import conversations
from tests.bench.clients import DEADLINE_S, PARTITIONS, PRODUCER, Headers, checked, create_topic, producer
from tests.bench.model import Figures, Load, Place

IN_FLIGHT_MAX: Final = PRODUCER["queue.buffering.max.messages"] // 2


def topic(place: Place, load: Load) -> Figures:
    """Create a plain topic `place.name` with `load.with_warm_up` records of one header each."""
    create_topic(place.bootstrap, place.name)
    sender = producer(place.bootstrap)
    keys = [os.urandom(16) for _ in range(load.conversations)]
    body = os.urandom(load.body_bytes)
    headers: Headers = {"konverse": os.urandom(load.header_bytes)}

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        checked(error)

    for i in range(load.with_warm_up):
        key = keys[i % load.conversations]
        sender.produce(place.name, body, key, i % PARTITIONS, on_delivery, None, 0, headers)
        if not i % 1_000:
            sender.poll(0)
        while len(sender) > IN_FLIGHT_MAX:
            sender.poll(0.01)
    if sender.flush(DEADLINE_S):
        raise TimeoutError(f"{place.name} was not filled within {DEADLINE_S:g} s")
    return {}


def queue(place: Place, load: Load) -> Figures:
    """Create a queue for `place` with `load.with_warm_up` messages of `load.conversations` conversations."""
    conversations.filled(place, load)
    return {}
