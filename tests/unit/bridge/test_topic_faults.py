"""A sender's error about a topic that no longer takes records of its size."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.refusals import Need
from konverse.bridge.kafka.topic_faults import misfits, too_small
from konverse.bridge.runtime.settings import Settings

COMMAND = (
    "Change it with: kafka-configs --bootstrap-server 127.0.0.1:1 --alter --topic t "
    "--add-config max.message.bytes=1000000"
)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def words(monkeypatch: pytest.MonkeyPatch, value: str | None, error: KafkaError = TOO_LARGE) -> str:
    kafka = Kafka(Settings(kafka="kafka://127.0.0.1:1"))
    monkeypatch.setattr(kafka, "_max_message_bytes", lambda _topic: value)
    return kafka.words(error, Need.topic("WRITE", "t"))


def test_the_words_of_a_reader_and_of_a_sender_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    actual: Any = {"max.message.bytes": "600", "min.insync.replicas": "1"}
    (reader,) = misfits("127.0.0.1:1", "t", actual, {}, 1)
    assert reader == f"topic t has max.message.bytes=600; konverse needs 1000000. {COMMAND}"
    assert words(monkeypatch, "600") == f"{TOO_LARGE.str()}: {reader}"


def test_the_error_for_a_too_large_record_names_the_setting_even_if_its_value_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = words(monkeypatch, None)
    assert "max.message.bytes" in said
    assert said.endswith(COMMAND)


def test_a_setting_that_fits_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert too_small("127.0.0.1:1", "t", "1000000") is None
    assert words(monkeypatch, "1048588") == TOO_LARGE.str()
    other = KafkaError(KafkaError._TIMED_OUT)
    assert words(monkeypatch, "600", other) == other.str()
