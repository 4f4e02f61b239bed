"""A wrong clock: what this process takes for the time of day is moved by so many seconds, from now on.

The product reads the time of day in `bridge` alone, always as `time.time` or `time.time_ns`. Durations are not moved.
"""

from __future__ import annotations

import time


def shift(offset_s: float) -> float:
    """Move the clock; returns by how much it now differs from the machine's, as this process sees it."""
    time.time = lambda: time.clock_gettime(time.CLOCK_REALTIME) + offset_s
    time.time_ns = lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + round(offset_s * 1e9)
    return round(time.time() - time.clock_gettime(time.CLOCK_REALTIME), 3)
