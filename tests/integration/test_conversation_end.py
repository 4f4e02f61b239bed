"""Ends of conversations on real servers, which leave nothing behind."""

from __future__ import annotations

import uuid
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import Message
from konverse.schemas.errors import ConversationEnded, InvalidError, InvalidState
from konverse.schemas.system_messages import END_DIALOG, ERROR, ERROR_NAMESPACE
from tests.kit.oracle import read_queue
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, RECEIPT, begin, connected, fill, open_shop, pumped, queue_of, until, work

pytestmark = pytest.mark.stack


def left_in_view(broker: Broker, conversation: uuid.UUID) -> dict[str, str]:
    """Sides of a conversation in the view: queue → code of the state."""
    found = {}
    for queue in ("Orders", "Shop"):
        for _, row in broker.view(queue).find(conversation.bytes):
            found[queue] = row.state.code
    return found


def take(broker: Broker, queue: str, count: int, *, end: bool = False, **ending: str | int) -> list[Message]:
    """Receive `count` messages of one conversation in one transaction; with `end`, end it in the same transaction."""
    with broker.reader(queue, timeout=DEADLINE_S) as reader:
        fill(reader, count)
        with next(reader) as transaction:
            messages = list(transaction)
            if end:
                transaction.end(messages[0].dialog, **ending)  # type: ignore[arg-type]
    assert len(messages) == count
    return messages


def until_forgotten(servers: Servers, broker: Broker, conversation: uuid.UUID) -> None:
    """Run both queues until no side of any conversation is left, in the raw logs, in memory and in the view."""
    queues = [queue_of(broker, name) for name in ("Orders", "Shop")]

    def all_forgotten() -> bool:
        sides = [side for queue in queues for h in read_queue(servers.bootstrap, queue) for side in h.sides.values()]
        return all(side.forgotten for side in sides)

    with broker.reader("Orders") as orders, broker.reader("Shop") as shop, pumped(orders, shop):
        until(all_forgotten, "both sides are forgotten")
        for reader in (orders, shop):
            until(lambda r=reader: r.conversations == 0, "no endpoint is left")  # type: ignore[misc]
        until(lambda: left_in_view(broker, conversation) == {}, "the view shows neither side")


def test_a_conversation_that_the_initiator_ends_first_is_forgotten_by_both(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"last")
        dialog.end()
        broker.flush()
        with broker.reader("Shop") as shop, pumped(shop):
            messages = take(broker, "Orders", 2)
        assert [(m.type, m.sequence) for m in messages] == [(ORDER, 0), (END_DIALOG, 1)]
        with broker.reader("Shop") as shop, pumped(shop):
            until(lambda: left_in_view(broker, dialog.id) == {"Orders": "DI", "Shop": "DO"}, "the view shows the end")
        with pytest.raises(ConversationEnded, match="was ended already"):  # a second end changes nothing (118)
            dialog.end()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            reader.wait_for_partitions(1, DEADLINE_S)
            (endpoint,) = reader.owners[0].fold.state.live()
            assert endpoint.state is State.DISCONNECTED_INBOUND
        second = begin(broker)
        second.send(ORDER, b"x")
        take(broker, "Orders", 1, end=True)
        assert len(left_in_view(broker, dialog.id)) == 2, "another conversation's end touched this one"


def test_a_conversation_that_both_end_leaves_nothing_behind(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=2)
        dialog = begin(broker)
        dialog.send(ORDER, b"last")
        dialog.end()
        broker.flush()
        with broker.reader("Shop") as shop, pumped(shop):
            take(broker, "Orders", 2, end=True)
        until_forgotten(servers, broker, dialog.id)


@pytest.mark.parametrize("how", ["in a transaction", "by its session"])
def test_a_conversation_that_the_target_ends_first_is_ended_by_the_initiator(
    servers: Servers, database: str, how: str
) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"x")
        dialog.flush()
        take(broker, "Orders", 1, end=True)
        (message,) = take(broker, "Shop", 1, end=how == "in a transaction")
        assert (message.type, message.body, message.sequence) == (END_DIALOG, b"", 0)
        with pytest.raises(ConversationEnded):
            dialog.send(ORDER, b"too late")
        if how == "by its session":
            dialog.end()
            broker.flush()
        until_forgotten(servers, broker, dialog.id)


def test_a_conversation_that_ends_without_a_message_is_forgotten(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.end()
        broker.flush()
        with pytest.raises(ConversationEnded):
            dialog.send(ORDER, b"x")
        until_forgotten(servers, broker, dialog.id)


def test_both_sides_ending_at_once_is_an_end_like_any_other(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"x")
        dialog.flush()
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 1)
            with next(reader) as transaction:
                (message,) = transaction
                dialog.end()
                broker.flush()
                transaction.end(message.dialog)
        until_forgotten(servers, broker, dialog.id)


def error_of(message: Message) -> tuple[str | None, str | None]:
    """Code and description of an Error message."""
    assert (message.type, message.sequence) == (ERROR, -1)
    document = ET.fromstring(message.body)
    assert document.tag == f"{{{ERROR_NAMESPACE}}}Error"
    return tuple(document.findtext(f"{{{ERROR_NAMESPACE}}}{name}") for name in ("Code", "Description"))  # type: ignore[return-value]


