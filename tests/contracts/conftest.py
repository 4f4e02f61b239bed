"""The two stands: each test here runs on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .simulated import Simulated
from .stand import Stand


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.stack)])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    if request.param == "simulated":
        yield Simulated()
        return
    from .real import opened

    with opened(request.getfixturevalue("servers"), request.getfixturevalue("database")) as real:
        yield real
