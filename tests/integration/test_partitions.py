"""Readers that are told which partitions to take."""

from __future__ import annotations

import pytest

from konverse.bridge.reader import Reader
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import (
    answer,
    connected,
    open_shop,
    queue_of,
    send_orders,
)

pytestmark = pytest.mark.stack


def test_a_reader_takes_the_partitions_that_it_is_told_to_take(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=4)
        sent = send_orders(broker, dialogs=20, messages=40)
        readers: list[Reader] = [broker.reader("Orders", partitions=pair, timeout=1) for pair in ((0, 1), (2, 3))]
        assert [reader.partitions for reader in readers] == [{0, 1}, {2, 3}]
        assert sum(answer(reader) for reader in readers) == 40
        for reader in readers:
            reader.close()
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
