"""What tests share."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_POLL_S = 0.01


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Wait until a condition holds; fail the test when it does not within the deadline."""
    give_up = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"{condition} did not hold within {deadline_s} s")
        time.sleep(_POLL_S)