def take_with_error(broker: Broker, queue: str) -> list[Message]:
    """Receive everything on a conversation once an Error has come, and end it."""
    with broker.reader(queue, timeout=DEADLINE_S) as reader:

        def failed() -> bool:
            work(reader)
            return any(endpoint.error for owner in reader.owners for endpoint in owner.fold.state.live())

        until(failed, "an Error has come")
        with next(reader) as transaction:
            messages = list(transaction)
            transaction.end(messages[0].dialog)
    return messages


def test_an_error_of_the_target_arrives_before_its_replies(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"x")
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            with next(reader) as transaction:
                (message,) = transaction
                transaction.send(message.dialog, RECEIPT, b"one")
                transaction.send(message.dialog, RECEIPT, b"two")
            dialog.send(ORDER, b"y")
            with next(reader) as transaction:
                (message,) = transaction
                transaction.end(message.dialog, error=42, description="no <stock>\r\n& no hope")
        failure, *replies = take_with_error(broker, "Shop")
        assert error_of(failure) == ("42", "no <stock>\r\n& no hope")
        assert [(m.type, m.sequence, m.body) for m in replies] == [(RECEIPT, 0, b"one"), (RECEIPT, 1, b"two")]
        until_forgotten(servers, broker, dialog.id)


def test_an_error_of_the_initiator_arrives_before_its_orders(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for number in range(3):
            dialog.send(ORDER, b"%d" % number)
        broker.flush()
        dialog.end(error=7, description="changed my mind")
        broker.flush()
        with broker.reader("Shop") as shop, pumped(shop):
            failure, *orders = take_with_error(broker, "Orders")
        assert error_of(failure) == ("7", "changed my mind")
        assert [m.sequence for m in orders] == [0, 1, 2]
        until_forgotten(servers, broker, dialog.id)


def test_messages_unread_by_the_ending_side_are_discarded(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for number in range(5):
            dialog.send(ORDER, b"%d" % number)
        with broker.reader("Orders", timeout=1, max_messages=2) as reader:
            fill(reader, 5)
            with next(reader) as transaction:
                messages = list(transaction)
                transaction.end(messages[0].dialog)
            assert list(reader) == []
            assert reader.owners[0].fold.state.statistics.discarded == 3
        assert [m.sequence for m in messages] == [0, 1]
        take(broker, "Shop", 1, end=True)
        until_forgotten(servers, broker, dialog.id)


def test_a_message_that_comes_after_the_end_of_the_target_is_discarded_and_the_conversation_stays_ended(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, b"first")
        dialog.flush()
        take(broker, "Orders", 1, end=True)
        dialog.send(ORDER, b"late")  # this process does not know of the end
        dialog.flush()
        with broker.reader("Orders", timeout=1) as reader:
            assert list(reader) == []
            assert reader.owners[0].fold.state.statistics.discarded == 1
        take(broker, "Shop", 1, end=True)
        until_forgotten(servers, broker, dialog.id)
        with pytest.raises(ConversationEnded):
            dialog.send(ORDER, b"much too late")


def test_a_message_to_a_conversation_that_was_forgotten_comes_back_to_its_home(servers: Servers, database: str) -> None:
    with (
        connected(servers.bootstrap, database, redis=servers.redis_url) as broker,
        connected(servers.bootstrap, database) as session,
    ):
        open_shop(broker)
        dialog = begin(session)
        dialog.send(ORDER, b"first")
        dialog.flush()
        take(broker, "Orders", 1, end=True)
        take(broker, "Shop", 1, end=True)
        until_forgotten(servers, broker, dialog.id)
        dialog.send(ORDER, b"late")  # this session reads no queue and has not heard of the end
        dialog.flush()
        with broker.reader("Orders") as orders, broker.reader("Shop") as shop, pumped(orders, shop):

            def mailbox() -> list[object]:
                return [entry for owner in shop.owners for entry in owner.fold.state.mailbox.entries]

            until(mailbox, "the message is in the mailbox of its home")
            assert len(mailbox()) == 1
            assert orders.owners[0].fold.state.statistics.bounced == 1
            assert left_in_view(broker, dialog.id) == {}


def test_an_end_that_cannot_be_is_refused_and_changes_nothing(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        mistakes: tuple[tuple[dict[str, Any], int], ...] = (
            ({"error": -1, "description": "x"}, 8419),
            ({"error": 1}, 8422),
            ({"error": 0, "description": "a reason without a code"}, 8419),
            ({"error": 1, "description": "x" * 3_001}, 8419),
            ({"error": 2**31, "description": "x"}, 8419),
        )
        for bad, number in mistakes:
            with pytest.raises(InvalidError) as refused:
                dialog.end(**bad)
            assert refused.value.number == number
        dialog.send(ORDER, b"still open")
        with broker.reader("Orders", timeout=DEADLINE_S) as reader, next(reader) as transaction:
            (message,) = transaction
            with pytest.raises(InvalidError) as refused:
                transaction.end(message.dialog, error=2**70, description="x")
            assert refused.value.number == 8419
            with pytest.raises(InvalidError) as refused:
                transaction.end(message.dialog, error=1, description="a lone surrogate \ud800")
            assert refused.value.number == 8419
            transaction.end(message.dialog, error=1, description="a reason")
            with pytest.raises(InvalidState, match="ended in this transaction"):
                transaction.end(message.dialog)
            with pytest.raises(InvalidState, match="ended in this transaction"):
                transaction.send(message.dialog, RECEIPT, b"x")
        assert error_of(take_with_error(broker, "Shop")[0]) == ("1", "a reason")
