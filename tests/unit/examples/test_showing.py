"""The display of the routing demonstration while it runs."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from examples.regions import showing
from examples.regions.showing import Showing
from konverse.bridge.router.figures import Figures
from konverse.routing.routed import Routed


def looks() -> Iterator[Figures]:
    """A router that forwards ten messages a second to the west."""
    for second in range(1, 5):
        yield Figures(second * 1_000, 2, Routed(forwarded=second * 10, targets={"//sales/West": second * 10}), ())


def shown(*, terminal: bool) -> str:
    """The output of a demonstration of two looks."""
    seen = looks()
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with Showing(console, lambda: next(seen), total=40) as display:
        display.update(15, 10, 9)
        display.update(25, 20, 19)
        console.print("kill -9 of router 1", highlight=False)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


@pytest.fixture(autouse=True)
def at_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update is a look."""
    monkeypatch.setattr(showing, "LOOK_S", 0.0)


def test_a_terminal_has_the_bars_and_the_picture_of_the_router() -> None:
    text = shown(terminal=True)
    for part in ("20/40", "19/40", "//sales/Router   2 processes   20 messages, 10/s", "//sales/West", "━"):
        assert part in text
    assert "(+10/s)" not in text
    assert text.index("kill -9 of router 1") < text.rindex("//sales/Router")


def test_without_a_terminal_each_look_is_a_line() -> None:
    lines = shown(terminal=False).splitlines()
    assert lines[:3] == [
        "//sales/Router: 2 processes, 10 messages (+10/s), 0 replies, 0 rejected, 0 failed; //sales/West 10 (+10/s)",
        "//sales/Router: 2 processes, 20 messages (+10/s), 0 replies, 0 rejected, 0 failed; //sales/West 20 (+10/s)",
        "kill -9 of router 1",
    ]
