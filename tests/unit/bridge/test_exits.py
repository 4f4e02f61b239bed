"""The end of a program: each sender gets its turn."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.bridge.runtime import exits
from konverse.bridge.runtime.exits import leave_at_exit


class Sender:
    """A sender that may raise."""

    def __init__(self, left: list[Sender]) -> None:
        self._left = left

    def at_exit(self, timeout_s: float) -> None:
        self._left.append(self)
        if len(self._left) == 1:
            raise RuntimeError("a thread was gone")


def test_a_sender_that_raises_does_not_keep_the_others_from_leaving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known: Any = set()
    monkeypatch.setattr(exits, "_OPEN", known)
    left: list[Sender] = []
    for _ in range(3):
        leave_at_exit(Sender(left))
    exits._leave_all()
    assert len(left) == 3
    assert "a thread was gone" in caplog.text
