"""Ctrl-C while a sender polls its producer or replaces it: a record that Kafka refused never counts as delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError

from konverse.bridge.client import session_producer
from konverse.bridge.client.sender import Sender
from konverse.bridge.client.session_ids import SessionRenewal
from konverse.bridge.client.session_producer import SessionProducer
from konverse.bridge.runtime.threads import ThreadLock
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.schemas.errors import InvalidState, KafkaUnavailable
from tests.kit.builders import begin_block, identifier
from tests.kit.interrupts import interrupted_at
from tests.unit.bridge.test_sending_close import Destinations, Ids, Producer

WITHIN_S: Final = 30.0
TRACED: Final = {
    function.__code__
    for function in (
        SessionProducer.serve,
        SessionProducer.serve_until,
        SessionProducer.mark,
        SessionProducer.produce_records,
        SessionProducer.refresh,
        SessionProducer._poll,
        SessionProducer._on_failure,
        SessionProducer._fail,
        SessionProducer._words,
        SessionProducer._replace_producer,
        SessionProducer._new_producer,
        SessionProducer._restart,
        SessionProducer._do_or_fail,
        SessionProducer._pause_senders,
        ThreadLock.take,
    )
}
"""The code that polls the producer and replaces it."""
REFUSED: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Kafka:
    """Its first client delivers control records only. Every later client delivers everything."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(send_timeout_s=WITHIN_S, database="shop")
        self.health = ""
        self.clients: list[Client] = []
        self.delivered: list[bytes] = []
        """Bodies of messages."""
        self.at_creation: Callable[[], object] = lambda: None
        """Called before each client is made."""
        self.at_report: Callable[[], object] = lambda: None
        """Called before each report, as the interpreter handles signals where a callback begins."""

    def data_producer(self, **_: Any) -> Client:
        self.at_creation()
        self.clients.append(Client(self, refuses=not self.clients))
        return self.clients[-1]

    def words(self, error: KafkaError, _need: Any) -> str:
        return error.str()


class Client(Producer):
    """A producer, which reports the records that Kafka refused at the next poll."""

    def __init__(self, kafka: Kafka, *, refuses: bool) -> None:
        self._kafka = kafka
        self._refuses = refuses
        self._refused: deque[tuple[Callable[[KafkaError, Any], None], Any]] = deque()

    def produce(self, topic: str, *rest: Any, **_: Any) -> None:  # type: ignore[override]
        body, _key, partition, report, *_more = rest
        if body is None:
            return
        if self._refuses:
            self._refused.append((report, SimpleNamespace(topic=lambda: topic, partition=lambda: partition)))
        else:
            self._kafka.delivered.append(body)

    def poll(self, _wait_s: float) -> int:  # type: ignore[override]
        served = len(self._refused)
        while self._refused:
            report, message = self._refused.popleft()  # librdkafka forgets a record before it reports it
            self._kafka.at_report()
            report(REFUSED, message)
        return served

    def __len__(self) -> int:
        return len(self._refused)


def once(error: BaseException, then: Callable[..., Any] = lambda *_, **__: None) -> Callable[..., Any]:
    """A function that raises at its first call; the later calls are those of `then`."""
    errors = [error]

    def call(*arguments: Any, **named: Any) -> Any:
        if errors:
            raise errors.pop()
        return then(*arguments, **named)

    return call


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture(autouse=True)
def _calling_thread_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """No background thread does."""
    monkeypatch.setattr(session_producer, "RETRY_S", 0.0)
    monkeypatch.setattr(session_producer, "REFUSAL_PAUSE_S", 0.0)
    monkeypatch.setattr(session_producer, "in_background", lambda *_: SimpleNamespace(join=lambda _timeout_s: None))


@pytest.fixture
def sender(kafka: Kafka) -> Iterator[Sender]:
    made = sender_of(kafka)
    yield made
    made.close()


@pytest.fixture
def dialog(sender: Sender) -> SessionDialog:
    return begun(sender)


def sender_of(kafka: Kafka) -> Sender:
    here: Any = kafka
    there: Any = Destinations()
    follow: Any = None
    return Sender(here, SessionRenewal(Ids(), follow), there)


def begun(sender: Sender) -> SessionDialog:
    """A dialog whose BEGIN is delivered."""
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.settle(WITHIN_S)
    return dialog


def flush_after_ctrl_c(sender: Sender) -> None:
    with pytest.raises(KeyboardInterrupt):
        sender.flush(WITHIN_S)
    sender.flush(WITHIN_S)


def test_a_message_is_sent_again_when_ctrl_c_arrives_as_its_failure_is_reported(
    kafka: Kafka, sender: Sender, dialog: SessionDialog
) -> None:
    kafka.at_report = once(KeyboardInterrupt())
    sender.send(dialog, "order", b"one")
    flush_after_ctrl_c(sender)
    assert kafka.delivered == [b"one"]


def test_a_message_is_sent_again_when_ctrl_c_arrives_as_its_failure_is_put_into_words(
    kafka: Kafka, sender: Sender, dialog: SessionDialog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "words", once(KeyboardInterrupt(), kafka.words))
    sender.send(dialog, "order", b"one")
    flush_after_ctrl_c(sender)
    assert kafka.delivered == [b"one"]


def test_a_message_is_sent_again_when_ctrl_c_arrives_as_the_next_producer_connects(
    kafka: Kafka, sender: Sender, dialog: SessionDialog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_producer, "connect_producer", once(KeyboardInterrupt()))
    sender.send(dialog, "order", b"one")
    flush_after_ctrl_c(sender)
    assert kafka.delivered == [b"one"]


def test_a_message_waits_for_a_producer_that_cannot_be_made_yet(
    kafka: Kafka, sender: Sender, dialog: SessionDialog, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the process has no thread or file left. The caller of `flush` waits, as it does without Kafka."""
    kafka.at_creation = once(KafkaUnavailable("no thread is left"))
    sender.send(dialog, "order", b"one")
    sender.flush(WITHIN_S)
    assert kafka.delivered == [b"one"]
    assert "no thread is left" in caplog.text


def test_ctrl_c_anywhere_in_a_flush_leaves_no_message_undelivered() -> None:
    """At each place in turn, while the message fails, the producer is replaced and the message is handed over again."""
    place, cut = 0, True
    while cut:
        kafka = Kafka()
        sender = sender_of(kafka)
        sender.send(begun(sender), "order", b"one")
        cut = interrupted_at(place, TRACED, partial(sender.flush, WITHIN_S))
        sender.flush(WITHIN_S)
        assert set(kafka.delivered) == {b"one"}, place
        sender.close()
        place += 1
    assert place > 50, "the whole of it was interrupted"


@pytest.mark.parametrize("call", [Sender.flush, Sender.close], ids=["flush", "close"])
def test_a_call_in_a_signal_handler_is_refused_while_its_thread_polls(
    kafka: Kafka, sender: Sender, dialog: SessionDialog, call: Callable[[Sender], None]
) -> None:
    """It would wait for ever for the poll that the handler has interrupted."""
    refused: list[InvalidState] = []

    def handler() -> None:
        with pytest.raises(InvalidState, match="let the handler raise an exception that ends it") as error:
            call(sender)
        refused.append(error.value)

    kafka.at_report = handler
    sender.send(dialog, "order", b"one")
    sender.flush(WITHIN_S)
    assert refused
    assert kafka.delivered == [b"one"], "the sender is open"
