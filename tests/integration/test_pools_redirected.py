"""Pools behind routers that redirect: they follow by themselves, and nothing is lost, doubled or out of order (233)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.router import RoutingService
from konverse.dialog.transaction import Transaction
from konverse.routing.step import REDIRECT, REDIRECT_TO
from konverse.schemas.catalog import END_DIALOG, Queue
from konverse.schemas.errors import InvalidRoute
from tests.kit.oracle import verify
from tests.kit.pool_sender import PoolSender
from tests.kit.pools import STREAM_END, Taker, left_open, pool_of
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, RECEIPT, SHOP_SERVICE, connected, open_shop, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

STREAMING: Final = "//sales/Streaming"
NORTH: Final = "//sales/North"
FAR_NORTH: Final = "//sales/FarNorth"


def open_routed(broker: Broker) -> None:
    """The order service is a router to the north, under a contract that lets it redirect."""
    open_shop(broker, partitions=2)
    for name in (STREAM_END, REDIRECT_TO):
        broker.create_message_type(name)
    types = {ORDER: "INITIATOR", NOTE: "ANY", RECEIPT: "TARGET", STREAM_END: "INITIATOR", REDIRECT_TO: "TARGET"}
    broker.create_contract(STREAMING, types)
    for service in (NORTH, FAR_NORTH):
        queue = service.rpartition("/")[2]
        broker.create_queue(queue, partitions=2)
        broker.create_service(service, queue=queue, contracts=[STREAMING])
    broker.alter_service(ORDER_SERVICE, add=[STREAMING], drop=[*broker.catalog.service(ORDER_SERVICE).contracts])
