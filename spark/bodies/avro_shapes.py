"""Bodies in Avro's binary encoding as values of Spark, by their Avro schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.read import LOGICAL_READERS

from konverse.spark.log.columns import TIMESTAMP

from .shapes import Parser, PartCount, Shape, Unmapped, listed, mapped, same, struct

DECIMAL_DIGITS_MAX: Final = 38
"""Digits of a decimal in Spark."""


def parser_of(documents: Sequence[str], root: str | None) -> Parser:
    """The parser for this schema; Unmapped when Spark has no type for it."""
    if root is not None:
        raise Unmapped("the datum", "has no root element to choose: root= is for XML")
    schema = parse_schema(json.loads(documents[0]))
    shape = _AvroMapping().shape(schema, "the datum", ())

    def parse(body: bytes) -> Any:
        value = schemaless_reader(BytesIO(body), schema, None)
        return None if value is None else shape.make(value)

    return Parser(shape.arrow, parse)


class _AvroMapping:
    """Maps one schema. A named type is defined once, and referred to by its name from then on."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._parts = PartCount()

    def shape(self, schema: Any, at: str, inside: tuple[str, ...]) -> Shape:
        """The shape of the part at the path `at`; `inside` are the records that contain it."""
        self._parts.add(at)
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1:
                raise Unmapped(at, f"is a union of {len(branches)} types beside null: a column has one type")
            return self.shape(branches[0], at, inside)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.shape(kind, at, inside)
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind in ("record", "error"):
            return self._record(schema, at, inside)
        if kind == "array":
            return listed(self.shape(schema["items"], f"{at}[]", inside))
        if kind == "map":
            return mapped(self.shape(schema["values"], f"{at}.*", inside))
        return _simple(schema, kind, at)

    def _record(self, schema: dict[str, Any], at: str, inside: tuple[str, ...]) -> Shape:
        name = schema["name"]
        if name in inside:
            raise Unmapped(at, f"contains itself, by record {name!r}: Spark has no recursive types")
        if not schema["fields"]:
            raise Unmapped(at, f"is of record {name!r}, which has no fields")
        within = (*inside, name)
        return struct({one["name"]: self.shape(one["type"], f"{at}.{one['name']}", within) for one in schema["fields"]})


def _simple(schema: dict[str, Any], kind: str, at: str) -> Shape:
    logical = schema.get("logicalType")
    if f"{kind}-{logical}" in LOGICAL_READERS:  # Avro's specification has readers ignore other logical types
        made = _LOGICAL.get(logical)
        if made is None:
            raise Unmapped(at, f"is a {logical}, which has no type in Spark")
        return made(schema, at)
    arrow = _ARROW.get(kind)
    if arrow is None:
        raise Unmapped(at, f"is {kind}, which has no type in Spark")
    return Shape(arrow, same)


def _decimal(schema: dict[str, Any], at: str) -> Shape:
    digits = schema["precision"]
    if digits > DECIMAL_DIGITS_MAX:
        raise Unmapped(at, f"is a decimal of {digits} digits: Spark has {DECIMAL_DIGITS_MAX} at most")
    return Shape(pa.decimal128(digits, schema.get("scale", 0)), same)


def _always(arrow: Any) -> Callable[[dict[str, Any], str], Shape]:
    return lambda _schema, _at: Shape(arrow, same)


_LOGICAL: Final[dict[str | None, Callable[[dict[str, Any], str], Shape]]] = {
    "date": _always(pa.date32()),
    "timestamp-millis": _always(TIMESTAMP),
    "timestamp-micros": _always(TIMESTAMP),
    "local-timestamp-millis": _always(pa.timestamp("us")),
    "local-timestamp-micros": _always(pa.timestamp("us")),
    "uuid": lambda _schema, _at: Shape(pa.string(), str),
    "decimal": _decimal,
}

_ARROW: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
