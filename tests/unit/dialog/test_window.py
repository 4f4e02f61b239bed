"""When a record counts as acknowledged (protocol.md section 5)."""

from __future__ import annotations

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


def test_a_new_producer_starts_from_the_first_record_that_does_not_count() -> None:
    window = handed(3)
    window.drained()
    window.limit = window.sent = 7
    window.restart()
    assert (window.acked, window.sent, window.limit, window.outstanding) == (3, 3, 7, 0)
