"""How a run fails: every check reports to one function, kept by the world and its places."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final


class SimulationFailure(Exception):
    """An invariant of protocol.md section 10 does not hold. The text begins with its number."""


class Judge(StrEnum):
    """Which checks decide whether a run passes."""

    ALL = "all"
    """Every check, at once; the verifier at the end."""
    VERIFIER = "verifier"
    """Only the verifier, from the logs at the end of the run. All other checks pass over violations."""


Fail = Callable[[str], None]
"""Called with an invariant that does not hold."""


def fail(text: str) -> None:
    """End the run. Raises SimulationFailure."""
    raise SimulationFailure(text)


def pass_over(_text: str) -> None:
    """Let the run go on, as in a process without checks."""


FAIL: Final[dict[Judge, Fail]] = {Judge.ALL: fail, Judge.VERIFIER: pass_over}
