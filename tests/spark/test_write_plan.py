"""The conversation of a key: the same in all plans, and the next in its line when one is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import TopicPartition

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.runtime.settings import Settings
from konverse.routing.loops import hops_of, with_hops
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.limits import ROUTER_HOPS_MAX
from konverse.schemas.wire.records import Begin
from konverse.spark.write import returned_rows as returning
from konverse.spark.write import successions
from konverse.spark.write.plan import Plan, is_of_plan
from konverse.spark.write.settings import parse_writer
from konverse.spark.write.successions import Successions
from tests.kit.builders import address_of, identifier
from tests.kit.servers import Servers

QUERY: Final = identifier("query")
NOBODY: Final[Any] = None


def plan(*over: bytes, pool: str | None = "carts") -> Plan:
    """A new plan, made when these conversations were over."""
    homes, targets = (tuple(address_of(topic, number) for number in range(8)) for topic in ("shop", "orders"))
    services = {"//sales/OrderService": targets}
    names = ("sales", "//shop", "//ordering")
    return Plan(identifier("run"), *names, NOBODY, homes, services, {}, {}, pool, over=frozenset(over))


def dialog(*over: bytes, key: bytes = b"one", pool: str | None = "carts", query: bytes = QUERY) -> tuple[bytes, Begin]:
    """The conversation and BEGIN block of a plan."""
    return plan(*over, pool=pool).dialog(query, "//sales/OrderService", key)


def test_a_key_has_the_next_conversation_of_its_line_when_one_is_over() -> None:
    line: list[bytes] = []
    for _ in range(4):
        line.append(dialog(*line)[0])
    assert len(set(line)) == len(line)
    assert all(map(is_of_plan, line))
    assert {UUID(bytes=conversation).version for conversation in line} == {8}
    assert dialog(*line[:2]) == dialog(*reversed(line[:2])), "whoever plans, and in whatever order they were said"
    conversation, begin = dialog(*line[:3])
    assert (conversation, begin.group, begin.key) == (line[3], line[3], b"one")
    assert begin.target == dialog()[1].target, "Kafka's partition of a key stays"


def test_a_conversation_of_a_plan_is_never_taken_for_one_of_a_router_nor_the_other_way_round() -> None:
    """Both have ids of UUID version 8. A router rejects conversations that have come through too many routers."""
    for number in range(2_000):
        conversation, _ = dialog(key=b"%d" % number)
        assert hops_of(conversation) == 0
        assert not is_of_plan(with_hops(conversation, ROUTER_HOPS_MAX))


def test_an_ended_conversation_affects_only_its_own_key_and_pool() -> None:
    over, _ = dialog()
    assert dialog(over, key=b"two") == dialog(key=b"two")
    for pool in ("others", None):
        assert dialog(over, pool=pool) == dialog(pool=pool)
    assert dialog(dialog(over)[0])[0] == over, "the first one of a line is over before the second is"
    assert dialog(query=identifier("another")) == dialog(), "a pool is for all queries"


def test_a_key_keeps_its_ended_conversation_if_the_end_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "konverse.spark")
    settings = parse_writer({"bootstrap": "localhost:1", "from_service": "//shop"})
    first, second = identifier("first"), identifier("second")

    def fails(*_: object) -> None:
        raise KafkaUnavailable("no answer")

    monkeypatch.setattr(Successions, "end", fails)
    assert not returning._succeeded(settings, plan(first), frozenset({second}))
    assert " return too: no answer" in caplog.text
    assert returning._succeeded(settings, plan(first), frozenset({first})), "that was said before"
    monkeypatch.setattr(returning, "SUCCESSION_ENTRIES_MAX", 1)
    monkeypatch.setattr(Successions, "end", lambda *_: None)
    assert not returning._succeeded(settings, plan(first), frozenset({second}))
    assert returning._succeeded(settings, plan(), frozenset({second}))


class SmallProducer:
    """A client with room for two records."""

    def __init__(self, error: object = None) -> None:
        self._error = error
        self._waiting: list[tuple[bytes, Any]] = []
        self.taken: list[bytes] = []
        self.flushes = 0

    def produce(self, _topic: str, _body: bytes, key: bytes, _partition: int, *, on_delivery: Any) -> None:
        if len(self._waiting) == 2:
            raise BufferError("Local: Queue full")
        self._waiting.append((key, on_delivery))

    def flush(self, _timeout_s: float) -> int:
        self.flushes += 1
        for key, on_delivery in self._waiting:
            self.taken.append(key)
            on_delivery(self._error, None)
        self._waiting.clear()
        return 0


def successions_by(producer: SmallProducer, monkeypatch: pytest.MonkeyPatch) -> Successions:
    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(append_timeout_s=1.0),
        plain_producer=lambda _timeout_s: producer,
        check_written=lambda _topic, _outcomes: None,
    )
    monkeypatch.setattr(successions, "Topics", lambda _kafka: SimpleNamespace(partitions=lambda _topic: 1))
    return Successions(kafka, "konverse", address_of("shop", 0))


def test_successions_are_written_also_by_a_client_with_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, ended = SmallProducer(), [identifier(str(number)) for number in range(5)]
    successions_by(producer, monkeypatch).end(ended)
    assert [key[16:] for key in producer.taken] == ended


def test_successions_are_given_up_when_the_first_ones_are_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = SmallProducer(error="timed out")
    with pytest.raises(KafkaUnavailable, match="has not acknowledged all records"):
        successions_by(producer, monkeypatch).end([identifier(str(number)) for number in range(50)])
    assert producer.flushes == 2


@pytest.mark.stack
def test_successions_that_are_deleted_while_they_are_read_are_not_taken_for_none(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka(Settings.load(kafka=f"kafka://{servers.bootstrap}"))
    known = Successions(kafka, database, address_of("shop", 0))
    known.end([identifier("over")])
    assert known.over() == {identifier("over")}

    class Overtaken(LogReader):
        def ends(self, topic: str, partition: int) -> tuple[int, int]:
            found = super().ends(topic, partition)
            place = TopicPartition(topic, partition, -1)
            kafka.admin.delete_records([place])[place].result()
            return found

    monkeypatch.setattr(successions, "LogReader", Overtaken)
    with pytest.raises(KafkaUnavailable, match=r"successions was truncated while it was being read; try again"):
        known.over()
