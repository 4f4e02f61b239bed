"""Exit codes of the `konverse` command; docs/operating.md has the table."""

from __future__ import annotations

from typing import Final

from konverse.schemas.errors import BadInput, KonverseError, StackError, Unavailable, ValidatorUnavailable

FAILED: Final = 7
"""Any other failure; the error text says which."""

_EXIT_CODES: Final[tuple[tuple[type[KonverseError], int], ...]] = (
    (BadInput, 2),
    (StackError, 3),
    (ValidatorUnavailable, FAILED),
    (Unavailable, 6),
    (KonverseError, FAILED),
)

BUG: Final = 70
"""EX_SOFTWARE of sysexits.h: an unexpected exception. Code 1 is reserved for `verify`, when it refutes a promise."""

CUT_OFF: Final = 8
"""`run` was stopped, and some handlers had not finished when the grace period ended."""

BROKEN_PIPE: Final = 141
"""The reader of the output has gone: the code that a shell reports for a program killed by SIGPIPE."""


def exit_code(error: KonverseError) -> int:
    """Return the exit code of an error; docs/operating.md has the table."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
