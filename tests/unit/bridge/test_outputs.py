"""Outputs are delivered when Kafka has them in the topics of their queues, not in other topics of these names."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.catalog.destinations import Destinations
from konverse.bridge.kafka import clients
from konverse.bridge.owner import outputs as module
from konverse.bridge.owner.outputs import Outputs
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Drained, ProducerReplaced
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Address
from tests.kit import until
from tests.kit.builders import identifier

OURS, OTHER = identifier("the topic of the queue"), identifier("a topic of the same name")
ORDERS = Queue("Orders", "k.d.Orders", "queue", 1, identifier("incarnation"), OURS, OURS)
AGAIN = Queue("Orders", "k.d.Orders", "queue", 1, identifier("another incarnation"), OTHER, OTHER)
RECEIPTS = Queue("Receipts", "k.d.Receipts", "queue", 1, identifier("incarnation"), OTHER, OTHER)
ADDRESS = ORDERS.address(0)
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))  # a name for librdkafka's own code
NONE = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


class World:
    """One owner that emits, a producer that delivers at once, and Kafka's answers as the test sets them."""

    def __init__(self) -> None:
        self.identifier: bytes | Exception = OURS
        self.silent = False
        self.asked: list[Future[Any]] = []
        self.steps: list[Any] = []
        self.produced = 0
        self.stuck = 0
        """Number of records that stay in the producer, which has no broker then."""
        self.queue: Queue | None = ORDERS
        self.get_known: Queue | None = ORDERS
        self.unread: Exception | None = None
        owner: Any = SimpleNamespace()
        self.owner = owner
        kafka: Any = SimpleNamespace(
            admin=self,
            data_producer=lambda **_: self,
            is_deserted=self.is_deserted,
            words=lambda error, _need: error.args[0].str(),
        )
        self.outputs = Outputs(kafka, {0: owner}, self.step, Destinations(kafka, self.catalog))
        self.emit()

    @property
    def catalog(self) -> Any:
        def queues() -> dict[str, Queue]:
            return {queue.topic: queue for queue in (self.get_known, RECEIPTS) if queue is not None}

        def refresh() -> None:
            if self.unread is not None:
                raise self.unread
            self.get_known = self.queue

        return SimpleNamespace(queues=queues, refresh=refresh)

    def emit(self) -> None:
        run: Any = SimpleNamespace(key=b"", bodies=[b"1"], headers=lambda counters: [b""])
        self.outputs.add(self.owner, Emit(ADDRESS, 0, [run]))

    def step(self, _owner: Any, event: Any) -> None:
        self.steps.append(event)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        self.asked = [*answers.values()]
        if not self.silent:
            self.answer()
        return answers

    def answer(self) -> None:
        for answer in self.asked:
            if isinstance(self.identifier, Exception):
                answer.set_exception(self.identifier)
            else:
                answer.set_result(described(self.identifier))

    # the producer

    def produce(self, *_: Any) -> None:
        self.produced += 1

    def poll(self, _wait_s: float) -> int:
        return 0

    def purge(self) -> None: ...

    def flush(self, _wait_s: float) -> int:
        return 0

    def __len__(self) -> int:
        return self.stuck

    def is_deserted(self, _client: Any, _topic: str) -> bool:
        return self.stuck > 0

    def pump(self, times: int = 3) -> list[Any]:
        for _ in range(times):
            self.outputs.pump()
        steps, self.steps = self.steps, []
        return steps


def described(identifier: bytes) -> Any:
    high, low = (int.from_bytes(identifier[at : at + 8], "big", signed=True) for at in (0, 8))
    uuid = SimpleNamespace(get_most_significant_bits=lambda: high, get_least_significant_bits=lambda: low)
    return SimpleNamespace(topic_id=uuid)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "WATCH_EVERY_S", 0.0)
    return World()


def test_outputs_count_when_kafka_says_that_the_topic_is_the_queues(world: World) -> None:
    world.silent = True
    assert world.pump() == []
    world.answer()
    assert world.pump() == [Drained([ADDRESS])]


def test_nothing_is_asked_while_nothing_is_sent(world: World) -> None:
    world.pump()
    world.asked.clear()
    world.pump()
    assert not world.asked


def test_without_an_answer_kafka_is_asked_again(world: World) -> None:
    world.identifier = TIMED_OUT
    assert world.pump() == []
    world.identifier = OURS
    assert world.pump() == [Drained([ADDRESS])]
    assert world.produced == 1


