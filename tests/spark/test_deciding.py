"""Journals stay open from one batch to the next, and a driver decides as well when they did not."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.spark import resting
from tests.kit.servers import Servers
from tests.kit.shop import drain, receive
from tests.spark.executions import batch_writer, run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("transmitting"),
]


@pytest.mark.parametrize("kept", [1, resting.RESTING_MAX])
def test_queries_that_are_judged_in_more_places_than_a_process_keeps_open_are_received_once(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(resting, "RESTING_MAX", kept)
    judges = set()
    for batch in (0, 1, 1):
        for query in range(6):
            options = {"query": f"query {query}", "batch": str(batch)}
            writer = batch_writer(servers.bootstrap, database, **options)
            judges.add(writer._plan.judge(writer._query))  # type: ignore[union-attr]  # in this test alone
            run(writer, [("key", b"%d of %d" % (batch, query))])
    assert len(judges) > kept - 1, "they have to take each other's place"
    got = sorted(message.body for message in receive(shop, "Orders", 12))
    assert got == sorted(b"%d of %d" % (batch, query) for batch in range(2) for query in range(6))
    assert drain(shop, "Orders") == []
