"""The close of a sender: other calls do not wait for it, and it does not hide that records were given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from konverse.bridge.client import session_producer
from konverse.bridge.client.sender import Sender
from konverse.bridge.client.session_ids import SessionRenewal
from konverse.bridge.runtime.clock import now_ms
from konverse.dialog.session.dialogs import BeginOptions
from konverse.schemas.errors import (
    BrokerClosed,
    KonverseError,
    OutcomeExpired,
    OutcomeUnknown,
    SessionTakenOver,
    TopicMismatch,
)
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


class Waiting(Producer):
    """A Kafka that takes no record."""

    records = 1

    def __len__(self) -> int:
        return self.records


def sender_of(producer: Producer, destinations: Destinations | None = None) -> Sender:
    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(send_timeout_s=DEADLINE_S, database="shop"),
        health="",
        data_producer=lambda **_: producer,
    )
    follow: Any = None
    there: Any = destinations or Destinations()
    return Sender(kafka, SessionRenewal(Ids(), follow), there)


def test_a_closing_sender_that_waits_for_its_last_records_blocks_no_other_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader reports ends to it under the reader's lock, so the whole reader would wait for Kafka."""
    sender = sender_of(Producer())
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

    there = Lost()
    sender = sender_of(Producer(), there)
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
    sender = sender_of(Waiting() if waits else Producer())
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


def interrupt(sender: Sender) -> None:
    def cut(_session: Any) -> list[Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sender.decide(cut)


def expire(sender: Sender) -> None:
    sender.session.over = OutcomeExpired("a destination has forgotten this session")


@pytest.mark.parametrize(("end", "why"), [(interrupt, "was interrupted"), (expire, "has forgotten this session")])
def test_a_session_that_has_ended_with_waiting_messages_says_at_its_close_that_they_are_given_up(
    end: Callable[[Sender], None], why: str
) -> None:
    sender = sender_of(Waiting())
    sender.send(sender.begin(identifier("conversation"), begin_block(), BeginOptions()), "order", b"one")
    end(sender)
    with pytest.raises(OutcomeUnknown, match=f"messages among them: 1 .*{why}.*given up") as error:
        sender.close()
    assert error.value.token
    assert sender._producer.closed


@pytest.mark.parametrize("end", [interrupt, expire])
def test_a_session_that_has_ended_with_waiting_messages_says_at_the_end_of_the_program_that_they_are_given_up(
    end: Callable[[Sender], None], caplog: pytest.LogCaptureFixture
) -> None:
    sender = sender_of(Waiting())
    sender.send(sender.begin(identifier("conversation"), begin_block(), BeginOptions()), "order", b"one")
    end(sender)
    sender.at_exit(1.0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the program ends: the broker was closed before Kafka had acknowledged" in caplog.text
    with suppress(OutcomeUnknown):
        sender.close()


@pytest.mark.parametrize(
    "over", [OutcomeUnknown("a call was interrupted"), OutcomeExpired("forgotten"), SessionTakenOver("taken over")]
)
def test_a_session_that_has_ended_without_waiting_records_is_closed_without_a_word(
    over: KonverseError, caplog: pytest.LogCaptureFixture
) -> None:
    sender = sender_of(Producer())
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.send(dialog, "order", b"one")
    sender.settle(DEADLINE_S)
    sender.session.over = over
    sender.at_exit(1.0)
    sender.close()
    assert not caplog.records


def test_a_flush_that_has_reached_its_end_does_not_care_for_what_another_thread_sends_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Waiting()
    kafka.records = 0
    sender = sender_of(kafka)
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.send(dialog, "order", b"one")
    sender.flush(DEADLINE_S)
    serve_until, sent = sender._producer.serve_until, threading.Event()

    def send() -> None:
        sender.send(dialog, "order", b"two")
        sent.set()

    def then_send(*arguments: Any) -> bool:
        reached = serve_until(*arguments)
        kafka.records = 1
        other = threading.Thread(target=send, daemon=True)
        other.start()
        other.join(DEADLINE_S)
        return reached

    monkeypatch.setattr(sender._producer, "serve_until", then_send)
    sender.flush(DEADLINE_S)
    assert sent.is_set()
    monkeypatch.undo()
    kafka.records = 0
    sender.close()


def test_a_flush_of_a_dialog_without_messages_waits_for_its_begin() -> None:
    kafka = Waiting()
    sender = sender_of(kafka)
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    with pytest.raises(OutcomeUnknown, match=f"the BEGIN of {UUID(bytes=dialog.conversation)}"):
        sender.flush(0.2, dialog)
    kafka.records = 0
    sender.flush(DEADLINE_S, dialog)
    sender.close()


def test_a_close_does_not_wait_until_a_destination_has_answered_about_a_former_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that reads the answer ends by itself, and closes what it reads with."""
    asked, answered, closed = threading.Event(), threading.Event(), threading.Event()

    def answers(_renewal: SessionRenewal) -> list[Any]:
        asked.set()
        assert answered.wait(DEADLINE_S)
        return []

    monkeypatch.setattr(session_producer, "STOP_S", 0.0)
    monkeypatch.setattr(SessionRenewal, "due", True)
    monkeypatch.setattr(SessionRenewal, "answers", answers)
    monkeypatch.setattr(SessionRenewal, "close", lambda _renewal: closed.set())
    sender = sender_of(Producer())
    assert asked.wait(DEADLINE_S)
    closing = threading.Thread(target=sender.close, daemon=True)
    closing.start()
    closing.join(10)
    waits = closing.is_alive()
    assert not closed.is_set(), "the other thread reads"
    answered.set()
    assert not waits
    assert closed.wait(DEADLINE_S)
