"""Inquiries about messages whose sender is gone, without servers."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from konverse.bridge.client.outcomes import Inquiry, Sessions
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.session.session import Session
from konverse.schemas.errors import BadInput
from konverse.schemas.wire import token
from konverse.schemas.wire.token import Sent, Token
from tests.kit.builders import address_of, identifier

KAFKA = Kafka(Settings(kafka="kafka://127.0.0.1:1"))


def sessions() -> Sessions:
    return Sessions(KAFKA, Topics(KAFKA), cast("Any", None))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest wait of each inquiry."""
    found: list[float] = []
    monkeypatch.setattr(Inquiry, "run", lambda _inquiry, _token, timeout_s: found.append(timeout_s))
    return found


def test_an_inquiry_may_wait_for_longer_than_the_client_of_kafka_can(waits: list[float]) -> None:
    sessions().outcome(b"", None, sys.maxsize)
    KAFKA.plain_producer(waits[0])


def test_a_session_that_is_over_sends_nothing_again_so_its_own_broker_may_inquire(waits: list[float]) -> None:
    session = Session(identifier("session"))
    asked = token.encode(Token((Sent(session.writer, address_of(), identifier("a"), 0, (0,)),)))
    with pytest.raises(BadInput, match="call flush again"):
        sessions().outcome(asked, session, None)
    session.stop("another process asked for the outcome of its messages")
    sessions().outcome(asked, session, None)
    assert waits == [KAFKA.settings.send_timeout_s]
