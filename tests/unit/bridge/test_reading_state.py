"""Whether a partition has a reader."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from konverse.bridge.views.membership import MEMBER, Membership
from konverse.bridge.views.reading_state import (
    LAG_MS,
    ReadingState,
    describe_dead,
    describe_stuck,
    describe_unknown,
    reading_state,
    with_membership,
)
from konverse.dialog.fold.journal import JournalHead
from tests.kit.builders import log_of

NOW_MS = 1_800_000_000_000


def test_a_partition_that_never_had_an_owner_has_no_reader_and_no_since_timestamp() -> None:
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


def test_an_owner_that_leaves_old_data_unread_is_stuck_until_it_counts_as_dead() -> None:
    head = JournalHead(log_of())
    head.clean, head.now_ms = False, NOW_MS - 42_000
    state = reading_state(head, 3, NOW_MS, 60.0)
    assert not state.stuck, "all of the data may be new"
    late = state._replace(overdue=3)
    assert (late.reader, late.stuck) == (True, True)
    assert describe_stuck(late) == (
        "its owner has written nothing for 42 s, although 3 offsets wait: it is busy or dead, and counts as dead after "
        "60 s"
    )
    assert late._replace(membership=Membership(unknown="no right")).stuck
    assert not late._replace(membership=Membership(left=True)).stuck, "it is dead"
    assert not late._replace(silent_s=4.0).stuck, "it has written something meanwhile"
    assert not late._replace(silent_s=61.0).stuck, "it is dead"
    assert not late._replace(released=True).stuck


class Groups:
    """Stands in for Kafka's consumer groups, and counts the questions."""

    def __init__(self, told: Membership) -> None:
        self._told = told
        self.asked = 0

    def membership(self, *_: object) -> Membership:
        self.asked += 1
        return self._told


def judged(groups: Any, silent_ms: int, *, released: bool = False) -> ReadingState:
    """The state of a partition whose last record is this old, with its owner's group."""
    head = JournalHead(log_of())
    head.clean, head.now_ms = released, NOW_MS - silent_ms
    return with_membership(reading_state(head, 0, NOW_MS, 60.0), (None, 0), None, groups)  # type: ignore[arg-type]


def test_an_owner_that_has_left_its_group_is_no_reader_since_its_last_record() -> None:
    state = judged(Groups(Membership(left=True)), 42_000)
    assert (state.reader, state.silent) == (False, False)
    assert state.since == datetime.fromtimestamp((NOW_MS - 42_000) // 1000, UTC)
    assert describe_dead(state) == "its owner has written nothing for 42 s, has left its consumer group, and is dead"


def test_whether_a_silent_owner_is_a_reader_is_not_known_without_its_group() -> None:
    state = judged(Groups(Membership(unknown="Kafka refuses it")), 42_000)
    assert (state.reader, state.since, describe_dead(state)) == (None, None, "")
    assert describe_unknown(state) == "whether its owner lives is not known: Kafka refuses it"


@pytest.mark.parametrize(
    ("silent_ms", "released", "reader"),
    [(LAG_MS, False, True), (60_001, False, False), (42_000, True, False)],
    ids=["its last record is a sign of life", "its silence is long enough", "it has released the partition"],
)
def test_the_group_is_not_asked_where_the_journal_leaves_no_doubt(
    silent_ms: int, *, released: bool, reader: bool
) -> None:
    groups = Groups(Membership(unknown="Kafka refuses it"))
    state = judged(groups, silent_ms, released=released)
    assert (state.reader, state.membership, groups.asked) == (reader, MEMBER, 0)
