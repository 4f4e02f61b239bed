"""A shop and an order service on real servers, for each behaviour anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konverse.bridge.broker import Broker
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """Connected to a database of its own, in which the shop is open."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        yield broker
