"""Kafka dies or hangs under load: readers and senders continue without help, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.destinations import ANSWER_S
from konverse.bridge.kafka.log_reader import LogReader
from konverse.deploy import LocalStack
from konverse.schemas.errors import KafkaUnavailable, OutcomeUnknown, TopicMismatch
from tests.kit.oracle import Proof, prove_exactly_once
from tests.kit.pausing import paused
from tests.kit.shop import ORDER, begin, connected, open_shop, queue_of, standing, until
from tests.kit.topics import create, delete
from tests.kit.workers import Job, Worker

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]

RECOVERED_WITHIN_S = 90.0
"""Far longer than necessary, because the machine may be busy. The real time is printed."""


class Traffic:
    """Orders on a few dialogs, a worker process that answers them, and a reader here for the answers."""

    def __init__(self, stack: LocalStack, broker: Broker, job: Job) -> None:
        self.bootstrap = stack.bootstrap
        self.broker = broker
        self.worker = Worker(job)
        self.dialogs = [begin(broker) for _ in range(8)]
        self.sent: dict[bytes, list[bytes]] = {dialog.id.bytes: [] for dialog in self.dialogs}
        self.count = 0
        self.answers = 0
        self.finished = False
        self._pool = ThreadPoolExecutor(1)
        self._taking = self._pool.submit(self._take)

    def _take(self) -> None:
        with self.broker.reader("Shop") as self.reader:
            for transaction in self.reader:
                with transaction:
                    self.answers += len(list(transaction))
                if self.count and self.answers >= self.count and self.finished:
                    return

    def send(self, count: int) -> None:
        """Send `count` orders on the dialogs in turn."""
        for _ in range(count):
            dialog = self.dialogs[self.count % len(self.dialogs)]
            body = b"order %d" % self.count
            dialog.send(ORDER, body)
            self.sent[dialog.id.bytes].append(body)
            self.count += 1

    def release(self) -> None:
        """Release the order that the worker holds."""
        Path(self.worker.job.release).touch()

    def handled_since(self, moment: float) -> Any:
        """The worker's first execution after that moment, if there is one."""
        return next((event for event in self.worker.said("handled") if event["at"] > moment), None)

    def finish(self) -> Proof:
        """Send the last order, wait for all answers, end everything and prove exactly once."""
        self.finished = True
        self.send(1)
        self.broker.flush(RECOVERED_WITHIN_S)
        try:
            self._taking.result(RECOVERED_WITHIN_S)
        except TimeoutError:
            pytest.fail(
                f"{self.answers} answers came to {self.count} orders; {standing(self.reader)}; the worker said "
                f"{self.worker.errors[-3_000:]}"
            )
        self.worker.process.kill()
        return prove_exactly_once(
            self.bootstrap, queue_of(self.broker, "Orders"), queue_of(self.broker, "Shop"), self.sent
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.__exit__(None, None, None)
        self._pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def traffic(own_stack: LocalStack, database: str, tmp_path: Path) -> Iterator[Traffic]:
    settings = {"redis": own_stack.redis_url, "append_timeout_s": 3, "send_timeout_s": RECOVERED_WITHIN_S}
    job = Job(
        own_stack.bootstrap,
        database,
        str(tmp_path / "diary"),
        batch=5,
        idle_s=None,
        hold_on="order 40",
        release=str(tmp_path / "release"),
        settings=settings,
    )
    with connected(own_stack.bootstrap, database, **settings) as broker:
        open_shop(broker, partitions=2)
        with Traffic(own_stack, broker, job) as made:
            yield made


def test_senders_and_workers_recover_after_the_broker_was_killed_and_restarted(
    own_stack: LocalStack, traffic: Traffic
) -> None:
    traffic.send(300)
    traffic.release()
    traffic.worker.wait_for("handled", 100)
    own_stack.kill("kafka")
    traffic.send(300)  # no caller gets an error while Kafka is away
    own_stack.restart("kafka")
    back = time.time()
    until(lambda: traffic.handled_since(back), "the worker goes on", RECOVERED_WITHIN_S)
    print(f"the worker went on {traffic.handled_since(back)['at'] - back:.2f} s after Kafka answered again")
    traffic.send(299)
    proof = traffic.finish()
    print(f"all 900 orders were answered {time.time() - back:.2f} s after Kafka answered again; {proof}")
    assert (proof.messages, proof.replies) == (900, 900)


def test_senders_and_workers_recover_after_the_broker_hung_longer_than_their_timeouts(
    own_stack: LocalStack, traffic: Traffic
) -> None:
    traffic.send(300)
    traffic.worker.wait_for("holds")
    with paused(own_stack.pids["kafka"]):
        traffic.release()  # the held order is committed to a Kafka that hangs
        traffic.send(300)
        time.sleep(8)  # the fault itself: longer than append_timeout_s and the group's session
        until(lambda: "unknown outcome" in traffic.worker.errors, "the worker gives up its commit", RECOVERED_WITHIN_S)
    back = time.time()
    traffic.send(299)
    until(lambda: traffic.handled_since(back), "the worker goes on", RECOVERED_WITHIN_S)
    print(f"the worker went on {traffic.handled_since(back)['at'] - back:.2f} s after Kafka woke up")
    proof = traffic.finish()
    print(f"all 900 orders were answered {time.time() - back:.2f} s after Kafka woke up; {proof}")
    assert (proof.messages, proof.replies) == (900, 900)
    assert proof.claims > 2, "no owner stepped down: the broker did not hang long enough"


def test_no_flush_succeeds_while_kafka_does_not_say_that_the_topic_is_the_queues(
    own_stack: LocalStack, database: str
) -> None:
    """A new topic of the same name has acknowledged the message. Then Kafka hangs, before the id can be checked."""
    admin = AdminClient({"bootstrap.servers": own_stack.bootstrap})
    with connected(own_stack.bootstrap, database, send_timeout_s=RECOVERED_WITHIN_S) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"received")
        broker.flush()
        topic = queue_of(broker, "Orders").topic
        delete(admin, topic)
        create(admin, topic, 1, {})
        with closing(Consumer({"bootstrap.servers": own_stack.bootstrap, "group.id": database})) as consumer:
            dialog.send(ORDER, b"to a topic of the same name")
            place = TopicPartition(topic, 0)
            until(lambda: consumer.get_watermark_offsets(place, timeout=10)[1], "that topic has the message")
        with paused(own_stack.pids["kafka"]):
            started = time.monotonic()
            with pytest.raises((OutcomeUnknown, TopicMismatch)):
                broker.flush(4)
            assert time.monotonic() - started < 4 + ANSWER_S
        with pytest.raises(TopicMismatch, match=f"topic {topic} was deleted and created again"):
            broker.flush()


