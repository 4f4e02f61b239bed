"""Wrong clocks are those that the product reads, and whoever reads one is told."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge import clock as product_clock
from konverse.bridge import truncation
from konverse.bridge.truncation import Truncation
from konverse.dialog.events import Truncate
from tests.chaos.clock import TIME_OF_DAY, UPTIME, Clocks

DAY_S = 86_400.0
PATCHED = ("time", "time_ns", "clock_gettime", "clock_gettime_ns")

Told = list[tuple[str, float, str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    for name in PATCHED:
        monkeypatch.setattr(time, name, getattr(time, name))
    yield []
    monkeypatch.undo()


@pytest.fixture
def clocks(told: Told) -> Clocks:
    clocks = Clocks(lambda *use: told.append(use))
    clocks.install()
    return clocks


def read_by_truncation(monkeypatch: pytest.MonkeyPatch) -> int:
    """The time before which a queue with `keep` deletes what it does not need."""
    asked: list[int] = []

    class Log:
        def __init__(self, _kafka: object) -> None:
            pass

        def offset_at(self, _topic: str, _partition: int, timestamp_ms: int) -> int:
            asked.append(timestamp_ms)
            return 0

        def close(self) -> None:
            pass

    nobody: Any = SimpleNamespace(valid=[])
    asking: Callable[..., Any] = lambda **_: SimpleNamespace(result=lambda: nobody)  # noqa: E731
    kafka: Any = SimpleNamespace(
        settings=SimpleNamespace(connect_timeout_s=1.0), admin=SimpleNamespace(list_consumer_groups=asking)
    )
    queue: Any = SimpleNamespace(keep_ms=timedelta(hours=1) // timedelta(milliseconds=1), topic="q", subscription="s")
    monkeypatch.setattr(truncation, "LogReader", Log)
    truncating = Truncation(kafka, queue)
    truncating.truncate(0, Truncate(0, 0, 0))
    truncating._worker.shutdown(wait=True)
    return asked[0]


def test_a_wrong_time_of_day_is_what_truncation_goes_by(
    clocks: Clocks, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = read_by_truncation(monkeypatch)
    assert told == [], "nobody reads a wrong clock yet"
    clocks.shift(TIME_OF_DAY, DAY_S)
    assert read_by_truncation(monkeypatch) - right == pytest.approx(DAY_S * 1_000, abs=60_000)
    clocks.shift(TIME_OF_DAY, -DAY_S)
    read_by_truncation(monkeypatch)
    assert told == [(TIME_OF_DAY, error_s, truncation.__name__) for error_s in (DAY_S, -DAY_S)]


def test_time_that_was_skipped_is_what_owners_and_sessions_are_told(clocks: Clocks, told: Told) -> None:
    before, deadline = product_clock.now_ms(), time.monotonic()
    clocks.shift(UPTIME, DAY_S)
    assert product_clock.now_ms() - before == pytest.approx(DAY_S * 1_000, abs=60_000)
    assert time.monotonic() - deadline < 60
    assert product_clock.now_ms() >= before
    assert told == [(UPTIME, DAY_S, product_clock.__name__)], "each reader is told once"


def test_a_clock_that_only_others_read_is_not_told(clocks: Clocks, told: Told) -> None:
    clocks.shift(TIME_OF_DAY, DAY_S)
    assert time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) != 0
    assert time.time_ns() > 0
    assert told == []


def test_the_product_reads_no_other_clock() -> None:
    """Save those of durations, which no error moves."""
    durations = {"monotonic", "monotonic_ns", "perf_counter", "sleep", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC"}
    root = Path(product_clock.__file__).parents[1]
    folders = ("bridge", "dialog", "routing", "schemas")
    for path in [path for folder in folders for path in root.glob(f"{folder}/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr in {*durations, *PATCHED}, f"{path.name} reads time.{node.attr}"
            assert not (isinstance(node, ast.ImportFrom) and node.module == "time"), f"{path.name} keeps its own"
            assert not (isinstance(node, ast.Attribute) and node.attr in ("utcnow", "today")), path.name
