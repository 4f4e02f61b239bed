"""A query with random rows, whose workers, commits and drivers are killed: each row is received once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from tests.kit.servers import Servers
from tests.kit.shop import drain, receive, until
from tests.spark.deadly import Driver
from tests.spark.deadly_query import OF_DRIVERS, POINTS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("spark", "transmitting"),
]

FILES: Final = 6
LINES: Final = 60
RUN_S: Final = 180.0


def test_each_row_is_received_once_although_workers_and_drivers_are_killed(
    servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    for folder in ("in", "deaths"):
        (tmp_path / folder).mkdir()
    bodies = [f"{file}/{line}" for file in range(FILES) for line in range(LINES)]
    for file in range(FILES):
        (tmp_path / "in" / f"{file}.txt").write_text("\n".join(bodies[file * LINES : (file + 1) * LINES]), "utf-8")
        time.sleep(0.01)
    for point in (*OF_DRIVERS, None):
        query = Driver(tmp_path, "tests.spark.deadly_query", servers.bootstrap, database, str(tmp_path))
        try:
            awaited = tmp_path / "deaths" / point if point else tmp_path / "done"
            until(lambda awaited=awaited, query=query: awaited.exists() or query.over, awaited.name, RUN_S)  # type: ignore[misc]
            assert awaited.exists(), (tmp_path / "log").read_text("utf-8")[-3_000:]
        finally:
            query.kill()
    assert sorted(path.name for path in (tmp_path / "deaths").iterdir()) == sorted(POINTS)
    got = Counter(message.body.decode() for message in receive(shop, "Orders", len(bodies)))
    assert got == Counter(bodies)
    assert drain(shop, "Orders") == []
