"""Values of options: numbers within bounds, and how an error quotes a value that may be long."""

from __future__ import annotations

from reprlib import Repr
from typing import Final

LONG_MAX: Final = (1 << 63) - 1
"""The largest offset, and the latest time in milliseconds, that Kafka takes."""

PARTITION_MAX: Final = (1 << 31) - 1
"""The largest number of a partition that Kafka takes."""

_QUOTED_CHARACTERS_MAX: Final = 200


def whole_number(text: str, most: int) -> int | None:
    """A decimal number from 0 to `most`; None when the text is not such a number, however long it is."""
    if not text.isdecimal() or not text.isascii():
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):  # Python refuses to convert thousands of digits
        return None
    number = int(digits)
    return number if number <= most else None


def quoted(value: object) -> str:
    """The value as `repr` writes it, without its middle when it is long or deep."""
    return _QUOTING.repr(value)


def _quoting() -> Repr:
    quoting = Repr()
    quoting.maxstring = quoting.maxother = _QUOTED_CHARACTERS_MAX
    return quoting


_QUOTING: Final = _quoting()
