"""Receive, reply to each message, commit: the loop of every service, against the same loop with Kafka transactions."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from konverse.bridge.reader.reader import Reader
from tests.bench import conversations, fill
from tests.bench.clients import DEADLINE_S, consumer, create_topic, producer
from tests.bench.measure import Meter, latencies
from tests.bench.model import ROUNDS, WARM_UP_BATCHES, Case, Figures, Load, Place, Row, Run

MESSAGES_EACH_FROM: Final = 250
"""Conversations of a partition: a batch of 1,000 takes four messages of each, as from a backlog."""


def raw(place: Place, load: Load) -> Figures:
    """Consume, produce each record with its header, send the offsets, commit the transaction.

    The time of a commit includes `send_offsets_to_transaction`: a batch is durable only after both.
    """
    output = create_topic(place.bootstrap, f"{place.name}-out")
    source = consumer(place.bootstrap, place.name, isolation_level="read_committed")
    source.subscribe([place.name])
    target = producer(place.bootstrap, transactional_id=place.name, linger_ms=1)
    target.init_transactions(DEADLINE_S)

    def forward(messages: list[Message]) -> float:
        last: dict[int | None, Message] = {}
        target.begin_transaction()
        for m in messages:
            target.produce(output, m.value(), m.key(), headers=m.headers())
            last[m.partition()] = m
        before = time.perf_counter()
        offsets = [TopicPartition(place.name, number or 0, (m.offset() or 0) + 1) for number, m in last.items()]
        target.send_offsets_to_transaction(offsets, source.consumer_group_metadata())
        target.commit_transaction()
        return time.perf_counter() - before

    for _ in range(WARM_UP_BATCHES):
        forward(take(source, load.batch))
    with Meter() as meter:
        commits_s = [forward(take(source, load.batch)) for _ in range(load.messages // load.batch)]
    source.close()
    return meter.figures(load.messages) | latencies("commit", commits_s)


def take(source: Consumer, count: int) -> list[Message]:
    """Exactly `count` messages. A larger request would wait for the whole time-out."""
    deadline = time.monotonic() + DEADLINE_S
    messages = source.consume(count, 1.0)
    while len(messages) < count and time.monotonic() < deadline:
        messages += source.consume(count - len(messages), 1.0)
    for error in filter(None, map(Message.error, messages)):
        raise RuntimeError(f"a record was not read: {error.str()}")
    if len(messages) < count:
        raise TimeoutError(f"{len(messages)} of {count} records within {DEADLINE_S:g} s")
    return messages


def product(place: Place, load: Load) -> Figures:
    """Receive `load.batch` messages, reply to each, commit. The first WARM_UP_BATCHES are not timed."""
    messages_each = max(1, load.batch // MESSAGES_EACH_FROM)
    with (
        conversations.connect(place) as broker,
        broker.reader(conversations.QUEUE, batch=load.batch // messages_each, max_messages=messages_each) as reader,
    ):
        warm = reply_to(reader, WARM_UP_BATCHES * load.batch)
        commits = sum(owner.counters.commits for owner in reader.owners)
        with Meter() as meter:
            measured = reply_to(reader, load.with_warm_up - warm)
        commits = sum(owner.counters.commits for owner in reader.owners) - commits
        waits_ms = [ms for owner in reader.owners for ms in owner.counters.commit_waits_ms]
    figures = {"commit_p50_ms": median(waits_ms), "messages_per_commit": measured / max(1, commits)}
    return meter.figures(measured) | figures


def reply_to(reader: Reader, count: int) -> int:
    """Receive at least `count` messages, reply to each, and wait until everything is committed and delivered."""
    done = 0
    for transaction in reader:
        with transaction:
            for message in transaction:
                transaction.send(message.dialog, conversations.REPLY, message.body)
                done += 1
        if done >= count:
            break
    reader.settle()
    return done


def _case(batch: int, product_messages: int, raw_messages: int, *more: Row, rounds: int = ROUNDS) -> Case:
    rows = (Row(f"loop-{batch}", "rate", "msg/s"), *more)
    product_run = Run(product, Load(product_messages, batch), prepare=fill.queue)
    raw_run = Run(raw, Load(raw_messages, batch), prepare=fill.topic)
    return Case(rows, product_run, raw_run, rounds=rounds)


CASES: Final = (
    _case(1_000, 200_000, 200_000, Row("loop-1000-cpu", "caller_us", "us CPU/msg"), rounds=7),
    _case(100, 100_000, 20_000),
    _case(10, 50_000, 1_000),
    _case(
        1,
        10_000,
        100,
        Row("loop-1-rate", "rate", "msg/s"),
        Row("loop-1-commit", "commit_p50_ms", "ms, p50"),
    ),
)
