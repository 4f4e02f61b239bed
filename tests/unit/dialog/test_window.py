"""When a record counts as acknowledged (protocol.md section 5)."""

from __future__ import annotations

import pytest

from konverse.dialog.window import Window


def handed(count: int, acked: int = 0) -> Window:
    """A window whose producer has `count` records from `acked` on."""
    window = Window(acked)
    window.limit = window.sent = acked + count
    return window


def test_a_window_starts_where_the_last_one_ended() -> None:
    window = Window(7)
    assert (window.acked, window.sent, window.limit, window.outstanding) == (7, 7, 7, 0)


def test_a_producer_that_ran_empty_has_written_everything_that_it_was_handed() -> None:
    window = handed(5)
    window.limit = 9
    window.drained()
    assert (window.acked, window.sent, window.limit, window.outstanding) == (5, 5, 9, 0)


def test_deliveries_in_order_count_one_by_one() -> None:
    window = handed(3)
    for counter in range(3):
        assert window.delivered(counter, 100 + counter)
        assert (window.acked, window.outstanding) == (counter + 1, 2 - counter)


def test_a_delivery_counts_when_all_before_it_came() -> None:
    window = handed(3)
    assert window.delivered(2, 102)
    assert window.delivered(1, 101)
    assert window.acked == 0
    assert window.delivered(0, 100)
    assert window.acked == 3


@pytest.mark.parametrize(
    "reports",
    [
        [(0, 100), (1, 99)],
        [(0, 100), (1, 100)],
        [(1, 99), (0, 100)],
        [(0, 100), (2, 101), (1, 102)],
        [(2, 101), (1, 100), (0, 102)],
        [(0, 5), (1, 6), (2, 4)],
    ],
)
def test_offsets_that_do_not_rise_with_the_counters_ask_for_all_of_it_again(reports: list[tuple[int, int]]) -> None:
    window = handed(3)
    outcomes = [window.delivered(counter, offset) for counter, offset in reports]
    assert outcomes == [True] * (len(reports) - 1) + [False]


def test_a_delivery_that_stands_in_the_wrong_order_does_not_count() -> None:
    window = handed(3)
    window.delivered(2, 101)
    window.delivered(0, 100)
    assert not window.delivered(1, 102)
    assert window.acked == 1


def test_a_report_that_comes_again_says_nothing_new() -> None:
    window = handed(2)
    window.delivered(0, 100)
    assert window.delivered(0, 50)
    assert window.acked == 1
    assert window.delivered(1, 101)
    assert window.acked == 2


def test_a_new_producer_starts_from_the_first_record_that_does_not_count() -> None:
    window = handed(5)
    window.delivered(0, 100)
    window.delivered(1, 101)
    window.delivered(3, 103)
    window.restart()
    assert (window.acked, window.sent, window.limit) == (2, 2, 5)
    window.sent = 5
    assert window.delivered(2, 7), "the offsets of the producer before mean nothing"
    assert window.acked == 3, "and neither do its early reports"
