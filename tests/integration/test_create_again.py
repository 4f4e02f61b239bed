"""CREATE of an existing object: refused, or with `if_not_exists` allowed when it is the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import AlreadyExists
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, connected

pytestmark = pytest.mark.stack


def create(broker: Broker, *, partitions: int = 2, side: str = "TARGET", contracts: tuple[str, ...] = ()) -> Queue:
    again: dict[str, Any] = {"if_not_exists": True}
    broker.admin.create_message_type(ORDER, **again)
    broker.admin.create_message_type(RECEIPT, **again)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", RECEIPT: side}, **again)
    queue = broker.admin.create_queue("Orders", partitions=partitions, **again)
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=(ORDERING, *contracts), **again)
    return queue


def test_if_not_exists_accepts_identical_objects_even_from_two_programs_at_once(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as one, connected(servers.bootstrap, database) as other:
        with ThreadPoolExecutor(2) as pool:
            queues = set(pool.map(create, (one, other)))
        assert len(queues) == 1
        assert create(one) in queues


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": 3}, "queue 'Orders'.*already, with partitions 2, not 3"),
        ({"side": "ANY"}, "contract.*with sent_by .*'//sales/Receipt': 'TARGET'.*not .*'//sales/Receipt': 'ANY'"),
        ({"contracts": ("DEFAULT",)}, "service.*with contracts .*, not .*'DEFAULT'"),
    ],
)
def test_the_error_names_the_difference_from_the_existing_object(
    servers: Servers, database: str, options: dict[str, Any], words: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        create(broker)
        with pytest.raises(AlreadyExists, match=words):
            create(broker, **options)
        with pytest.raises(AlreadyExists, match=r"already$"):
            broker.admin.create_message_type(ORDER)
