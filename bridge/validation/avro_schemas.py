"""Checks that a body is exactly one datum in Avro's binary encoding, with fastavro."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSchema

from .rules import Check, loaded

_PARTS: Final = {
    "record": ("name", "fields"),
    "error": ("name", "fields"),
    "enum": ("name", "symbols"),
    "fixed": ("name", "size"),
    "array": ("items",),
    "map": ("values",),
}
"""Attributes that a complex type must have besides `type`."""


def check_of(documents: Sequence[str]) -> Check:
    """Make the check of bodies against an Avro schema. Raises InvalidSchema, also for a type that is not defined."""
    given: Any = loaded(documents[0])
    _check_parts(given)
    try:
        schema = parse_schema(given)
    except UnknownType as error:
        raise InvalidSchema(f"the Avro schema names {error.name!r}, which is not in it; nothing is fetched") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSchema(f"the Avro schema cannot be used: {error}") from None
    endless = _endless(schema)
    if endless:
        raise InvalidSchema(
            f"the Avro schema cannot be used: a datum of record {endless[0]!r} would contain itself without end; put "
            "the inner record into an array, a map, or a union with another type"
        )

    def fault(body: bytes) -> str:
        source = BytesIO(body)
        try:
            schemaless_reader(source, schema, None)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises a dozen exception types for broken input
            return f"not a datum of its Avro schema: {error!r}"
        rest = len(body) - source.tell()
        return f"{counted(rest, 'byte')} after the datum of its Avro schema" if rest else ""

    return fault


def _check_parts(schema: Any) -> None:
    """Raise InvalidSchema for a type without a required attribute, with a clear text: fastavro's names only the key."""
    for each in schema if isinstance(schema, list) else [schema]:
        if not isinstance(each, dict):
            continue
        kind = each.get("type")
        for part in ("type", *(_PARTS.get(kind, ()) if isinstance(kind, str) else ())):
            if part not in each:
                what = f"{kind} {each.get('name', '')!r}" if isinstance(kind, str) else "a type"
                raise InvalidSchema(f"the Avro schema cannot be used: {what} has no {part!r}")
        _check_parts(kind)
        _check_parts(each.get("items"))
        _check_parts(each.get("values"))
        fields = each.get("fields")
        for field in fields if isinstance(fields, list) else ():
            if not isinstance(field, dict) or not {"name", "type"} <= field.keys():
                raise InvalidSchema(
                    f"the Avro schema cannot be used: a field of {kind} {each.get('name')!r} lacks name or type"
                )
            _check_parts(field["type"])


def _endless(schema: Any) -> list[str]:
    """Names of the records of a parsed schema that have no finite datum, because they contain themselves."""
    records: dict[str, list[Any]] = {}
    _collect(schema, records)
    finite: set[str] = set()
    while grown := {
        name
        for name, types in records.items()
        if name not in finite and all(_ends(one, records, finite) for one in types)
    }:
        finite |= grown
    return sorted(records.keys() - finite)


def _collect(schema: Any, records: dict[str, list[Any]]) -> None:
    """Add every record of a schema to `records`: name -> types of its fields."""
    for each in schema if isinstance(schema, list) else [schema]:
        if not isinstance(each, dict):
            continue
        if "fields" in each:
            records[each["name"]] = [field["type"] for field in each["fields"]]
            _collect(records[each["name"]], records)
        for part in ("type", "items", "values"):
            _collect(each.get(part), records)


def _ends(one: Any, records: dict[str, list[Any]], finite: set[str]) -> bool:
    """Whether a type has a finite datum, given the records known to have one."""
    if isinstance(one, list):
        return any(_ends(branch, records, finite) for branch in one)
    if isinstance(one, dict):
        kind = one["type"]
        return (
            _ends(one["name"] if "fields" in one else kind, records, finite) if kind not in ("array", "map") else True
        )
    return one not in records or one in finite
