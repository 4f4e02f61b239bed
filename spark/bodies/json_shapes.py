"""JSON documents as values of Spark, by their JSON Schema.

The validator has checked bounds and patterns before, so only the types matter here. Properties that the schema does not
name are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from .shapes import Parser, PartCount, Shape, Unfit, Unmapped, bigint, listed, mapped, same, struct

_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_STRUCTURE: Final = frozenset({"properties", "items", "prefixItems", "additionalProperties", "$ref", *_CHOICES})
"""Keywords that define the structure of a value. Two of them in one place may contradict each other."""


def parser_of(documents: Sequence[str], root: str | None) -> Parser:
    """The parser for this schema; Unmapped when Spark has no type for it."""
    if root is not None:
        raise Unmapped("$", "has no root element to choose: root= is for XML")
    schema = json.loads(documents[0])
    shape = _JsonMapping(schema).shape(schema, "$", ("#",))

    def parse(body: bytes) -> Any:
        value = json.loads(body)
        if value is None:
            return None
        return shape.make(value)

    return Parser(shape.arrow, parse)


class _JsonMapping:
    """Maps one schema document."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._parts = PartCount()

    def shape(self, schema: Any, at: str, inside: tuple[str, ...]) -> Shape:
        """The shape of the part at the path `at`; `inside` are the references that led to it."""
        self._parts.add(at)
        if not isinstance(schema, dict):
            raise Unmapped(at, "may be anything: give it a type")
        if "$id" in schema and at != "$":
            raise Unmapped(at, "has an $id of its own, which changes the base of references")
        if "$ref" in schema:
            return self._referred(schema, at, inside)
        for word in _CHOICES:
            if word in schema:
                return self._chosen(schema, word, at, inside)
        kind = _kind(schema, at)
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple(at)
        return self._object(schema, at, inside) if kind == "object" else self._array(schema, at, inside)

    def _referred(self, schema: dict[str, Any], at: str, inside: tuple[str, ...]) -> Shape:
        place = schema["$ref"]
        _alone(schema, "$ref", at)
        if place in inside:
            raise Unmapped(at, f"contains itself, by {place}: Spark has no recursive types")
        found: Any = self._document
        if not isinstance(place, str) or not (place == "#" or place.startswith("#/")):
            raise Unmapped(at, f"refers to {place!r}: only places such as '#/$defs/name' are followed")
        for step in place.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise Unmapped(at, f"refers to {place!r}: only members of objects are followed")
            found = found[name]
        return self.shape(found, at, (*inside, place))

    def _chosen(self, schema: dict[str, Any], word: str, at: str, inside: tuple[str, ...]) -> Shape:
        """`anyOf`, `oneOf` or `allOf` with a single branch beside null."""
        _alone(schema, word, at)
        branches = [branch for branch in schema[word] if branch != {"type": "null"} or word == "allOf"]
        if len(branches) != 1:
            raise Unmapped(at, f"has {word} with {len(branches)} branches beside null: a column has one type")
        return self.shape(branches[0], at, inside)

    def _object(self, schema: dict[str, Any], at: str, inside: tuple[str, ...]) -> Shape:
        properties = {name: part for name, part in schema.get("properties", {}).items() if part is not False}
        if properties:
            fields = {name: self.shape(part, f"{at}.{name}", inside) for name, part in properties.items()}
            return _only(dict, "object", struct(fields), at)
        others = schema.get("additionalProperties")
        if schema.get("patternProperties"):
            raise Unmapped(at, "has patternProperties: a map has values of one type; use additionalProperties alone")
        if not isinstance(others, dict):
            raise Unmapped(at, "is an object without properties: name them, or give additionalProperties a type")
        return _only(dict, "object", mapped(self.shape(others, f"{at}.*", inside)), at)

    def _array(self, schema: dict[str, Any], at: str, inside: tuple[str, ...]) -> Shape:
        if "prefixItems" in schema or not isinstance(schema.get("items"), dict):
            raise Unmapped(at, "is an array whose items have no common type: give them one in 'items'")
        return _only(list, "array", listed(self.shape(schema["items"], f"{at}[]", inside)), at)


def _alone(schema: dict[str, Any], word: str, at: str) -> None:
    others = sorted((_STRUCTURE - {word}) & schema.keys())
    if others:
        raise Unmapped(at, f"has {word} and {others[0]}: define its structure in one of them")


def _kind(schema: dict[str, Any], at: str) -> str:
    """The single type of a part: by `type`, or else by its other keywords."""
    said = schema.get("type")
    kinds = {said} if isinstance(said, str) else set(said or ())
    if not kinds:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        kinds = {_TYPES.get(type(value), "") for value in values}
    if not kinds:
        kinds = {kind for word, kind in (("properties", "object"), ("items", "array")) if word in schema}
    kinds.discard("null")
    if kinds == {"integer", "number"}:
        return "number"
    if not kinds:
        raise Unmapped(at, "has no type: give it one")
    if len(kinds) > 1 or "" in kinds:
        raise Unmapped(at, f"may be {' or '.join(sorted(kinds))}: a column has one type")
    return kinds.pop()


_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def _only(kind: type, name: str, shape: Shape, at: str) -> Shape:
    """The shape, but Unfit for values of another type, which a schema without `type` accepts as valid."""

    def make(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Unfit(f"{at} is not of type {name}")
        return shape.make(value)

    return Shape(shape.arrow, make)


def _number(at: str) -> Shape:
    def make(value: Any) -> float:
        try:
            return float(value)
        except OverflowError:
            raise Unfit(f"{at} is too large for a double") from None

    return Shape(pa.float64(), make)


_SIMPLE: Final[dict[str, Callable[[str], Shape]]] = {
    "string": lambda at: _only(str, "string", Shape(pa.string(), same), at),
    "boolean": lambda at: _only(bool, "boolean", Shape(pa.bool_(), same), at),
    "integer": bigint,
    "number": _number,
}
