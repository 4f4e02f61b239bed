"""The shop and the order service on real servers, new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konverse.bridge.broker import Broker
from tests.kit.servers import Servers
from tests.kit.shop import connected, open_shop


@pytest.fixture
def broker(servers: Servers, database: str) -> Iterator[Broker]:
    """A broker of a new database with the shop."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        yield broker