@pytest.mark.parametrize("identifier", [OTHER, NONE], ids=["made again", "deleted"])
def test_outputs_to_a_replaced_topic_are_withheld_and_resent_when_the_topic_matches_again(
    world: World, identifier: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world.identifier = identifier
    assert world.pump(10) == []
    world.emit()
    assert world.pump(10) == []
    assert world.produced == 1  # no further outputs go there
    assert [message[:33] for message in caplog.messages] == ["outputs to k.d.Orders/0 wait: top"]
    assert "drop_queue" in caplog.text
    world.identifier = OURS
    assert world.pump(1) == [ProducerReplaced(None)]
    world.emit()
    assert world.pump() == [Drained([ADDRESS])]


@pytest.mark.parametrize("queue", [None, AGAIN], ids=["dropped", "dropped and created again"])
def test_withheld_outputs_stop_waiting_when_their_queue_is_dropped(world: World, queue: Queue | None) -> None:
    world.identifier = OTHER
    assert world.pump() == []
    world.queue = queue
    assert world.pump() == [Drained([ADDRESS])]


def test_a_recreated_topic_does_not_stop_outputs_to_other_destinations(world: World) -> None:
    world.identifier = OTHER
    assert astray(world, RECEIPTS.address(0)) == [Drained([RECEIPTS.address(0)])]
    assert world.produced == 2


def astray(world: World, elsewhere: Address) -> list[Any]:
    world.pump()
    run: Any = SimpleNamespace(key=b"", bodies=[b"1"], headers=lambda counters: [b""])
    world.outputs.add(world.owner, Emit(elsewhere, 0, [run]))
    return world.pump()


@pytest.mark.parametrize(
    "elsewhere",
    [replace(ADDRESS, topic="payments"), replace(ADDRESS, topic="k.d.Gone"), replace(ADDRESS, partition=1)],
    ids=["of another application", "of a queue that was dropped", "of no such partition"],
)
def test_an_output_without_a_destination_queue_is_acknowledged_and_not_written(
    world: World, elsewhere: Address, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the partition would never finish, or a stranger could make its owner write to any topic."""
    assert astray(world, elsewhere) == [Drained([elsewhere])]
    assert world.produced == 1
    assert astray(world, elsewhere) == [Drained([elsewhere])]
    assert [message.split(" was dropped")[0] for message in caplog.messages] == [
        f"an output to {elsewhere.topic}/{elsewhere.partition}"
    ]


def test_an_output_to_a_new_queue_waits_until_the_catalog_is_read(world: World) -> None:
    world.get_known = None  # its creation is not known yet
    assert world.pump(1) == [ProducerReplaced(None)]
    assert world.produced == 0
    world.emit()
    assert world.pump() == [Drained([ADDRESS])]
    assert world.produced == 1


def test_nothing_counts_as_astray_while_the_catalog_cannot_be_read(world: World) -> None:
    world.pump()
    world.unread = KafkaUnavailable("away")
    assert astray(world, replace(ADDRESS, topic="k.d.New")) == []
    world.unread = None
    assert world.pump() == [Drained([replace(ADDRESS, topic="k.d.New")])]


class Interrupted(World):
    """The first call of `method` of the producer is interrupted. The client drops the report that it dispatches."""

    def __init__(self, method: str, error: BaseException) -> None:
        super().__init__()
        self.errors = [error]
        setattr(self, method, self.interrupt)

    def interrupt(self, *_: Any) -> int:
        if self.errors:
            raise self.errors.pop()
        return 0


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("method", ["poll", "produce"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemError("returned NULL")], ids=["Ctrl-C", "in a callback"])
def test_outputs_whose_delivery_was_interrupted_are_sent_again(method: str, error: BaseException) -> None:
    """The report of a refusal may be lost, so the empty producer does not prove that Kafka has everything."""
    world = Interrupted(method, error)
    with pytest.raises(type(error)):
        world.pump()
    assert world.pump() == [ProducerReplaced(None)]
    world.emit()
    assert world.pump() == [Drained([ADDRESS])]


@pytest.mark.usefixtures("world")
def test_outputs_are_sent_again_when_their_replacement_was_interrupted() -> None:
    world = Interrupted("purge", KeyboardInterrupt())
    world.pump(1)
    world.outputs._refusal = (ADDRESS.topic, ADDRESS.partition)
    with pytest.raises(KeyboardInterrupt):
        world.pump()
    assert world.pump() == [ProducerReplaced(None)]


@pytest.mark.usefixtures("world")
def test_a_producer_that_dies_while_an_output_waits_for_room_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Interrupted("poll", KafkaException(KafkaError(KafkaError._FATAL)))
    full = [BufferError("full")]

    def produce(*_: Any) -> None:
        if full:
            raise full.pop()

    monkeypatch.setattr(world, "produce", produce)
    assert world.pump() == [ProducerReplaced(ADDRESS)]


def test_outputs_of_a_producer_that_has_lost_its_brokers_are_sent_again_by_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for ever: its records have no time-out."""
    monkeypatch.setattr(clients, "QUIET_S", 0.0)
    world.stuck = 1
    until(lambda: ProducerReplaced(None) in world.pump(), 60.0)
    assert "the producer of outputs has lost all brokers" in caplog.text
    world.stuck = 0
    world.emit()
    assert world.pump() == [Drained([ADDRESS])]
