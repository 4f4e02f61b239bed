"""A repeated log message is logged module."""

from __future__ import annotations

import logging

import pytest

from konverse.bridge.runtime import log_throttle as module
from konverse.bridge.runtime.log_throttle import RepeatedLines


def test_lines_that_differ_in_numbers_alone_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lines = RepeatedLines()

    def said(text: str, *arguments: object) -> bool:
        return lines.filter(logging.LogRecord("kafka", logging.ERROR, "", 0, text, arguments, None))

    assert said("%s: connection to port %d refused", "FAIL", 9092)
    assert not said("%s: connection to port %d refused", "FAIL", 9093)
    assert said("another trouble")
    now[0] += module.AGAIN_S
    assert said("%s: connection to port %d refused", "FAIL", 9092)
