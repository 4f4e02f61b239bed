"""The clock that owners and followers are told."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The machine's monotonic clock; only durations are taken from it."""
    return time.monotonic_ns() // 1_000_000
