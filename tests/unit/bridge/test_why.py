"""The text about the partition of a conversation."""

from __future__ import annotations

from konverse.bridge.views.why import _maybe_unseen, _of_the_partition
from konverse.dialog.fold.journal import JournalHead
from tests.kit.builders import log_of

NOW_MS = 1_800_000_000_000


def test_a_partition_that_nobody_looks_after_says_so() -> None:
    head = JournalHead(log_of())
    head.now_ms = NOW_MS
    assert [*_of_the_partition(head, 0, NOW_MS, 60.0)] == ["Its partition has no owner: no reader of the queue runs."]
    head.clean = False
    assert [*_of_the_partition(head, 0, NOW_MS, 60.0)] == []
    head.now_ms -= 3_600_000
    (dead,) = _of_the_partition(head, 0, NOW_MS, 60.0)
    assert "has written nothing for 3,600 s, and is dead" in dead
    (behind, _) = _of_the_partition(head, 1_234, NOW_MS, 60.0)
    assert "1,234 offsets of the log" in behind
    (behind, _) = _of_the_partition(head, 1, NOW_MS, 60.0)
    assert "1 offset of the log" in behind


def test_what_nobody_has_committed_is_named_where_there_is_some() -> None:
    assert _maybe_unseen(0) == ""
    assert "in the 1 offset of logs" in _maybe_unseen(1)
    assert "in the 1,234 offsets of logs" in _maybe_unseen(1_234)
