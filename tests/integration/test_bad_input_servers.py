"""Servers that do not answer, invalid settings, and closed objects."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

import konverse
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.catalog.objects import MessageType
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    begin,
    connected,
    open_shop,
    receive,
)

pytestmark = pytest.mark.stack

UNREACHABLE_WITHIN_S = 12


def test_a_broker_that_does_not_run_is_a_typed_error_in_good_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="no Kafka broker answers at") as caught:
        konverse.connect(f"kafka://127.0.0.1:{port}", database="any")
    assert time.monotonic() - started < UNREACHABLE_WITHIN_S
    assert caught.value.retriable


def test_something_that_listens_and_never_answers_is_a_typed_error_in_good_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        with pytest.raises(KafkaUnavailable, match="correct the address"):
            konverse.connect(f"kafka://127.0.0.1:{server.getsockname()[1]}", database="any")
        assert time.monotonic() - started < UNREACHABLE_WITHIN_S


# ------------------------------------------------------------------------------------------------------------ closed


def test_every_call_on_a_closed_broker_raises_broker_closed(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        dialog: Dialog = begin(broker)
        dialog.send(ORDER, b"x")
        reader, views = broker.reader("Orders"), broker.views
    calls: list[Callable[[], object]] = [
        lambda: broker.admin.create_message_type("late"),
        lambda: broker.admin.create_contract("late", {ORDER: "ANY"}),
        lambda: broker.admin.create_queue("late"),
        lambda: broker.admin.create_service("late", queue="Orders"),
        lambda: begin(broker),
        lambda: broker.reader("Orders"),
        lambda: broker.view("Orders"),
        lambda: broker.views,
        views.services,
        lambda: views.contents("Orders"),
        lambda: dialog.send(ORDER, b"late"),
        dialog.end,
        lambda: reader.wait_for_partitions(1),
        lambda: list(reader),
        lambda: reader.run(lambda transaction: None),
    ]
    for call in calls:
        with pytest.raises(BrokerClosed, match="was closed"):
            call()
    assert reader.closed
    for close in (broker.close, reader.close, broker.close, reader.settle):
        close()
    broker.flush()  # there is nothing to wait for
    with connected(servers.bootstrap, database) as again:
        assert again.catalog.find(MessageType, "late") is None
        assert len(receive(again, "Orders", 1)) == 1
