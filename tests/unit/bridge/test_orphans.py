"""How long a journal must stand still before its owner is considered dead."""

from __future__ import annotations

from konverse.bridge.reader.orphans import Stillness


def test_a_journal_that_stands_still_for_too_long_is_named_once() -> None:
    stillness = Stillness(10)
    assert [stillness.see({0: 5, 1: 5 + second}, second) for second in range(1, 12)] == [[]] * 11
    assert stillness.see({0: 5, 1: 5}, 12) == [0]
    assert [stillness.see({0: 5}, second) for second in range(13, 23)] == [[]] * 10, "it counts from here"
    assert stillness.see({0: 5}, 24) == [0]


def test_a_journal_that_moves_has_an_owner() -> None:
    stillness = Stillness(10)
    assert all(stillness.see({0: second // 9}, second) == [] for second in range(1, 100))


def test_time_without_observations_does_not_count_towards_the_death_of_an_owner() -> None:
    """Kafka may have been away, so that the owner could not write either."""
    stillness = Stillness(10)
    assert [stillness.see({0: 5}, second) for second in (1, 3, 5, 7, 9)] == [[]] * 5
    assert [stillness.see({0: 5}, second) for second in (13, 15, 17, 19, 21, 23)] == [[]] * 6
    assert stillness.see({0: 5}, 24) == [0]


def test_a_partition_that_was_ours_meanwhile_is_seen_anew() -> None:
    stillness = Stillness(10)
    assert stillness.see({0: 5, 1: 5}, 1) == []
    assert [stillness.see({1: second}, second) for second in range(2, 12, 2)] == [[]] * 5
    assert [stillness.see({0: 5, 1: second}, second) for second in range(12, 24, 2)] == [[]] * 6
    assert stillness.see({0: 5, 1: 24}, 24) == [0]
