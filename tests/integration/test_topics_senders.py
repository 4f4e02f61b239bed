"""Senders whose topics were deleted or recreated, or whose queue was dropped, never report a false success."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from confluent_kafka.admin import AdminClient

import konverse
from konverse.bridge.kafka.topics import DATA_CONFIG
from konverse.schemas.errors import OutcomeUnknown, TopicMismatch
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    SHOP_SERVICE,
    begin,
    connected,
    open_shop,
    queue_of,
    receive,
)
from tests.kit.topics import create, delete

pytestmark = pytest.mark.stack


@pytest.fixture
def admin(servers: Servers) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers.bootstrap})


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
def test_an_open_sender_reports_no_success_for_a_deleted_or_recreated_topic(
    servers: Servers, database: str, admin: AdminClient, again: bool
) -> None:
    with pytest.raises(OutcomeUnknown, match="closed before Kafka had acknowledged") if not again else nullcontext():  # noqa: SIM117
        with connected(servers.bootstrap, database) as broker:
            open_shop(broker)
            broker.admin.create_queue("Other")
            broker.admin.create_service("//other", queue="Other", contracts=[ORDERING])
            dialog, beside, third = begin(broker), broker.begin_dialog(SHOP_SERVICE, "//other", ORDERING), begin(broker)
            dialog.send(ORDER, b"0")
            broker.flush()
            topic = queue_of(broker, "Orders").topic
            delete(admin, topic)
            if again:
                create(admin, topic, 1, DATA_CONFIG)
            what = f"topic {topic} was deleted" + (" and created again" if again else "")
            dialog.send(ORDER, b"1")
            for call in (
                dialog.flush,
                broker.flush,
                lambda: dialog.send(ORDER, b"2"),
                lambda: dialog.set_timer(1),
                dialog.cancel_timer,
                dialog.end,
                lambda: third.send(ORDER, b"0"),
                lambda: begin(broker),
                lambda: broker.send([dialog, beside], ORDER, b"3"),
            ):
                with pytest.raises(TopicMismatch, match=what):
                    call()
            beside.send(ORDER, b"others go on")
            beside.flush()
            assert [message.body for message in receive(broker, "Other", 1)] == [b"others go on"]


def test_a_new_sender_and_a_transaction_report_no_success_for_a_recreated_topic(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
    delete(admin, topic)
    create(admin, topic, 1, DATA_CONFIG)
    with connected(servers.bootstrap, database) as broker:
        begin(broker).send(ORDER, b"0")
        remedy = "Drop its queue (`drop_queue` with force=True) and create it again"
        with pytest.raises(TopicMismatch, match=f"deleted and created again.* {re.escape(remedy)}"):
            broker.flush()
    with connected(servers.bootstrap, database) as broker:
        with broker.transaction() as transaction:
            transaction.send(transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING), ORDER, b"0")
        with pytest.raises(TopicMismatch, match="deleted and created again"):
            broker.flush()
    broker = konverse.connect(f"kafka://{servers.bootstrap}", database=database)
    begin(broker).send(ORDER, b"nobody flushes")
    with pytest.raises((TopicMismatch, OutcomeUnknown), match=rf"{re.escape(topic)} was.* deleted|topics deleted"):
        broker.close()  # before or after Kafka has it


def test_a_sender_reports_no_success_for_a_queue_that_was_dropped_and_recreated(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as another:
        open_shop(broker)
        dialog = begin(broker)
        dialog.flush()
        another.admin.drop_service(ORDER_SERVICE)
        another.admin.drop_queue("Orders")
        another.admin.create_queue("Orders")
        another.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
        dialog.send(ORDER, b"for the first queue")
        with pytest.raises(TopicMismatch, match="was dropped and created again: messages on dialogs"):
            dialog.flush()
        fresh = begin(broker)
        fresh.send(ORDER, b"for the second one")
        fresh.flush()
        assert [message.body for message in receive(broker, "Orders", 1)] == [b"for the second one"]


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "transaction"])
def test_a_sender_reports_no_success_for_a_queue_that_was_dropped(
    servers: Servers, database: str, instance: str, staged: bool
) -> None:
    with (
        connected(servers.bootstrap, database, instance=instance) as broker,
        connected(servers.bootstrap, database, instance=instance) as another,
    ):
        open_shop(broker)
        broker.admin.create_queue("Other")
        broker.admin.create_service("//other", queue="Other", contracts=[ORDERING])
        dialog, beside = begin(broker), broker.begin_dialog(SHOP_SERVICE, "//other", ORDERING)
        dialog.flush()
        another.admin.drop_service(ORDER_SERVICE)
        another.admin.drop_queue("Orders", force=True)
        if staged:
            with broker.transaction() as transaction:
                transaction.send(dialog, ORDER, b"for nobody")
        with pytest.raises((TopicMismatch, OutcomeUnknown), match="was dropped: messages that it had not received"):
            broker.flush(20) if staged else dialog.flush(20)
        for call in (lambda: dialog.send(ORDER, b"1"), dialog.flush, lambda: dialog.set_timer(1)):
            with pytest.raises(TopicMismatch, match="was dropped: messages that it had not received are lost"):
                call()
        beside.send(ORDER, b"others go on")
        beside.flush()
        assert [message.body for message in receive(broker, "Other", 1)] == [b"others go on"]


def test_a_destination_that_refuses_does_not_keep_the_others_from_being_acknowledged(
    servers: Servers, database: str, admin: AdminClient
) -> None:
    with connected(servers.bootstrap, database, send_timeout_s=20) as broker:
        open_shop(broker)
        broker.admin.create_queue("Gone")
        broker.admin.create_service("//gone", queue="Gone", contracts=[ORDERING])
        good, lost = begin(broker), broker.begin_dialog(SHOP_SERVICE, "//gone", ORDERING)
        good.send(ORDER, b"0")
        lost.send(ORDER, b"0")
        broker.flush()
        delete(admin, queue_of(broker, "Gone").topic)
        lost.send(ORDER, b"1")
        with pytest.raises(TopicMismatch, match="was deleted"):
            lost.flush(8)
        for number in range(1, 6):
            good.send(ORDER, b"%d" % number)
            good.flush()
        fresh = begin(broker)
        fresh.send(ORDER, b"a new dialog")
        fresh.flush()
        with pytest.raises(OutcomeUnknown, match="given up"):
            good._sender.close(0.1)
