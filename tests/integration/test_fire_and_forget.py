"""A client that sends and ends without waiting gets a warning, once for each way of sending; other clients get none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.system_messages import DEFAULT, ERROR, read_error
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    answer,
    begin,
    connected,
    drain,
    end_at_target,
    handle,
    open_shop,
    receive,
    sent,
)

pytestmark = pytest.mark.stack


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Warnings about fire and forget."""
    return lambda: [text for text in caplog.messages if "fire and forget" in text]


def test_a_client_that_sends_and_ends_is_warned_once_for_each_way(
    servers: Servers, database: str, warnings: Callable[[], list[str]]
) -> None:
    for _ in range(2):
        with connected(servers.bootstrap, database) as broker:
            if not broker.catalog.all(Queue):
                open_shop(broker)
            for _ in range(3):
                sent(broker, b"0").end()
    (said,) = warnings()
    assert f"from service {SHOP_SERVICE!r} to service {ORDER_SERVICE!r} under contract {ORDERING!r}" in said
    assert "Let the other side end first" in said
    assert "lifetime" not in said, "it helps neither the message nor a target that does not end"
    with connected(servers.bootstrap, database) as broker:
        dialog = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE)
        dialog.send(DEFAULT, b"another way")
        dialog.end()
        assert len(warnings()) == 2


def test_a_lifetime_is_no_excuse(servers: Servers, database: str, warnings: Callable[[], list[str]]) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker, lifetime=3_600)
        dialog.send(ORDER)
        dialog.end()
        assert len(warnings()) == 1, "an Error of the other side is lost all the same"


def test_a_transaction_that_sends_and_ends_is_one(
    servers: Servers, database: str, warnings: Callable[[], list[str]]
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with broker.transaction() as transaction:
            transaction.end(transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING))
        assert warnings() == []
        with broker.transaction() as transaction:
            dialog = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            transaction.send(dialog, ORDER)
            transaction.end(dialog)
        assert len(warnings()) == 1


def test_a_handler_that_begins_sends_and_ends_is_one(
    servers: Servers, database: str, warnings: Callable[[], list[str]]
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)

        def work(handler: Callable[[Transaction], None]) -> None:
            sent(broker, b"0")
            end_at_target(broker)
            with broker.reader("Shop", timeout=2) as reader:
                reader.run(handler)

        def ask(transaction: Transaction) -> None:
            transaction.end(transaction.dialog)
            transaction.send(transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING), NOTE)

        def forget(transaction: Transaction) -> None:
            transaction.end(transaction.dialog)
            begun = transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
            transaction.send(begun, NOTE)
            transaction.end(begun)

        work(ask)
        assert warnings() == []
        work(forget)
        assert len(warnings()) == 1


def test_an_error_is_lost_for_an_initiator_that_has_ended_and_received_by_one_that_waits(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for waits in (False, True):
            dialog = broker.begin_dialog(SHOP_SERVICE, SHOP_SERVICE, ORDERING)  # it accepts no contract
            dialog.send(ORDER)
            if not waits:
                dialog.end()
            broker.flush()
            errors = [read_error(message.body)[0] for message in drain(broker, "Shop") if message.type == ERROR]
            assert errors == ([-8408] if waits else [])


def after_a_reply(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    with broker.reader("Orders", timeout=2) as orders:
        answer(orders)
    with broker.reader("Shop", timeout=2) as shop:
        assert [message for transaction in shop for message in taken(transaction)]
        dialog.end()


def after_a_reply_to_a_reader_that_was_closed(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    with broker.reader("Orders", timeout=2) as orders:
        answer(orders)
    receive(broker, "Shop", 1)
    dialog.end()


def after_the_end_of_the_peer(broker: Broker, error: int = 0) -> None:
    dialog = sent(broker, b"0")
    end_at_target(broker, error)
    drain(broker, "Shop")
    dialog.end()


def in_a_handler(broker: Broker) -> None:
    sent(broker, b"0")
    end_at_target(broker)
    handle(broker, "Shop", lambda transaction: transaction.end(transaction.dialog))


def with_an_error(broker: Broker) -> None:
    sent(broker, b"0").end(error=4711, description="no more")


def nothing_sent(broker: Broker) -> None:
    begin(broker).end()


@pytest.mark.parametrize(
    "use",
    [
        after_a_reply,
        after_a_reply_to_a_reader_that_was_closed,
        after_the_end_of_the_peer,
        lambda broker: after_the_end_of_the_peer(broker, error=1),
        in_a_handler,
        with_an_error,
        nothing_sent,
    ],
    ids=["reply", "closed reader", "EndDialog", "Error", "handler", "WITH ERROR", "nothing sent"],
)
def test_an_end_that_is_not_fire_and_forget_logs_no_warning(
    servers: Servers, database: str, warnings: Callable[[], list[str]], use: Callable[[Broker], None]
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        use(broker)
    assert warnings() == []


def taken(transaction: Transaction) -> list[Message]:
    with transaction:
        return list(transaction)
