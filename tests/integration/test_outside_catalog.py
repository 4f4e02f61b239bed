"""Every cell of docs/outside.md about the catalog."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pytest

from konverse.bridge.catalog.catalog import FRESH_EVERY_S
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import catalog_topic
from tests.integration.outside import LogLines, Scene, begin_scene, forget, table
from tests.integration.outside_catalog import HARMS, HEADING, PROBES, way_on
from tests.kit.servers import Servers
from tests.kit.shop import until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("outside catalog")]

CELLS = table(HEADING)
QUICK = ("deleted", "partitions added")
ROWS = [pytest.param(row, marks=[] if row in QUICK else [pytest.mark.nightly]) for row in HARMS]


class Happened(NamedTuple):
    """A row of the page, and its results."""

    row: str
    scene: Scene
    said: LogLines


@pytest.fixture(scope="module", params=ROWS)
def happened(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Happened]:
    """All clients, after the change."""
    name = f"t{uuid.uuid4().hex[:12]}"
    with ExitStack() as exits:
        exits.callback(forget, servers, name)
        exits.enter_context(suppress(KonverseError))  # closing a broker repeats its error
        said = LogLines("konverse.catalog", exits)
        scene = begin_scene(servers, name, HARMS[request.param].before, exits, instance=name)
        HARMS[request.param].harm(scene)
        yield Happened(request.param, scene, said)


def test_the_log_of_a_reader_names_it_once(happened: Happened) -> None:
    topic = catalog_topic(happened.scene.broker.settings.instance)
    until(lambda: happened.said.lines, "the line")
    time.sleep(FRESH_EVERY_S + 0.5)  # it has looked again
    (line,) = happened.said.lines
    assert f"topic {topic}" in line
    assert ("Kafka cannot remove partitions" if happened.row == "partitions added" else "kafka-") in line


@pytest.mark.parametrize("column", PROBES)
def test_a_client_behaves_as_the_page_states_after_a_change_of_the_catalog_topic(
    happened: Happened, column: str
) -> None:
    assert PROBES[column](happened.scene) == CELLS[happened.row, column]


def test_there_is_a_way_on(happened: Happened) -> None:
    assert way_on(happened.scene, HARMS[happened.row]) == CELLS[happened.row, "way on"]
