"""A router with random decisions, whose workers and drivers are killed: each message arrives once, at one service."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.objects import Queue
from konverse.spark import route
from tests.kit.regions import BY_REGION, answer_rounds, check_replies, heard, open_regions, send_round
from tests.kit.servers import Servers
from tests.kit.shop import begin, until
from tests.spark.deadly import Driver
from tests.spark.deadly_router import OF_DRIVERS, OF_TASKS_DRIVERS, POINTS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

DIALOGS: Final = 60
MESSAGES: Final = 4
RUN_S: Final = 180.0


def test_each_message_arrives_once_although_workers_and_drivers_are_killed(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    open_regions(shop)
    (tmp_path / "deaths").mkdir()
    dialogs = [begin(shop) for _ in range(DIALOGS)]
    for number in range(MESSAGES):
        send_round(dialogs, number)
    shop.flush()
    for point, where in ((OF_TASKS_DRIVERS[0], "tasks"), *((point, "driver") for point in (*OF_DRIVERS, None))):
        deadly = Driver(tmp_path, "tests.spark.deadly_router", servers.bootstrap, database, str(tmp_path), where)
        try:
            awaited = tmp_path / "deaths" / point if point else tmp_path / "done"
            until(lambda awaited=awaited, deadly=deadly: awaited.exists() or deadly.over, awaited.name, RUN_S)  # type: ignore[misc]
            assert awaited.exists(), (tmp_path / "log").read_text("utf-8")[-3_000:]
        finally:
            deadly.kill()
    assert sorted(path.name for path in (tmp_path / "deaths").iterdir()) == sorted(POINTS)

    arrived = answer_rounds(shop, DIALOGS, MESSAGES)
    place: dict[str, Any] = {"kafka": f"kafka://{servers.bootstrap}", "database": database, "timeout": 2.0}
    assert route(spark, "Orders", BY_REGION, **place).replied == DIALOGS * MESSAGES
    check_replies(heard(shop, DIALOGS * MESSAGES), dialogs, arrived, MESSAGES)
    _, findings = shop.operations.verification(shop.catalog.all(Queue)).run()
    assert findings == []
