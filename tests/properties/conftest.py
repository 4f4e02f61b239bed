"""Settings of hypothesis: the same examples in every run of CI, new ones each time at home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

HERE: Final = Path(__file__).resolve().parent
SHRINKING_S: Final = 600
"""A failing test searches the smallest example for at most five minutes, and must not be interrupted."""

set_hypothesis_home_dir(HERE.parents[1] / ".cache" / "hypothesis")

_COMMON: Final = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", _COMMON, derandomize=True, database=None)
settings.register_profile("home", _COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "home")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time to shrink."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
