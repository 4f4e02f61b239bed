"""A service goes to another queue while the processes of the old one die (behaviour 19)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from konverse.schemas.catalog import Queue
from tests.kit.servers import Servers
from tests.kit.shop import ORDER_SERVICE, connected, open_shop, receive, send_orders
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

SILENCE_S = 3.0


@pytest.mark.parametrize("before", [True, False])
def test_what_a_killed_reader_of_the_old_queue_had_is_received_on_the_new_one(
    servers: Servers, database: str, tmp_path: Path, before: bool
) -> None:
    """It is killed in a handler, before the service is moved or behind it; nobody reads the old queue then."""
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
        broker.create_queue("Later", partitions=2)
        sent = send_orders(broker, dialogs=4, messages=24)
        with Worker(job) as worker:
            worker.wait_for("holds")
            if before:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            broker.alter_service(ORDER_SERVICE, queue="Later")
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        got: dict[bytes, list[bytes]] = {}
        for message in receive(broker, "Later", 24):
            got.setdefault(message.dialog.conversation, []).append(message.body)
        assert got == sent
        verification = broker.verification([broker.catalog.get(Queue, name) for name in ("Orders", "Later", "Shop")])
        try:
            assert verification.run(lambda _count: None)[1] == []
        finally:
            verification.close()
