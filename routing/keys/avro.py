"""Keys of Avro data: one field of a record. A body is exactly one datum in Avro's binary encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader

from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.limits import COMPILED_SCHEMA_ENTRIES_MAX

from .rule import Lookup, NoKey, no_key_for, text_of

_NOTHING: Final = ("null",)
"""Types whose data have no bytes: an array in a small body could hold any number of them."""


class AvroField:
    """A field of the record in a body, or of a nested record."""

    kind = "avro_field"

    def __init__(self, field: str, schema: str | None = None) -> None:
        """`field` is a name, or several joined by dots: `customer.region`.

        `schema` is the writer's schema, a JSON document; None: the catalog has one for each message type. Raises
        InvalidSettings for an invalid schema, or one with which a small body may hold a very large or deep datum.
        """
        if not all(field.split(".")):
            raise InvalidSettings(f"{field!r} names no field of an Avro record; write it like customer.region")
        self._field = field
        self._names = field.split(".")
        self._schema = schema
        self._known: dict[str, Any] = {}
        if schema is not None:
            self._parsed(schema)

    def key_of(self, message: Any, lookup: Lookup | None = None) -> str:
        """The field's string, or its integer or boolean as JSON writes it."""
        body = message.body or b""
        source = BytesIO(body)
        schema = self._parsed(self._schema_for(message.type, lookup))
        try:
            value: Any = schemaless_reader(source, schema, None)
        except Exception as error:  # noqa: BLE001  # fastavro raises a dozen types for broken input
            raise no_key_for("The body is not a valid datum of its Avro schema", repr(error)) from None
        if source.tell() != len(body):
            rest = counted(len(body) - source.tell(), "byte")
            raise NoKey(f"The body has {rest} after the datum of its Avro schema.")
        for name in self._names:
            if not isinstance(value, dict) or name not in value:
                raise NoKey(f"The datum has no field {self._field}.")
            value = value[name]
        return text_of(value, self._field)

    def described(self) -> Mapping[str, Any]:
        """The field, and the schema if there is one."""
        return {"field": self._field} | ({} if self._schema is None else {"schema": self._schema})

    def _schema_for(self, message_type: str, lookup: Lookup | None) -> str:
        if self._schema is not None:
            return self._schema
        if lookup is None:
            raise InvalidSettings(
                f"the classifier by Avro field {self._field!r} has no schema: give it one, or use it where there is a "
                "catalog, which has those of message types"
            )
        found = lookup.avro_schema(message_type)
        if not found:
            raise NoKey(f"Message type {message_type!r} has no Avro schema.")
        return found

    def _parsed(self, schema: str) -> Any:
        known = self._known.get(schema)
        if known is None:
            known = _parsed(schema)
            if len(self._known) >= COMPILED_SCHEMA_ENTRIES_MAX:
                self._known.clear()
            self._known[schema] = known
        return known


def _parsed(text: str) -> Any:
    try:
        given = json.loads(text)
        schema: Any = parse_schema(given)
    except Exception as error:  # noqa: BLE001  # a dozen types, as above
        raise InvalidSettings(f"the Avro schema cannot be used: {error!r}") from None
    _check(schema, {}, ())
    return schema


def _check(schema: Any, records: dict[str, Any], around: tuple[str, ...]) -> bool:
    """Whether a datum has at least one byte. InvalidSettings if a few bytes may hold very many or very deep data."""
    if isinstance(schema, list):
        for branch in schema:
            _check(branch, records, around)
        return True  # the number of the branch precedes the datum
    if isinstance(schema, str):
        if schema in around:
            raise InvalidSettings(
                f"the Avro schema cannot be used to classify: record {schema!r} may contain itself, as "
                "deeply as a body chooses"
            )
        return _check(records[schema], records, around) if schema in records else schema not in _NOTHING
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        records[name] = schema
        fields = [_check(field["type"], records, (*around, name)) for field in schema["fields"]]
        return any(fields)
    if kind in ("array", "map"):
        has_bytes = _check(schema["items" if kind == "array" else "values"], records, around)
        if kind == "array" and not has_bytes:
            raise InvalidSettings(
                "the Avro schema cannot be used to classify: the items of an array have no bytes, so a small body may "
                "have any number of them"
            )
        return True
    if kind == "fixed":
        records[schema["name"]] = schema
        return bool(schema["size"])
    if kind == "enum":
        records[schema["name"]] = schema
        return True
    return _check(kind, records, around)
