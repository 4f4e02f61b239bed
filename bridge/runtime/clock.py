"""The clock of this machine, passed to owners, followers and sessions as `now_ms`."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds of a clock that also runs while the machine sleeps, if the system has one; for durations only."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(boot_time) // 1_000_000
