"""A call on a sender that is being closed does not wait for Kafka."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.client.sender import Sender
from konverse.bridge.client.session_ids import SessionRenewal
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.dialogs import BeginOptions
from konverse.schemas.errors import BrokerClosed, SessionTakenOver, TopicMismatch
from tests.kit.builders import begin_block, identifier

DEADLINE_S = 30.0


class Producer:
    """A Kafka that has every record at once."""

    def produce(self, *_: Any) -> None: ...
    def poll(self, _wait_s: float) -> None: ...
    def purge(self) -> None: ...
    def flush(self, _timeout_s: float) -> int:
        return 0

    def list_topics(self, *_: Any, **__: Any) -> None: ...
    def __len__(self) -> int:
        return 0


class Ids:
    topic = "ids"

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        del timeout_s
        return identifier("session"), now_ms()


class Destinations:
    """Destinations whose topics all exist."""

    def __init__(self) -> None:
        self.gone: dict[Any, str] = {}
        self.verified: dict[Any, Any] = {}

    def check(self, *_: Any) -> None: ...
    def refresh(self, *_: Any) -> bool:
        return True

    def check_untold(self, *_: Any) -> None: ...
    def unverified(self, _session: Any) -> list[Any]:
        return []

    def takes(self, *_: Any) -> bool:
        return True


def test_a_closing_sender_that_waits_for_its_last_records_blocks_no_other_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader reports ends to it under the reader's lock, so the whole reader would wait for Kafka."""
    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(send_timeout_s=DEADLINE_S), health="", data_producer=lambda **_: Producer()
    )
    follow: Any = None
    there: Any = Destinations()
    sender = Sender(kafka, SessionRenewal(Ids(), follow), there)
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.send(dialog, "order", b"one")
    asked, answered = threading.Event(), threading.Event()

    def settle(_timeout_s: float | None = None, **_: Any) -> None:
        asked.set()
        assert answered.wait(DEADLINE_S)

    monkeypatch.setattr(sender, "settle", settle)
    closing = threading.Thread(target=sender.close, daemon=True)
    closing.start()
    assert asked.wait(DEADLINE_S)
    refused: list[BrokerClosed] = []

    def tell() -> None:
        sender.ended_by_peer(identifier("another"))
        try:
            sender.send(dialog, "order", b"two")
        except BrokerClosed as error:
            refused.append(error)

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(10)
    waits = telling.is_alive()
    answered.set()
    closing.join(DEADLINE_S)
    assert not waits
    assert refused, "nothing is sent behind what is waited for"


def test_a_flush_beside_a_close_reports_a_lost_topic_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Destinations):
        def check(self, *_: Any) -> None:
            raise TopicMismatch("the topic was deleted and created again")

    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(send_timeout_s=DEADLINE_S), health="", data_producer=lambda **_: Producer()
    )
    follow: Any = None
    there: Any = Lost()
    sender = Sender(kafka, SessionRenewal(Ids(), follow), there)
    monkeypatch.setattr(there, "check", lambda *_: None)
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.send(dialog, "order", b"one")
    monkeypatch.undo()
    flushed: list[TopicMismatch] = []

    def settle(_timeout_s: float | None = None, **_: Any) -> None:
        try:
            sender.flush(1.0, dialog)
        except TopicMismatch as error:
            flushed.append(error)

    sender.session.drained()
    monkeypatch.setattr(sender, "settle", settle)  # where `close` waits, another thread flushes
    sender.close()
    assert flushed


@pytest.mark.parametrize("waits", [True, False], ids=["for records", "for the goodbye"])
def test_a_close_beside_a_takeover_reports_it_only_when_records_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """Once Kafka has every record, the process that takes the session over knows which of them count."""

    class Waiting(Producer):
        def __len__(self) -> int:
            return int(waits)

    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(send_timeout_s=DEADLINE_S), health="", data_producer=lambda **_: Waiting()
    )
    follow: Any = None
    there: Any = Destinations()
    sender = Sender(kafka, SessionRenewal(Ids(), follow), there)
    sender.send(sender.begin(identifier("conversation"), begin_block(), BeginOptions()), "order", b"one")

    def taken_over(*_: Any) -> list[Any]:
        sender.session.over = SessionTakenOver("another process has asked for the outcome of this session")
        return []

    if waits:
        monkeypatch.setattr(sender._producer, "mark", taken_over)  # where `close` begins to wait
        with pytest.raises(SessionTakenOver):
            sender.close()
    else:
        monkeypatch.setattr(sender.session, "close", taken_over)
        sender.close()
    assert isinstance(sender.session.over, SessionTakenOver)
    assert sender._producer.closed
