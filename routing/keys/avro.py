"""Keys of Avro data: one field of a record. A body is exactly one datum in Avro's binary encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from fastavro import parse_schema, schemaless_reader

from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.limits import COMPILED_SCHEMA_ENTRIES_MAX

from .rule import Lookup, NoKey, no_key_for, text_of

_NOTHING: Final = ("null",)
"""Types whose data have no bytes: an array in a small body could hold any number of them."""
FIELDS_MAX: Final = 10_000
"""Fields of a record, those of its records included. Ten records, each with two fields of the next, have a thousand."""
EMPTY_FIELDS_MAX: Final = 16
"""Fields without bytes of an item of an array or a map: an item of one byte takes memory for all of them."""


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
    try:
        _SchemaCheck().check(schema, ())
    except RecursionError:
        raise InvalidSettings("the Avro schema cannot be used to classify: its types are nested too deeply") from None
    return schema


class _Size(NamedTuple):
    """Bounds of a datum of some type."""

    has_bytes: bool
    """Whether it has at least one byte."""
    fields: int = 0
    """Fields that it may have, those of its records included, but not those of items of arrays and maps."""
    empty: int = 0
    """How many of these fields have no bytes, at most."""


class _SchemaCheck:
    """Refuses a schema with which a few bytes may hold very many or very deep data."""

    def __init__(self) -> None:
        self._named: dict[str, _Size] = {}
        """Sizes of the named types that were checked; each is checked once, however often it is used."""

    def check(self, schema: Any, around: tuple[str, ...]) -> _Size:
        """The size of a datum inside the records `around`. Raises InvalidSettings."""
        if isinstance(schema, list):  # the number of the branch precedes the datum
            branches = [self.check(branch, around) for branch in schema] or [_Size(has_bytes=False)]
            fields, empty = max(one.fields for one in branches), max(one.empty for one in branches)
            return _Size(has_bytes=True, fields=fields, empty=empty)
        if isinstance(schema, str):
            if schema in around:
                raise InvalidSettings(
                    f"the Avro schema cannot be used to classify: record {schema!r} may contain itself, as deeply as a "
                    "body chooses"
                )
            return self._named.get(schema) or _Size(schema not in _NOTHING)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, around)
        if kind in ("array", "map"):
            return self._items(schema["items" if kind == "array" else "values"], around, is_array=kind == "array")
        if kind in ("fixed", "enum"):
            self._named[schema["name"]] = size = _Size(kind == "enum" or bool(schema["size"]))
            return size
        return self.check(kind, around)

    def _record(self, schema: Any, around: tuple[str, ...]) -> _Size:
        name, has_bytes, count, empty = schema["name"], False, 0, 0
        for field in schema["fields"]:
            size = self.check(field["type"], (*around, name))
            has_bytes, count = has_bytes or size.has_bytes, count + 1 + size.fields
            empty += size.empty + (not size.has_bytes)
        if count > FIELDS_MAX:
            raise InvalidSettings(
                f"the Avro schema cannot be used to classify: record {name!r} has {count:,} fields, those of its "
                f"records included; {FIELDS_MAX:,} are the most"
            )
        self._named[name] = _Size(has_bytes, count, empty)
        return self._named[name]

    def _items(self, schema: Any, around: tuple[str, ...], *, is_array: bool) -> _Size:
        size = self.check(schema, around)
        if not size.has_bytes and is_array:
            raise InvalidSettings(
                "the Avro schema cannot be used to classify: the items of an array have no bytes, so a small body may "
                "have any number of them"
            )
        if size.empty > EMPTY_FIELDS_MAX:
            raise InvalidSettings(
                f"the Avro schema cannot be used to classify: an item of an array or a map has {size.empty:,} fields "
                f"without bytes, and a small body may have very many items; {EMPTY_FIELDS_MAX} such fields are the most"
            )
        return _Size(has_bytes=True)
