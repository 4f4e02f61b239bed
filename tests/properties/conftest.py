"""Time for the properties to shrink a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).resolve().parent
SHRINKING_S: Final = 600
"""A failing test searches the smallest example for at most five minutes, and must not be interrupted."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time to shrink."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
