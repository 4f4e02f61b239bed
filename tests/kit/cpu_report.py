"""CPU seconds of tests: a summary at the end of a run, by kind of test and for the most expensive tests.

Two cores are busy for a whole run, so CPU seconds limit it, not the time that a test waits. A test is charged with the
CPU of its own process and of the child processes that ended meanwhile. The CPU of shared servers is charged to no test.
The first line tells how busy all cores were: below 90 %, tests wait more than they compute.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, Final

import psutil
import pytest

CPU: Final = "cpu_s"
TESTS_SHOWN: Final = 20
FILES_SHOWN: Final = 40
_STARTED: Final = pytest.StashKey[float]()
_BEFORE: Final = psutil.cpu_times()
"""CPU times of the machine when the run began, which is when pytest imports this module."""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Note the CPU seconds at the start of the test."""
    item.stash[_STARTED] = cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the CPU seconds of the test to its last report, which pytest-xdist carries to the process that prints."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((CPU, round(cpu_s() - item.stash.get(_STARTED, cpu_s()), 3)))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the sums of a run that was asked for durations."""
    if not terminalreporter.config.option.durations:
        return
    tests = {
        report.nodeid: value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == CPU
    }
    kinds: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, seconds in tests.items():
        kinds["/".join(name.split("/")[1:3] if "/unit/" in name else name.split("/")[1:2])] += seconds
        files[name.partition("::")[0]] += seconds
    terminalreporter.section("CPU seconds")
    terminalreporter.line(_busy(psutil.cpu_times()))
    for sums in (kinds.most_common(), files.most_common(FILES_SHOWN), Counter(tests).most_common(TESTS_SHOWN)):
        for name, seconds in sums:
            terminalreporter.line(f"{seconds:8.1f} {name}")


def _busy(now: Any) -> str:
    idle = now.idle + now.iowait - _BEFORE.idle - _BEFORE.iowait
    whole = sum(now) - sum(_BEFORE)
    return f"{whole - idle:8.1f} of {whole:.1f} that all cores had"
