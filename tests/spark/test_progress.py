"""Progress shown during long work."""

from __future__ import annotations

import io

import pytest

from konverse.routing.routed import Routed
from konverse.spark.receive.progress import progress_line, showing

SOME = Routed(forwarded=1_000, followed=2_000, rejected=3, failed=1)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_progress_line_has_the_counts_and_the_rate() -> None:
    assert (
        progress_line(SOME, 2.0)
        == "Routed 3,003 messages, 1,502/s: 1,000 forwarded, 2,000 followed, 3 rejected, 1 failed"
    )
    assert progress_line(Routed(), 0.0) == "Routed 0 messages, 0/s: none yet"


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with showing(progress=True, stream=stream) as shown:
        shown(SOME)
    assert "1,000 forwarded, 2,000 followed" in stream.getvalue()


def test_elsewhere_plain_lines_come_now_and_then() -> None:
    times = iter([0.0, 9.0, 10.0, 19.0])
    stream = io.StringIO()
    with showing(progress=True, stream=stream, clock=lambda: next(times)) as shown:
        for _ in range(3):
            shown(SOME)
    assert stream.getvalue() == progress_line(SOME, 10.0) + "\n"


def test_no_progress_is_written_when_it_is_off_or_passed_to_a_function() -> None:
    stream = io.StringIO()
    told_to: list[Routed] = []
    for wanted in (False, told_to.append):
        with showing(progress=wanted, stream=stream) as shown:
            shown(SOME)
    assert stream.getvalue() == ""
    assert told_to == [SOME]
