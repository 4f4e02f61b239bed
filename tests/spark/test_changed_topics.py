"""Reads of a queue whose topics were deleted or recreated give an error, never an empty result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.topics import topics_of
from konverse.schemas.errors import TopicMismatch
from konverse.schemas.identifiers import journal_topic
from konverse.spark.source import KonverseDataSource
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, begin, queue_of
from tests.kit.topics import create, delete

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("spark")]


CONVERSATIONS = StructType([StructField("conversation", BinaryType())])


def reads(servers: Servers, database: str, tmp_path: Path) -> dict[str, Callable[[], Any]]:
    """Name → a function that plans a read of the queue. One stream of each mode was started before."""
    calls: dict[str, Callable[[], Any]] = {}
    for mode in ("messages", "journal", "conversations", "returned"):
        options = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders", "mode": mode}
        source = KonverseDataSource(options)
        calls[f"read of {mode}"] = partial(plan, source)
        if mode in ("messages", "journal"):
            source = KonverseDataSource({**options, "stateFolder": str(tmp_path / mode)})
            calls[f"start of a stream of {mode}"] = partial(start, source)
            calls[f"stream of {mode} that goes on"] = partial(go_on, source, start(source))
    return calls


def plan(source: KonverseDataSource) -> None:
    source.reader(CONVERSATIONS).partitions()


def start(source: KonverseDataSource) -> Any:
    made = source.streamReader(CONVERSATIONS)
    try:
        return made.initialOffset()
    finally:
        made.stop()


def go_on(source: KonverseDataSource, position: Any) -> None:
    made = source.streamReader(CONVERSATIONS)
    try:
        made.latestOffset(position, ReadAllAvailable())
    finally:
        made.stop()


@pytest.mark.parametrize("change", ["data deleted", "data made again", "journal deleted", "journal made again"])
def test_a_read_and_a_start_of_a_stream_name_a_topic_that_is_not_the_queues_any_more(
    servers: Servers, shop: Broker, database: str, tmp_path: Path, change: str
) -> None:
    begin(shop).send(ORDER, b"0")
    shop.flush()
    calls = reads(servers, database, tmp_path)
    for call in calls.values():
        call()
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    data = queue_of(shop, "Orders").topic
    topic = journal_topic(data) if "journal" in change else data
    delete(admin, topic)
    if change.endswith("again"):
        create(admin, topic, 2, dict(topics_of(data)[topic]))
    for name, call in calls.items():
        try:
            call()
        except TopicMismatch as error:
            assert topic in str(error), name  # noqa: PT017  # names the failing read
        else:
            pytest.fail(f"{name} says nothing")
