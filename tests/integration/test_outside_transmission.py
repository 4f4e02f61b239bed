"""Every cell of docs/outside.md about the transmission queue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from konverse.schemas.errors import KonverseError, StillUsed
from tests.integration.outside import WAITING, Scene, begin_scene, forget, table
from tests.integration.outside_transmission import HARMS, HEADING, PROBES, prepare, way_on
from tests.kit.servers import Servers
from tests.kit.shop import connected

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("outside transmission")]

CELLS = table(HEADING)
ROWS = [pytest.param(row, marks=[pytest.mark.nightly]) for row in HARMS]


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest) -> str:
    """A row of the page."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def scene(row: str, servers: Servers) -> Iterator[Scene]:
    """A transaction was made, and the change happened."""
    name = f"t{uuid.uuid4().hex[:12]}"
    with ExitStack() as exits:
        exits.callback(forget, servers, name)
        exits.enter_context(suppress(KonverseError))  # closing a broker repeats its error
        scene = begin_scene(servers, name, WAITING, exits, instance=name)
        prepare(scene, HARMS[row].before)
        HARMS[row].harm(scene)
        yield scene


@pytest.mark.parametrize("column", PROBES)
def test_a_client_behaves_as_the_page_states_after_a_change_of_the_transmission_topic(
    row: str, scene: Scene, column: str
) -> None:
    assert PROBES[column](scene) == CELLS[row, column]


def test_transactions_have_a_way_on(row: str, scene: Scene) -> None:
    assert way_on(scene, HARMS[row]) == CELLS[row, "way on"]


def test_a_transmission_queue_is_dropped_by_force_alone(servers: Servers, database: str, instance: str) -> None:
    with connected(servers.bootstrap, database, instance=instance) as broker:
        broker.transmitter().close()
        with pytest.raises(StillUsed, match=r"drop_queue\('transmission', force=True\) gives up"):
            broker.admin.drop_queue("transmission")
        broker.admin.drop_queue("transmission", force=True)
        assert broker.operations.transmission_queue() is None
        broker.transmitter().close()
        assert broker.operations.transmission_queue() is not None