def test_a_sender_continues_after_a_broker_restart(own_stack: LocalStack, database: str) -> None:
    with connected(own_stack.bootstrap, database, send_timeout_s=RECOVERED_WITHIN_S) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for number in range(500):
            dialog.send(ORDER, b"%d" % number)
        own_stack.kill("kafka")
        for number in range(500, 1_000):
            dialog.send(ORDER, b"%d" % number)
        fresh = begin(broker)  # its BEGIN cannot count before Kafka is back
        fresh.send(ORDER, b"held")
        with pytest.raises(OutcomeUnknown, match="has not acknowledged message 999"):
            dialog.flush(0.1)
        own_stack.restart("kafka")
        back = time.monotonic()
        dialog.send(ORDER, b"1000")
        dialog.flush()
        print(f"the sender was acknowledged {time.monotonic() - back:.2f} s after Kafka answered again")
        broker.flush()
        bodies: dict[bytes, list[bytes]] = {}
        with broker.reader("Orders", timeout=3) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        bodies.setdefault(message.dialog.conversation, []).append(message.body)
        assert bodies == {dialog.id.bytes: [b"%d" % n for n in range(1_001)], fresh.id.bytes: [b"held"]}
        broker.admin.create_message_type("the catalog works too")


def test_a_client_that_has_failed_to_read_is_replaced(own_stack: LocalStack, database: str) -> None:
    """After a broker hung, librdkafka may answer "unknown partition" as long as the client lives."""
    with connected(own_stack.bootstrap, database) as broker:
        open_shop(broker)
        queue = queue_of(broker, "Orders")
        with closing(LogReader(broker._kafka)) as reader:
            assert reader.ends(queue.topic, 0) == (0, 0)
            reader._consumer = _Confused(reader._consumer)  # type: ignore[assignment]
            with pytest.raises(KafkaUnavailable, match=f"the ends of {queue.topic}/0 cannot be read"):
                reader.ends(queue.topic, 0)
            assert reader.ends(queue.topic, 0) == (0, 0)


class _Confused:
    """A consumer that no longer knows its partitions."""

    def __init__(self, inner: Consumer) -> None:
        self.close = inner.close

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
