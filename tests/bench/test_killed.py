"""The judgement of a killed worker and of a killing message, from the handlers' diary."""

from __future__ import annotations

import pytest

from tests.bench.killed import Entry, at_work, conversations_of, longest_wait, taken_over_at

VICTIM, SURVIVOR, REPLACEMENT = 11, 22, 33
BEFORE = [
    Entry(8.0, 44, "moved"),  # a process of the past
    Entry(9.4, SURVIVOR, "kept"),
    Entry(9.5, VICTIM, "moved"),
    Entry(9.6, VICTIM, "orphan"),
]
KILLED_AT = 10.0


def test_the_workers_at_the_kill_and_the_conversations_of_the_victim_are_known() -> None:
    assert at_work(BEFORE, KILLED_AT) == {VICTIM, SURVIVOR}
    assert conversations_of(BEFORE, VICTIM) == {"moved", "orphan"}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([Entry(12.0, REPLACEMENT, "orphan")], None),
        ([Entry(12.0, REPLACEMENT, "orphan"), Entry(13.0, SURVIVOR, "orphan")], 13.0),
        ([Entry(10.1, SURVIVOR, "kept"), Entry(12.5, SURVIVOR, "moved")], 12.5),
        ([Entry(10.1, SURVIVOR, "kept")], None),
        ([Entry(9.9, SURVIVOR, "orphan")], None),
    ],
    ids=["replacement alone", "survivor after replacement", "survivor", "no orphan", "before the kill"],
)
def test_only_a_worker_that_was_alive_before_the_kill_takes_over(after: list[Entry], expected: float | None) -> None:
    survivors = at_work(BEFORE, KILLED_AT) - {VICTIM}
    assert taken_over_at([*BEFORE, *after], {"moved", "orphan"}, survivors, KILLED_AT) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [([1.0, 2.0, 9.0], 7.0), ([1.0, 2.0], 8.0), ([], 10.0), ([6.0, 9.0], 6.0), ([-5.0, 1.0, 9.5, 14.0], 8.5)],
    ids=["in between", "starves until the end", "nothing at all", "starves at first", "outside"],
)
def test_a_conversation_that_starves_until_the_end_has_waited(times: list[float], expected: float) -> None:
    entries = [Entry(at, SURVIVOR, "one") for at in times] + [Entry(5.0, SURVIVOR, "other")]
    assert longest_wait(entries, "one", 0.0, 10.0) == expected
