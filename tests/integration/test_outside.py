"""Every cell of docs/outside.md: the errors of each client after a change of a queue's topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from konverse.schemas.errors import KonverseError
from tests.integration.outside import HARMS, QUICK, Scene, begin_scene, table
from tests.integration.outside_columns import PROBES, said_truly
from tests.kit.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("outside")]

CELLS = table()
ROWS = [pytest.param(row, marks=[] if row in QUICK else [pytest.mark.nightly]) for row in HARMS]


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest) -> str:
    """A row of the page."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def scene(row: str, servers: Servers) -> Iterator[Scene]:
    """All clients, after the change."""
    with ExitStack() as exits:
        exits.enter_context(suppress(KonverseError))  # closing a broker repeats its error
        scene = begin_scene(servers, f"t{uuid.uuid4().hex[:12]}", HARMS[row].before, exits)
        HARMS[row].harm(scene)
        yield scene


@pytest.mark.parametrize("column", PROBES)
def test_a_client_behaves_as_the_page_states_after_a_topic_change(row: str, scene: Scene, column: str) -> None:
    if column == "drop and create":
        said_truly(scene, HARMS[row])
    assert PROBES[column](scene) == CELLS[row, column]
