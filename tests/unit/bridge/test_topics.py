"""Requests about topics while the client replaces its connection."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.schemas.errors import KafkaUnavailable

DROPPED = KafkaError._DESTROY_BROKER


class Admin:
    """Returns the given answers one after another."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)

    def _next(self) -> Future[Any]:
        future: Future[Any] = Future()
        answer = next(self._answers)
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result(answer)
        return future

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """Describe one topic."""
        return dict.fromkeys(["orders"], self._next())

    def describe_configs(self, resources: list[Any]) -> dict[Any, Future[Any]]:
        """Describe the settings of one topic."""
        return {resources[0]: self._next()}


def topics(*answers: Any) -> Topics:
    def unavailable(what: str, error: KafkaException, _need: object) -> KafkaUnavailable:
        return KafkaUnavailable(f"{what}: {error}")

    settings = SimpleNamespace(connect_timeout_s=1.0)
    return Topics(cast("Kafka", SimpleNamespace(settings=settings, admin=Admin(*answers), unavailable=unavailable)))


def test_what_the_client_dropped_with_its_first_connection_is_asked_once_more() -> None:
    entry = SimpleNamespace(value="delete")
    assert topics(DROPPED, {"cleanup.policy": entry}).config("orders") == {"cleanup.policy": "delete"}
    identifier = SimpleNamespace(get_most_significant_bits=lambda: 1, get_least_significant_bits=lambda: 2)
    described = SimpleNamespace(topic_id=identifier)
    assert topics(DROPPED, described).topic_id("orders") == (1).to_bytes(8) + (2).to_bytes(8)


@pytest.mark.parametrize("answers", [(DROPPED, DROPPED), (KafkaError._TRANSPORT,)])
def test_what_fails_again_or_otherwise_is_named(answers: tuple[int, ...]) -> None:
    with pytest.raises(KafkaUnavailable, match="settings of topic orders cannot be read"):
        topics(*answers).config("orders")
