"""Whether a partition has a reader."""

from __future__ import annotations

from datetime import UTC, datetime

from konverse.bridge.views.reading_state import reading_state
from konverse.dialog.fold.journal import JournalHead
from tests.kit.builders import log_of

NOW_MS = 1_800_000_000_000


def test_a_partition_that_nobody_ever_owned_has_no_reader_and_no_since() -> None:
    state = reading_state(JournalHead(log_of()), 3, NOW_MS, 60.0)
    assert (state.reader, state.silent, state.since, state.waiting) == (False, False, None, 3)


def test_a_released_partition_has_had_no_reader_since_its_last_record() -> None:
    head = JournalHead(log_of())
    head.owner, head.now_ms = bytes(16), 1_700_000_000_999
    state = reading_state(head, 0, NOW_MS, 60.0)
    assert (state.reader, state.silent) == (False, False)
    assert state.since == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_an_owner_that_writes_is_a_reader_and_a_silent_one_is_none() -> None:
    head = JournalHead(log_of())
    head.clean, head.now_ms = False, NOW_MS
    state = reading_state(head, 0, NOW_MS, 60.0)
    assert (state.reader, state.silent, state.since) == (True, False, None)
    head.now_ms -= 3_600_000
    state = reading_state(head, 0, NOW_MS, 60.0)
    assert (state.reader, state.silent) == (False, True)
    assert state.since == datetime.fromtimestamp(head.now_ms // 1000, UTC)
