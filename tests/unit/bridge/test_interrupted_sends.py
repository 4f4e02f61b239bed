"""Exceptions from outside, as of Ctrl-C or an alarm, at any place of a send: nothing that was accepted is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest

from konverse.bridge.client import session_producer
from konverse.bridge.client.sender import Sender
from konverse.bridge.client.session_ids import SessionRenewal
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.schemas.errors import BrokerClosed, OutcomeUnknown
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import HEADER, decode
from konverse.schemas.wire.records import Kind, Timer
from tests.kit import until
from tests.kit.builders import begin_block, identifier
from tests.kit.interrupts import interrupted_at
from tests.unit.bridge.test_sending_close import Destinations, Ids, Producer

WITHIN_S: Final = 30.0
TRACED: Final = {Sender.send.__code__, SessionDialog.stage.__code__}


class Kafka:
    """A Kafka that takes every record, and producers that lose none."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(send_timeout_s=WITHIN_S, database="shop")
        self.health = ""
        self.log: list[tuple[int, int, bytes]] = []
        """Counter, sequence number and body of each message, in the order of arrival."""
        self.timers = 0

    def data_producer(self, **_: Any) -> Client:
        return Client(self)

    def produce(self, _topic: str, body: bytes, _key: bytes, _partition: int, *rest: Any) -> None:
        envelope = decode(rest[-1][HEADER])
        self.timers += envelope.kind is Kind.SET_TIMER
        if envelope.kind is Kind.MESSAGE and envelope.role is Role.INITIATOR:
            self.log.append((envelope.counter, envelope.sequence, body))


class Client(Producer):
    """A producer of `Kafka` that has every record at once."""

    def __init__(self, kafka: Kafka) -> None:
        self.produce = kafka.produce  # type: ignore[method-assign]


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def sender(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    monkeypatch.setattr(session_producer, "RETRY_S", 0.0)
    here: Any = kafka
    there: Any = Destinations()
    follow: Any = None
    made = Sender(here, SessionRenewal(Ids(), follow), there)
    yield made
    with suppress(OutcomeUnknown):  # of a session that was interrupted
        made.close()


def opened(sender: Sender) -> SessionDialog:
    """A dialog whose sends take the fast path."""
    dialog = sender.begin(identifier("conversation"), begin_block(), BeginOptions())
    sender.send(dialog, "order", b"first")
    wait_until_free(sender, dialog)
    return dialog


def wait_until_free(sender: Sender, dialog: SessionDialog) -> None:
    until(lambda: dialog.open and sender._producer.free, WITHIN_S)


def test_a_send_that_was_interrupted_anywhere_loses_and_doubles_nothing(kafka: Kafka, sender: Sender) -> None:
    """Interrupted at each place in turn, with sends between; records that are resent keep their counters."""
    dialog = opened(sender)
    returned, place = [b"first"], 0
    while True:
        wait_until_free(sender, dialog)
        body = b"interrupted %d" % place
        interrupted = interrupted_at(place, TRACED, partial(sender.send, dialog, "order", body))
        if not interrupted:
            returned.append(body)
            break
        body = b"sent %d" % place
        sender.send(dialog, "order", body)
        returned.append(body)
        place += 1
    sender.settle(WITHIN_S)
    assert place > 5, "the whole of it was interrupted"
    by_counter: dict[int, tuple[int, bytes]] = {}
    for counter, sequence, body in kafka.log:
        assert by_counter.setdefault(counter, (sequence, body)) == (sequence, body), "a resent record is the same"
    assert sorted(by_counter) == [*range(len(by_counter))], "no counter is missing"
    arrived = [by_counter[counter] for counter in range(len(by_counter))]
    assert [sequence for sequence, _ in arrived] == [*range(len(arrived))]
    bodies = [body for _, body in arrived]
    assert [body for body in bodies if body in returned] == returned
    assert len({*bodies}) == len(bodies)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError("an alarm")])
def test_any_other_call_that_was_interrupted_ends_the_session_and_says_that_its_outcome_is_unknown(
    sender: Sender, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = opened(sender)

    def cut(*_: Any) -> None:
        raise error

    monkeypatch.setattr(sender.session, "end", cut)
    with pytest.raises(type(error)):
        sender.end(dialog)
    for call in (lambda: sender.send(dialog, "order", b"x"), lambda: sender.flush(1.0, dialog)):
        with pytest.raises(OutcomeUnknown, match=f"interrupted \\({type(error).__name__}\\).*connect again"):
            call()


def test_records_whose_handing_over_was_interrupted_are_handed_over_again(
    kafka: Kafka, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = opened(sender)
    main, produce = threading.current_thread(), sender._producer.produce

    def cut(*arguments: Any) -> None:
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        produce(*arguments)

    monkeypatch.setattr(sender._producer, "produce", cut)
    with pytest.raises(KeyboardInterrupt):
        sender.set_timer(dialog, Timer(1_000))
    monkeypatch.setattr(sender._producer, "produce", produce)
    sender.settle(WITHIN_S)
    assert sender.session.idle
    assert kafka.timers == 1


def test_a_flush_in_a_forked_process_is_refused_and_asks_nobody(sender: Sender) -> None:
    """Kafka's clients do not work there: their answers would never come."""
    dialog = opened(sender)
    sender._producer.forked = sender._producer._closed = True
    for of_dialog in (dialog, None):
        with pytest.raises(BrokerClosed, match="forked"):
            sender.flush(1.0, of_dialog)
    sender._producer.forked = sender._producer._closed = False
