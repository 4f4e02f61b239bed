"""Exit codes of the `konverse` command; docs/operating.md has the table."""

from __future__ import annotations

from typing import Final

from konverse.schemas.errors import BadInput, KonverseError, StackError, Unavailable

FAILED: Final = 7
"""Another failure; the text says which."""

_EXIT_CODES: Final[tuple[tuple[type[KonverseError], int], ...]] = (
    (BadInput, 2),
    (StackError, 3),
    (Unavailable, 6),
    (KonverseError, FAILED),
)

BUG: Final = 70
"""EX_SOFTWARE of sysexits.h: what nobody foresaw. 1 is left to `verify`, which has refuted something then."""

CUT_OFF: Final = 8
"""`run`: it was stopped, and handlers were still at work when their time was over."""

NOBODY_READS: Final = 141
"""As a shell says it of a program that SIGPIPE ended."""


def exit_code(error: KonverseError) -> int:
    """Return the exit code of an error; docs/operating.md has the table."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
