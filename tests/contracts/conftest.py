"""The two stands: each test runs on both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.conftest import DISTURBED

from .simulated import Simulated
from .stand import Stand


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.stack)])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    if request.param == "simulated":
        yield Simulated()
        return
    from .real import opened

    servers = request.getfixturevalue("servers")
    with opened(servers.bootstrap, request.getfixturevalue("database")) as real:
        yield real


OWN_KAFKA: Final = (pytest.mark.stack, pytest.mark.xdist_group(DISTURBED))


@pytest.fixture(params=["simulated", pytest.param("real", marks=OWN_KAFKA)])
def own_stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    """A stand with a Kafka of its own, which can be silenced."""
    if request.param == "simulated":
        yield Simulated()
        return
    from .real import opened

    stack = request.getfixturevalue("own_stack")
    with opened(stack.bootstrap, request.getfixturevalue("database"), stack) as real:
        yield real
