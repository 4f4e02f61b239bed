"""A slow home delays only the callers that ask it, and these no longer than their timeouts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.client import homes as homes_module
from konverse.bridge.client import mailboxes as module
from konverse.bridge.client.homes import Homes
from konverse.bridge.client.mailboxes import Mailboxes
from konverse.bridge.reader.readers import Readers
from konverse.bridge.runtime.threads import in_background
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable
from konverse.schemas.identifiers import Address
from tests.kit.builders import address_of

SLOW, FAST = address_of("slow"), address_of("fast")
DEADLINE_S = 30.0


class Kafka:
    """Of the followed partitions, one does not answer until it may."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()
        self.closed: list[Address] = []
        self.reads: list[Address] = []

    def follow(self, _kafka: Any, _catalog: Any, address: Address) -> Any:
        def catch_up(_timeout_s: float = DEADLINE_S) -> Address:
            self.reads.append(address)
            if address == SLOW:
                self.asked.set()
                assert self.answers.wait(DEADLINE_S)
            return address

        return SimpleNamespace(catch_up=catch_up, close=lambda: self.closed.append(address))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    fake = Kafka()
    monkeypatch.setattr(module, "follow", fake.follow)
    yield fake
    fake.answers.set()


@pytest.fixture
def mailboxes(kafka: Kafka) -> Iterator[Mailboxes]:
    nothing: Any = None
    made = Mailboxes(nothing, nothing, Readers())
    yield made
    kafka.answers.set()
    made.close()


def asking(mailboxes: Mailboxes, address: Address, timeout_s: float = DEADLINE_S) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    ask = partial(mailboxes.ask, address, lambda state: state, keep_up=True, timeout_s=timeout_s)
    thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
    thread.start()
    return thread, found


def test_a_question_may_wait_for_longer_than_a_thread_can(kafka: Kafka, mailboxes: Mailboxes) -> None:
    asking_thread, answer = asking(mailboxes, SLOW, timeout_s=sys.maxsize)
    assert kafka.asked.wait(DEADLINE_S)
    kafka.answers.set()
    asking_thread.join(DEADLINE_S)
    assert answer == [SLOW]


def test_a_home_that_does_not_answer_does_not_delay_callers_of_other_homes(kafka: Kafka, mailboxes: Mailboxes) -> None:
    slow, answer = asking(mailboxes, SLOW)
    assert kafka.asked.wait(DEADLINE_S)
    fast, other = asking(mailboxes, FAST)
    fast.join(10)
    assert other == [FAST]
    assert not answer
    kafka.answers.set()
    slow.join(DEADLINE_S)
    assert answer == [SLOW]


def test_a_question_times_out_as_requested_while_its_home_is_still_read(
    kafka: Kafka, mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S_MIN", 0.0)
    called: list[Any] = []
    with pytest.raises(KafkaUnavailable, match="was not read to its end"):
        mailboxes.ask(SLOW, called.append, keep_up=True, timeout_s=0.01)
    with pytest.raises(KafkaUnavailable):  # a second caller does not wait for the first
        mailboxes.ask(SLOW, called.append, keep_up=True, timeout_s=0.01)
    kafka.answers.set()
    assert mailboxes.ask(SLOW, lambda state: state, keep_up=True) == SLOW
    assert len(called) <= 1, "a question that nobody awaits any more is not asked"


def test_a_question_asked_during_a_read_of_its_home_is_answered_by_a_later_read(
    kafka: Kafka, mailboxes: Mailboxes
) -> None:
    """The answer includes everything in the journal at the time of the question."""
    first, _ = asking(mailboxes, SLOW)
    assert kafka.asked.wait(DEADLINE_S)
    second, _ = asking(mailboxes, SLOW)
    while len(mailboxes._homes._homes[SLOW].questions) < 1:
        second.join(0.01)
    kafka.answers.set()
    first.join(DEADLINE_S)
    second.join(DEADLINE_S)
    assert kafka.reads == [SLOW, SLOW]


def test_redirection_news_from_a_fast_home_does_not_wait_for_a_slow_home(kafka: Kafka, mailboxes: Mailboxes) -> None:
    heard, news = [], threading.Event()

    def hear(_news: Any) -> None:
        heard.append(threading.current_thread())
        news.set()

    def dialog(home: Address) -> Any:
        return SimpleNamespace(begin=SimpleNamespace(home=home), held=[])

    sender: Any = SimpleNamespace(
        redirecting=[dialog(SLOW), dialog(FAST)], wait_for_id=lambda: None, apply_news=hear, session=None
    )
    mailboxes._sender = sender
    mailboxes._wake_thread()
    assert kafka.asked.wait(DEADLINE_S)
    assert news.wait(10), "the other home has not been asked"
    sender.redirecting = []


def test_a_home_that_is_read_when_its_broker_is_closed_is_let_go_of_behind_that(kafka: Kafka) -> None:
    homes = Homes(lambda address: kafka.follow(None, None, address))
    assert homes.ask(FAST, lambda state: state).result(DEADLINE_S) == FAST
    answer = homes.ask(SLOW, lambda state: state)
    assert kafka.asked.wait(DEADLINE_S)
    while homes._homes[FAST].read:  # its thread is about to end
        threading.Event().wait(0.01)
    homes.close()
    assert kafka.closed == [FAST]
    with pytest.raises(BrokerClosed):
        homes.ask(FAST, lambda state: state)
    kafka.answers.set()
    assert answer.result(DEADLINE_S) == SLOW
    while SLOW not in kafka.closed:
        threading.Event().wait(0.01)


def test_a_question_that_fails_is_answered_by_its_failure_and_the_home_is_asked_on(
    kafka: Kafka, mailboxes: Mailboxes
) -> None:
    def fails(_state: Any) -> None:
        raise KafkaUnavailable("no")

    with pytest.raises(KafkaUnavailable, match="no"):
        mailboxes.ask(FAST, fails, keep_up=True)
    assert mailboxes.ask(FAST, lambda state: state, keep_up=True) == FAST


def test_a_home_whose_reading_thread_could_not_be_started_is_read_at_the_next_question(
    kafka: Kafka, mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(homes_module, "in_background", refuse)
    with pytest.raises(KafkaUnavailable, match=r"fast/0.*can't start new thread.*ulimit"):
        mailboxes.ask(FAST, lambda state: state, keep_up=True)
    monkeypatch.setattr(homes_module, "in_background", in_background)
    assert mailboxes.ask(FAST, lambda state: state, keep_up=True) == FAST
    assert kafka.reads == [FAST]
