"""Whether queues are drained, without servers."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.owner.follower import Follower
from konverse.bridge.reader.drain_check import DrainCheck
from konverse.schemas.catalog.objects import Queue


def test_a_check_has_one_client_for_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ran out of clients would never find its queues drained."""
    opened: list[str] = []
    closed: list[str] = []

    def consumer(**_: Any) -> Any:
        opened.append("a consumer")
        return SimpleNamespace(close=lambda: closed.append("a consumer"))

    kafka: Any = SimpleNamespace(settings=SimpleNamespace(connect_timeout_s=1.0), consumer=consumer)
    monkeypatch.setattr(Follower, "catch_up", lambda following: following.state)
    monkeypatch.setattr(Follower, "behind", lambda _: 0)
    queues = [Queue(name, f"k.d.{name}", "queue", 64, bytes(16), bytes(16), bytes(16)) for name in ("Orders", "Shop")]
    with closing(DrainCheck(kafka, queues)) as draining:
        assert [draining.examine(queues[0], {3}) for _ in range(2)] == [(0,) * 127] * 2
        assert (len(opened), closed) == (2, [])
    assert len(closed) == 2
