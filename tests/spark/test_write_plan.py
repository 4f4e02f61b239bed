"""The conversation of a key: the same in all plans, and the next in its line when one is over."""

from __future__ import annotations

from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.wire.records import Begin
from konverse.spark.write import returned_rows as returning
from konverse.spark.write import successions
from konverse.spark.write.plan import VERSION, Plan
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
    assert {conversation[6] >> 4 for conversation in line} == {VERSION}
    assert dialog(*line[:2]) == dialog(*reversed(line[:2])), "whoever plans, and in whatever order they were said"
    conversation, begin = dialog(*line[:3])
    assert (conversation, begin.group, begin.key) == (line[3], line[3], b"one")
    assert begin.target == dialog()[1].target, "Kafka's partition of a key stays"


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
