"""Administrators who change the catalog at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.schemas.catalog.objects import MessageType, Service
from konverse.schemas.errors import AlreadyExists
from konverse.schemas.system_messages import DEFAULT
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER_SERVICE,
    ORDERING,
    connected,
    open_shop,
)

pytestmark = pytest.mark.stack

UNREACHABLE_WITHIN_S = 12


def test_administrators_at_the_same_time_lose_no_change(servers: Servers, database: str) -> None:
    def administer(name: int) -> list[str]:
        refused = []
        with connected(servers.bootstrap, database) as broker:
            for number in range(4):
                broker.admin.create_message_type(f"{name}/{number}")
                try:
                    broker.admin.create_message_type(f"everybody's {number}")
                except AlreadyExists:
                    refused.append(f"everybody's {number}")
        return refused

    with ThreadPoolExecutor(3) as pool:
        refused = [name for names in pool.map(administer, range(3)) for name in names]
    with connected(servers.bootstrap, database) as broker:
        names = {kind.name for kind in broker.catalog.all(MessageType)}
    assert names == {
        "DEFAULT",
        *SYSTEM_TYPES,
        *(f"{name}/{number}" for name in range(3) for number in range(4)),
        *(f"everybody's {number}" for number in range(4)),
    }
    assert sorted(refused) == sorted([f"everybody's {number}" for number in range(4)] * 2)


def test_concurrent_alterations_of_a_service_do_not_undo_each_other(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as another:
        open_shop(broker)
        for name in ("First", "Second"):
            broker.admin.create_queue(name)
        another.catalog.get(Service, ORDER_SERVICE)
        with ThreadPoolExecutor(3) as pool:
            calls = [
                pool.submit(broker.admin.alter_service, ORDER_SERVICE, queue="First"),
                pool.submit(another.admin.alter_service, ORDER_SERVICE, add=[DEFAULT]),
                pool.submit(another.admin.alter_service, ORDER_SERVICE, queue="Second"),
            ]
            for call in calls:
                call.result()
        another.catalog.refresh()
        service = another.catalog.get(Service, ORDER_SERVICE)
    assert set(service.contracts) == {ORDERING, DEFAULT}
    assert {service.queue, *service.queues_before} == {"Orders", "First", "Second"}
