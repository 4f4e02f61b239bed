"""A service moves to another queue while processes of the old queue die (behaviour 19)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from konverse.schemas.catalog.objects import Queue
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, connected, living, open_shop, receive, send_orders, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

SILENCE_S = 3.0


@pytest.mark.parametrize("before", [True, False])
def test_unfinished_messages_of_a_killed_reader_are_received_on_the_new_queue(
    servers: Servers, database: str, tmp_path: Path, before: bool
) -> None:
    """A reader is killed in a handler, before or after the service is moved. The old queue then has no reader."""
    settings = {"silence_timeout_s": SILENCE_S}
    job = Job(
        servers.bootstrap,
        database,
        str(tmp_path / "diary"),
        batch=2,
        idle_s=None,
        hold_on="order 0",
        release=str(tmp_path / "never"),
        settings=settings,
    )
    with connected(servers.bootstrap, database, **settings) as broker:
        open_shop(broker)
        broker.admin.create_queue("Later", partitions=2)
        sent = send_orders(broker, dialogs=4, messages=24)
        with Worker(job) as worker:
            worker.wait_for("holds")
            if before:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            broker.admin.alter_service(ORDER_SERVICE, queue="Later")
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        got: dict[bytes, list[bytes]] = {}
        for message in receive(broker, "Later", 24):
            got.setdefault(message.dialog.conversation, []).append(message.body)
        assert got == sent
        verification = broker.operations.verification(
            [broker.catalog.get(Queue, name) for name in ("Orders", "Later", "Shop")]
        )
        assert verification.run()[1] == []


def test_the_reader_lock_is_not_held_while_the_catalog_is_read(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka may answer slowly: no handler waits for the reader meanwhile."""
    held: list[bool] = []
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.create_queue("Later", partitions=2)
        refresh = broker.catalog.refresh
        with broker.reader("Orders") as orders:
            reader_lock: Any = orders._lock

            def watched() -> None:
                held.append(reader_lock._is_owned())
                refresh()

            monkeypatch.setattr(broker.catalog, "refresh", watched)
            orders.wait_for_partitions(1)
            broker.admin.alter_service(ORDER_SERVICE, queue="Later")
            held.clear()
            until(lambda: living(orders) or orders._driver.catalog_changes.service_moves.places, "the reader knows")
    assert held
    assert not any(held)
