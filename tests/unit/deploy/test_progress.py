from __future__ import annotations

import io
import re

import pytest

from konverse.deploy.host.progress import Display, PlainLines, reporter_for


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_lines() -> None:
    stream = io.StringIO()
    reporter = reporter_for(stream)
    assert isinstance(reporter, PlainLines)
    with reporter.step("Downloading", 2) as advance:
        advance("one")
    assert stream.getvalue() == "Downloading ...\n"


@pytest.mark.parametrize("pieces", [None, 2])
def test_a_terminal_gets_a_display_that_leaves_nothing(pieces: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    reporter = reporter_for(stream)
    assert isinstance(reporter, Display)
    with reporter.step("Downloading [kafka]:key:", pieces) as advance:
        for piece in ("one", ":key:", "three"):
            advance(piece)
    assert "Downloading [kafka]:key:" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "🔑" not in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")
