"""Time and memory. A run wraps its measured code in a `Meter`, or measures the growth of memory."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Self, TypeVar

import psutil
from redis import Redis

from tests.bench.model import Figures

T = TypeVar("T")


class Meter:
    """Wall time, and CPU time of the calling thread and of the process, inside the `with` block.

    The calling thread's CPU is the cost of our code for a user. On a shared machine it repeats better than a rate.
    """

    def __enter__(self) -> Self:
        gc.collect()
        self.process_s = time.process_time()
        self.caller_s = time.thread_time()
        self.wall_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self.wall_s
        self.caller_s = time.thread_time() - self.caller_s
        self.process_s = time.process_time() - self.process_s

    def figures(self, messages: int) -> Figures:
        """Messages per second, and microseconds of CPU per message."""
        return {
            "rate": messages / self.wall_s,
            "caller_us": 1e6 * self.caller_s / messages,
            "process_us": 1e6 * self.process_s / messages,
        }


def latencies(name: str, seconds: Iterable[float]) -> Figures:
    """Median and 99th percentile in milliseconds, as `<name>_p50_ms` and `<name>_p99_ms`."""
    ordered = sorted(seconds)
    at_99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return {f"{name}_p50_ms": 1e3 * median(ordered), f"{name}_p99_ms": 1e3 * at_99}


def resident_bytes() -> int:
    """Resident memory of this process, after free memory has gone back to the system."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def resident_growth(build: Callable[[], T]) -> tuple[int, T]:
    """Growth of this process in bytes while `build` ran, and the result of `build`.

    The result lives during the second measurement, so all of it counts. Memory that `build` frees may still be
    resident, so `build` should allocate in small steps, like the program that it imitates.
    """
    before = resident_bytes()
    built = build()
    return resident_bytes() - before, built


def redis_growth(url: str, build: Callable[[], None]) -> int:
    """Growth of a Redis server's `used_memory` in bytes while `build` ran. No other client may use the server.

    `build` should close its connections: their buffers count as used memory.
    """
    with Redis.from_url(url) as server:
        before = _used_memory(server)
        build()
        return _used_memory(server) - before


def _used_memory(server: Redis) -> int:
    information: dict[str, Any] = server.info("memory")
    return int(information["used_memory"])
