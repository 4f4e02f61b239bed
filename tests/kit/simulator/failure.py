"""How a run fails: every check of the simulator reports to one function, which its world and its places have."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final


class SimulationFailure(Exception):
    """An invariant of protocol.md section 10 does not hold; the text begins with its number."""


class Judge(StrEnum):
    """Who says whether a run holds."""

    ALL = "all"
    """Every check, at once, and at the end the verifier among them."""
    VERIFIER = "verifier"
    """The verifier alone, by what stands in the logs when the run is over. It goes on past every other check."""


Fail = Callable[[str], None]
"""Told of an invariant that does not hold."""


def fail(text: str) -> None:
    """The run is over. Raises SimulationFailure."""
    raise SimulationFailure(text)


def pass_over(_text: str) -> None:
    """The run goes on: whoever called does what comes next, as a process would that knows of no check."""


FAIL: Final[dict[Judge, Fail]] = {Judge.ALL: fail, Judge.VERIFIER: pass_over}
