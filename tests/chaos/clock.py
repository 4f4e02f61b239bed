"""Wrong clocks: shifts this process's time of day, and its time since the machine's start.

The product never reads the time of day; records age by Kafka's time. It takes durations from the time since the
machine's start, and only in `bridge.runtime.clock`. That clock also runs while a machine sleeps, so its faults are
jumps ahead. Deadlines of calls use a third clock, which stays right. Each read of a wrong clock by the product is
reported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

TIME_OF_DAY: Final = "time of day"
UPTIME: Final = "uptime"

NS: Final = 1_000_000_000

Used = Callable[[str, float, str], object]
"""Called once for each error: clock, error in seconds, and the module of the product that read it."""

_CLOCKS: Final = {
    time.CLOCK_REALTIME: TIME_OF_DAY,
    getattr(time, "CLOCK_BOOTTIME", time.CLOCK_REALTIME): UPTIME,
}
_PRODUCT: Final = "konverse."

_clock_gettime_ns: Final = time.clock_gettime_ns


class Clocks:
    """The clocks of this process."""

    def __init__(self, used: Used) -> None:
        self._used = used
        self._errors_ns = {TIME_OF_DAY: 0, UPTIME: 0}
        self._told: set[tuple[str, int, str]] = set()

    def install(self) -> None:
        """Make this process read these clocks."""
        time.time_ns = lambda: self._read(time.CLOCK_REALTIME)
        time.time = lambda: self._read(time.CLOCK_REALTIME) / NS
        time.clock_gettime_ns = self._read
        time.clock_gettime = lambda clock: self._read(clock) / NS

    def shift(self, clock: str, error_s: float) -> None:
        """Set a clock's difference from the machine's clock, in seconds."""
        self._errors_ns[clock] = round(error_s * NS)

    def _read(self, clock: int) -> int:
        name = _CLOCKS.get(clock)
        error_ns = self._errors_ns[name] if name is not None else 0
        if name is not None and error_ns:
            self._tell(name, error_ns)
        return _clock_gettime_ns(clock) + error_ns

    def _tell(self, name: str, error_ns: int) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
            frame = frame.f_back
        reader = frame.f_globals.get("__name__", "")
        use = (name, error_ns, reader)
        if reader.startswith(_PRODUCT) and use not in self._told:
            self._told.add(use)
            self._used(name, error_ns / NS, reader)
