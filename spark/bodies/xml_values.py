"""Text in XML as values of Spark, by the simple types of XML Schema."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from konverse.spark.log.columns import TIMESTAMP

from .shapes import Shape, Unfit, bigint

_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(Z|[+-]\d\d:\d\d)?")
_MIDNIGHT: Final = re.compile(r"T24:00:00(?:\.0+)?(?=Z|[+-]|$)")
"""The end of a day, which Python before 3.14 does not read: the same moment as the beginning of the next day."""
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
"""White space of XML. Other spaces of Unicode, such as U+00A0, are characters like letters."""

_BIGINTS: Final = ("byte", "short", "int", "long", "unsignedByte", "unsignedShort", "unsignedInt")
_INTEGERS: Final = (
    *("integer", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger", "unsignedLong"),
)
_KEEPING_SPACE: Final = ("string", "normalizedString")

DIGITS: Final = 38
INTEGER: Final = pa.decimal128(DIGITS, 0)
DECIMAL: Final = pa.decimal128(DIGITS, 18)
"""The decimal types that Spark's own reader of XML uses."""


def builtin(name: str, at: str) -> Shape:
    """The shape of a built-in type of XML Schema; a type without a counterpart in Spark becomes a string."""
    if name in _BIGINTS:
        return bigint(at)
    if name in _INTEGERS:
        return Shape(INTEGER, lambda text: _decimal(text, at, 0))
    made = _MADE.get(name)
    if made is not None:
        return made(at)
    return Shape(pa.string(), str if name in _KEEPING_SPACE else _collapsed)


def words_of(text: str) -> list[str]:
    """The parts of a text between white space."""
    return [word for word in _BLANKS.split(text) if word]


def _collapsed(text: str) -> str:
    return " ".join(words_of(text))


def _decimal(text: str, at: str, scale: int) -> Decimal:
    value = Decimal(text.strip())
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "decimals of XML Schema are finite numbers"
    surplus = -exponent - scale
    if (value and value.adjusted() >= DIGITS - scale) or (surplus > 0 and any(digits[-surplus:])):
        raise Unfit(f"{at} is {text.strip()}, which does not fit decimal({DIGITS},{scale})")
    return Decimal((sign, digits[:-surplus], -scale)) if surplus > 0 else value


def _boolean(text: str) -> bool:
    return text.strip() in ("true", "1")


def _day(text: str, at: str) -> date:
    """The date; a time zone after it is dropped."""
    found = _DATE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        return date.fromisoformat(found[1])
    except ValueError:
        raise Unfit(f"{at} is {text.strip()}, which is not a date in the years 1 to 9999") from None


def _moment(text: str, at: str) -> datetime:
    """The time in UTC; a time without a zone counts as UTC."""
    written, ends = _MIDNIGHT.subn("T00:00:00", text.strip())
    try:
        value = datetime.fromisoformat(written) + timedelta(days=ends)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unfit(f"{at} is {text.strip()}, which is not a time in the years 1 to 9999") from None


_MADE: Final[dict[str, Callable[[str], Shape]]] = {
    "boolean": lambda _at: Shape(pa.bool_(), _boolean),
    "float": lambda _at: Shape(pa.float32(), float),
    "double": lambda _at: Shape(pa.float64(), float),
    "decimal": lambda at: Shape(DECIMAL, lambda text: _decimal(text, at, 18)),
    "date": lambda at: Shape(pa.date32(), lambda text: _day(text, at)),
    "dateTime": lambda at: Shape(TIMESTAMP, lambda text: _moment(text, at)),
    "base64Binary": lambda _at: Shape(pa.binary(), b64decode),
    "hexBinary": lambda _at: Shape(pa.binary(), bytes.fromhex),
}


def present(_at: str) -> Shape:
    """The shape of an element without content: true where the element is present."""
    return Shape(pa.bool_(), lambda _element: True)


def text_of(element: Any) -> str:
    """The text of an element without children; the parser drops comments."""
    return element.text or ""
