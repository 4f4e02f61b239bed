"""The clock that owners, followers and sessions are told."""

from __future__ import annotations

import time


def now_ms() -> int:
    """A clock of this machine that also runs while it sleeps, where there is one; only durations are taken from it."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(boot_time) // 1_000_000
