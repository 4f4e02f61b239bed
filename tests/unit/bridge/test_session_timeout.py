"""Time after which Kafka gives the partitions of a dead reader to another one."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import SESSION_TIMEOUT_S, Topics
from konverse.bridge.reader.session_timeout import LONG_SESSION_S, SessionTimeoutCheck, warn_of_a_long_session
from konverse.bridge.runtime.settings import Settings


def topics(described: Any, **settings: Any) -> Topics:
    """The topics of a cluster whose broker 3 answers this about its settings, or raises."""
    admin = MagicMock()
    answer = MagicMock()
    answer.result.side_effect = [described]
    admin.describe_configs.side_effect = lambda resources, **_: dict.fromkeys(resources, answer)
    kafka: Any = SimpleNamespace(admin=admin, settings=Settings.load(kafka="kafka://nowhere:9092", **settings))
    kafka.answer = partial(Kafka.answer, kafka)
    kafka.metadata = lambda: SimpleNamespace(brokers={3: None})
    return Topics(kafka)


def test_the_brokers_say_it() -> None:
    said = {"group.consumer.session.timeout.ms": SimpleNamespace(value="6000")}
    assert topics(said).session_timeout_s() == 6.0


@pytest.mark.parametrize("described", [{}, KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))])
def test_where_they_do_not_it_is_the_default(described: Any) -> None:
    assert topics(described).session_timeout_s() is None


def test_in_the_classic_protocol_the_member_says_it() -> None:
    own = {"session.timeout.ms": "9000"}
    assert topics({}, group_protocol="classic", client=own).session_timeout_s() == 9.0
    assert topics({}, group_protocol="classic").session_timeout_s() == SESSION_TIMEOUT_S


@pytest.mark.parametrize(
    ("protocol", "setting"),
    [
        ("consumer", "group.consumer.session.timeout.ms=2000 and a heartbeat interval of 200 ms in the brokers"),
        (
            "classic",
            "session.timeout.ms=2000 and a heartbeat interval of 200 ms in the setting `client` of each worker",
        ),
    ],
)
def test_a_long_session_is_named_with_its_setting_at_the_start(
    caplog: pytest.LogCaptureFixture, protocol: str, setting: str
) -> None:
    warn_of_a_long_session(LONG_SESSION_S, protocol)
    assert not caplog.messages
    warn_of_a_long_session(45.0, protocol)
    (said,) = caplog.messages
    assert "killed worker wait 45 s for another worker" in said
    assert setting in said


def test_a_connection_asks_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    known = topics({}, group_protocol="classic")
    check = SessionTimeoutCheck(known, "classic")
    for _ in range(3):
        check.run()
    assert len(caplog.messages) == 1
    skipped = SessionTimeoutCheck(known, "classic")
    skipped.skip()
    skipped.run()
    assert len(caplog.messages) == 1, "another process has warned"
