"""What a part of a body becomes in Spark: a type, and how a value of it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

Make = Callable[[Any], Any]

BIGINT_MIN: Final = -(1 << 63)
BIGINT_MAX: Final = (1 << 63) - 1


class Unmapped(Exception):
    """A schema, or a part of it, that is no type of Spark's."""

    def __init__(self, at: str, why: str) -> None:
        super().__init__(f"{at} {why}")


class Unfit(Exception):
    """A value that is valid, and that its column does not hold."""


class Shape(NamedTuple):
    """A type, and what makes a value for it of a value that is not null."""

    arrow: Any
    make: Make


class Parser(NamedTuple):
    """How bodies of one schema are read. They have been found valid."""

    arrow: Any
    parse: Callable[[bytes], Any]
    """Raises Unfit."""


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def struct(fields: Mapping[str, Shape]) -> Shape:
    """Of a mapping by name; what is missing is null."""

    def make(value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: None if (one := value.get(name)) is None else shape.make(one) for name, shape in fields.items()}

    return Shape(pa.struct([pa.field(name, shape.arrow) for name, shape in fields.items()]), make)


def listed(item: Shape) -> Shape:
    """Of a sequence."""
    return Shape(pa.list_(item.arrow), lambda value: [None if one is None else item.make(one) for one in value])


def mapped(item: Shape) -> Shape:
    """Of a mapping whose names are not known before."""
    return Shape(
        pa.map_(pa.string(), item.arrow),
        lambda value: [(name, None if one is None else item.make(one)) for name, one in value.items()],
    )


def bigint(at: str) -> Shape:
    """Of a whole number."""

    def make(value: Any) -> int:
        whole = int(value)
        if not BIGINT_MIN <= whole <= BIGINT_MAX:
            raise Unfit(f"{at} is {value}, which is too large for a bigint")
        return whole

    return Shape(pa.int64(), make)
