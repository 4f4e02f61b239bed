"""Behaviour 234: the multicast sample. Subscriber n wants the n-th tag."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID

import pytest

from examples.patterns import publish_subscribe
from examples.patterns.publish_subscribe import AUTHOR, NEWS, PUBLISH, PUBLISHER, TAGS, Publisher, subscribe, work
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.dialog.transaction.transaction import Transaction
from tests.kit.shop import ORDER, begin, drain

pytestmark = pytest.mark.stack

COUNTS = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
"""Messages that ten subscribers get for an article with the tags A, B and C."""

ARTICLE = b"A,B,C: three of a kind"


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Publisher]:
    publish_subscribe.create(broker)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as tables:
        yield Publisher(tables)


def publish(broker: Broker, *articles: bytes) -> None:
    author = broker.begin_dialog(AUTHOR, PUBLISHER, NEWS)
    for article in articles:
        author.send(PUBLISH, article)
    broker.flush()


def received(broker: Broker, dialogs: list[Dialog], queue: str) -> list[int]:
    """Number of messages on each of the dialogs."""
    counts: Counter[UUID] = Counter(message.dialog.id for message in drain(broker, queue))
    return [counts[dialog.id] for dialog in dialogs]


def test_234_subscribers_that_began_their_dialogs_get_an_article_with_their_tag_once(
    broker: Broker, publisher: Publisher
) -> None:
    dialogs = subscribe(broker)
    work(broker, publisher)
    publish(broker, ARTICLE)
    work(broker, publisher)
    assert received(broker, dialogs, "Subscribers") == COUNTS


def test_234_an_article_is_sent_to_all_its_subscribers_or_to_none(broker: Broker, publisher: Publisher) -> None:
    dialogs = subscribe(broker)
    work(broker, publisher)
    publish(broker, ARTICLE)
    failures: list[int] = []

    def failing(handler: Callable[[Transaction], None]) -> Callable[[Transaction], None]:
        def handle(transaction: Transaction) -> None:
            handler(transaction)
            if transaction.sends and not failures:
                failures.append(sum(len(bodies) for _, _, bodies in transaction.sends))
                raise ZeroDivisionError

        return handle

    with broker.reader("Publisher", timeout=1) as reader:
        reader.run(failing(publisher.handle))
    assert failures == [sum(COUNTS)]
    assert received(broker, dialogs, "Subscribers") == COUNTS


def test_234_a_publisher_that_began_the_dialogs_sends_to_all_interested_subscribers_at_once(broker: Broker) -> None:
    dialogs = [begin(broker) for _ in TAGS]
    wanted = [dialog for dialog, tag in zip(dialogs, TAGS, strict=True) if tag in ("%", "A", "B", "C")]
    broker.send(wanted, ORDER, ARTICLE)
    broker.flush()
    assert received(broker, dialogs, "Orders") == COUNTS
