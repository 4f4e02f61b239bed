"""Every cell of "Spark at a changed queue" in docs/outside.md: reads, streams and writes after a change of topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from konverse.schemas.errors import DialogNotFound, KonverseError
from konverse.spark.source import KonverseDataSource
from tests.integration.outside import HARMS, QUICK, Scene, begin_scene, table
from tests.integration.outside_columns import word_for
from tests.kit.oracle import read_raw
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE
from tests.spark.executions import batch_writer, run

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("outside"), pytest.mark.usefixtures("transmitting")]

HEADING: Final = "Spark at a changed queue"
CELLS = table(HEADING)
ROWS = [pytest.param(row, marks=[] if row in QUICK else [pytest.mark.nightly]) for row in HARMS]
BODIES: Final = StructType([StructField("body", BinaryType())])
IDS: Final = StructType([StructField("conversation", BinaryType())])
FURTHER: Final = b"further"


@dataclass
class Place:
    """A changed queue, and a stream that was started before the change."""

    scene: Scene
    running: Any
    """The stream's reader."""
    position: Any
    """Offsets up to which it has read."""
    folder: Path

    def source(self, mode: str, **options: str) -> KonverseDataSource:
        settings = self.scene.broker.settings
        given = {"bootstrap": self.scene.servers.bootstrap, "database": self.scene.broker.database}
        return KonverseDataSource({**given, "instance": settings.instance, "queue": "Orders", "mode": mode, **options})


def _values(parts: Any, read: Callable[[Any], Any], column: str) -> list[bytes]:
    return [row[column] for part in parts for batch in read(part) for row in batch.to_pylist()]


def _in_the_log(place: Place, body: bytes) -> int:
    """Number of records with this body in the partition that the queue knows."""
    topic, _ = place.scene.topics
    return sum(record.value == body for record in read_raw(place.scene.servers.bootstrap, topic, 0))


def read(place: Place) -> str:
    reader = place.source("messages").reader(BODIES)
    bodies = _values(reader.partitions(), reader.read, "body")
    assert bodies.count(b"before") == _in_the_log(place, b"before"), "each message in the log is a row"
    return "goes on"


def conversations(place: Place) -> str:
    reader = place.source("conversations").reader(IDS)
    found = _values(reader.partitions(), reader.read, "conversation")
    assert place.scene.waiting.id.bytes in found or not _in_the_log(place, b"before")
    return "goes on"


def next_stream(place: Place) -> str:
    stream = place.source("messages", stateFolder=str(place.folder / "next")).streamReader(BODIES)
    try:
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        bodies = _values(stream.partitions(start, end), stream.read, "body")
    finally:
        stream.stop()
    assert bodies.count(b"before") == _in_the_log(place, b"before"), "each message in the log is a row"
    return "goes on"


def running_stream(place: Place) -> str:
    sent = False
    with suppress(KonverseError), place.scene.another() as another:
        dialog = another.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        dialog.send(ORDER, FURTHER)
        dialog.flush()
        sent = True
    stream, start = place.running, place.position
    end = stream.latestOffset(start, ReadAllAvailable())
    bodies = _values(stream.partitions(start, end), stream.read, "body")
    assert not sent or FURTHER in bodies
    place.position = end
    return "goes on"


def write(place: Place) -> str:
    settings = place.scene.broker.settings
    options = {"instance": settings.instance, "deliveryTimeout": "6"}
    run(batch_writer(place.scene.servers.bootstrap, place.scene.broker.database, **options), [("key", b"of Spark")])
    assert _in_the_log(place, b"of Spark") == 1
    return "goes on"


PROBES: Final[dict[str, Callable[[Place], str]]] = {
    "running stream": running_stream,
    "read": read,
    "conversations": conversations,
    "next stream": next_stream,
    "write": write,
}
"""Column of the page → the attempt."""


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest) -> str:
    """A row of the page."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def place(row: str, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All clients, after the change."""
    with ExitStack() as exits:
        exits.enter_context(suppress(KonverseError))  # closing a broker repeats its error
        scene = begin_scene(servers, f"t{uuid.uuid4().hex[:12]}", HARMS[row].before, exits)
        place = Place(scene, None, None, tmp_path_factory.mktemp("streams"))
        place.running = place.source("messages", stateFolder=str(place.folder / "running")).streamReader(BODIES)
        exits.callback(place.running.stop)
        start = place.running.initialOffset()
        place.position = place.running.latestOffset(start, ReadAllAvailable())
        assert b"before" in _values(place.running.partitions(start, place.position), place.running.read, "body")
        HARMS[row].harm(scene)
        yield place


@pytest.mark.parametrize("column", PROBES)
def test_spark_behaves_as_the_page_states_after_a_topic_change(row: str, place: Place, column: str) -> None:
    try:
        word = PROBES[column](place)
    except DialogNotFound:
        word = "finds none"
    except KonverseError as error:
        word = word_for(error, place.scene.topics)
    assert word == CELLS[row, column]
