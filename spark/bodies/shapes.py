"""Shapes map parts of a body to Spark. A shape is a type, and the function that makes its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

Make = Callable[[Any], Any]

PARTS_MAX: Final = 20_000
"""Parts of a column: more than a schema of the greatest size can write out. Types that contain other types several
times make more: thirty types, of which each contains the next one twice, have a billion parts."""

BIGINT_MIN: Final = -(1 << 63)
BIGINT_MAX: Final = (1 << 63) - 1


class Unmapped(Exception):
    """Spark has no type for a schema, or for a part of it."""

    def __init__(self, at: str, why: str) -> None:
        super().__init__(f"{at} {why}")


class PartCount:
    """Counts the parts of a schema while they are mapped."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, at: str) -> None:
        """Count the part at the path `at`. Raises Unmapped when there are more than PARTS_MAX."""
        self._count += 1
        if self._count > PARTS_MAX:
            raise Unmapped(
                at,
                f"comes after {PARTS_MAX} other parts, the most that a column has: types that contain other types "
                "several times multiply; let them do so less often",
            )


class Unfit(Exception):
    """A valid value does not fit the type of its column."""


class Shape(NamedTuple):
    """An Arrow type, and the function that makes its values from parsed values other than null."""

    arrow: Any
    make: Make


class Parser(NamedTuple):
    """Reads bodies of one schema, which the validator has found valid."""

    arrow: Any
    parse: Callable[[bytes], Any]
    """Raises Unfit."""


def same(value: Any) -> Any:
    """The value unchanged."""
    return value


def struct(fields: Mapping[str, Shape]) -> Shape:
    """The shape of a mapping with these names; a missing name is null."""

    def make(value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: None if (one := value.get(name)) is None else shape.make(one) for name, shape in fields.items()}

    return Shape(pa.struct([pa.field(name, shape.arrow) for name, shape in fields.items()]), make)


def listed(item: Shape) -> Shape:
    """The shape of a sequence."""
    return Shape(pa.list_(item.arrow), lambda value: [None if one is None else item.make(one) for one in value])


def mapped(item: Shape) -> Shape:
    """The shape of a mapping with any names."""
    return Shape(
        pa.map_(pa.string(), item.arrow),
        lambda value: [(name, None if one is None else item.make(one)) for name, one in value.items()],
    )


def bigint(at: str) -> Shape:
    """The shape of a whole number; its values raise Unfit beyond 64 bits."""

    def make(value: Any) -> int:
        whole = int(value)
        if not BIGINT_MIN <= whole <= BIGINT_MAX:
            raise Unfit(f"{at} is {value}, which is too large for a bigint")
        return whole

    return Shape(pa.int64(), make)
