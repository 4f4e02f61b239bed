"""The product reads the wrong clocks, and each read is reported."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from konverse.bridge.runtime import clock as product_clock
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


def test_a_shifted_uptime_clock_changes_the_time_of_the_product_and_is_reported_once(
    clocks: Clocks, told: Told
) -> None:
    before, deadline = product_clock.now_ms(), time.monotonic()
    clocks.shift(UPTIME, DAY_S)
    assert product_clock.now_ms() - before == pytest.approx(DAY_S * 1_000, abs=60_000)
    assert time.monotonic() - deadline < 60
    assert product_clock.now_ms() >= before
    assert told == [(UPTIME, DAY_S, product_clock.__name__)], "each reader is told once"


def test_a_shifted_clock_that_only_other_code_reads_is_not_reported(clocks: Clocks, told: Told) -> None:
    clocks.shift(TIME_OF_DAY, DAY_S)
    assert time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) != 0
    assert time.time_ns() > 0
    assert told == []


def test_the_product_reads_no_time_of_day() -> None:
    """It measures durations, which no error changes. One module has the clock of owners and sessions."""
    durations = {"monotonic", "monotonic_ns", "perf_counter", "sleep", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC"}
    root = Path(product_clock.__file__).parents[1]
    folders = ("bridge", "dialog", "routing", "schemas", "spark")
    for path in [path for folder in folders for path in root.glob(f"{folder}/**/*.py")]:
        known = {*durations, "clock_gettime_ns"} if path == Path(product_clock.__file__) else durations
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr in known, f"{path.name} reads time.{node.attr}"
            assert not (isinstance(node, ast.ImportFrom) and node.module == "time"), f"{path.name} keeps its own"
            assert not (isinstance(node, ast.Attribute) and node.attr in ("utcnow", "today", "now")), path.name
