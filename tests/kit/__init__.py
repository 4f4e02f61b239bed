"""Helpers shared by all test folders."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_POLL_S = 0.01


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Poll until `condition` is true. Fail the test if it is still false after `deadline_s`."""
    give_up = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"{condition} did not hold within {deadline_s} s")
        time.sleep(_POLL_S)
