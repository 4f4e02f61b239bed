"""Journals stay open between batches, and a driver decides equally well when they did not."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.schemas.identifiers import Address
from konverse.spark.connection import cached_clients as resting
from tests.kit.servers import Servers
from tests.kit.shop import drain, receive
from tests.spark.executions import batch_writer, run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("transmitting"),
]


def judge_of(servers: Servers, database: str, query: str) -> Address:
    """The partition where the batches of a query are decided."""
    writer = batch_writer(servers.bootstrap, database, query=query, batch="0")
    assert writer._plan is not None
    return writer._plan.judge(writer._query)[0]


def test_queries_that_are_judged_in_more_places_than_a_process_keeps_open_are_received_once(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "IDLE_CLIENTS_MAX", 1)
    names = iter(range(1_000))
    queries: dict[Address, str] = {}
    while len(queries) < 3:
        name = f"query {next(names)}"
        queries.setdefault(judge_of(servers, database, name), name)
    for batch in (0, 1, 1):
        for query in queries.values():
            written = f"{batch} of {query}".encode()
            run(batch_writer(servers.bootstrap, database, query=query, batch=str(batch)), [("key", written)])
    got = sorted(message.body for message in receive(shop, "Orders", 6))
    assert got == sorted(f"{batch} of {query}".encode() for batch in range(2) for query in queries.values())
    assert drain(shop, "Orders") == []
