"""Checks which columns and rows can be sent. An error names row and column; nothing of its batch is received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konverse.schemas.errors import (
    BadInput,
    BodyTooLarge,
    InvalidSettings,
    NotInContract,
    ServiceNotFound,
    WrongDirection,
)
from konverse.schemas.limits import BODY_BYTES_MAX, KEY_BYTES_MAX, ROW_BYTES_MAX
from konverse.schemas.wire.bodies import TOO_LARGE
from konverse.schemas.wire.envelope import HEADER
from konverse.spark.connection.case_rule import CASE_SENSITIVE, is_true, spellings

from .plan import Plan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEEDED: Final = {
    "to_service": ("string",),
    "message_type": ("string",),
    "body": ("binary", "string"),
    "key": ("binary", "string"),
}
OPTIONAL: Final = {"headers": ("array<struct<key:string,value:binary>>",), "end": ("boolean",)}
"""NEEDED and OPTIONAL: columns, and the Spark types that each may have."""

Headers = list[tuple[str, str | bytes | None]]

_HEADER_MORE_BYTES: Final = 10
"""Most bytes of a header in a record beside its name and value: the lengths of both."""


def check_columns(schema: StructType, for_all_rows: Mapping[str, str]) -> None:
    """Raise InvalidSettings for a column that is missing, unknown, there twice, or of another type.

    Ignores the case of names. Tasks know whether the session is case-sensitive, and apply that in `as_named`.
    """
    allowed = {**NEEDED, **OPTIONAL}
    found = spellings(schema.fieldNames(), allowed)
    for name in NEEDED:
        if name not in found and name not in for_all_rows:
            raise InvalidSettings(f"the DataFrame has no column {name!r}; a writer needs {', '.join(NEEDED)}")
        if name in found and name in for_all_rows:
            raise InvalidSettings(
                f"the DataFrame has column {name!r}, and option {name!r} gives one value for all rows; leave one out"
            )
    for field, name in zip(schema.fields, found, strict=True):
        if name not in allowed or found.count(name) > 1:
            what = "twice" if found.count(name) > 1 else "which a writer does not know"
            raise InvalidSettings(
                f"the DataFrame has column {field.name!r} {what}; select {', '.join(NEEDED)} and, if there are any, "
                f"{', '.join(OPTIONAL)}"
            )
        kind = field.dataType.simpleString()
        if kind not in allowed[name]:
            wanted = " or ".join(allowed[name])
            raise InvalidSettings(f"column {field.name!r} is {kind}; cast it to {wanted}")


def as_named(batch: pa.RecordBatch, case_sensitive: str | None) -> pa.RecordBatch:
    """The batch with its columns in our spelling; InvalidSettings for another case in a case-sensitive session."""
    found = batch.schema.names
    ours = spellings(found, (*NEEDED, *OPTIONAL))
    if ours == found:
        return batch
    if is_true(case_sensitive):
        name, wanted = next((one, other) for one, other in zip(found, ours, strict=True) if one != other)
        raise InvalidSettings(
            f"the DataFrame has column {name!r}, which is not {wanted!r} as {CASE_SENSITIVE} is true; rename it"
        )
    return batch.rename_columns(ours)


class Columns(NamedTuple):
    """Rows of a DataFrame, by column. Columns whose values repeat are dictionary-encoded."""

    services: pa.DictionaryArray
    types: pa.DictionaryArray
    keys: pa.DictionaryArray
    bodies: pa.Array
    headers: pa.Array | None
    """None: no row has headers."""
    ending: list[int]
    """Indexes of the rows that end their conversations."""


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def columns_of(batch: pa.RecordBatch, for_all_rows: Mapping[str, str]) -> Columns:
    """The columns of a batch from Spark. Strings of keys and bodies become bytes."""
    headers = batch.column("headers") if "headers" in batch.schema.names else None
    return Columns(
        _names(batch, "to_service", for_all_rows),
        _names(batch, "message_type", for_all_rows),
        _bytes(batch.column("key")).dictionary_encode(),
        _bytes(batch.column("body")),
        None if headers is None or headers.null_count == len(headers) else headers,
        _true(batch.column("end")) if "end" in batch.schema.names else [],
    )


def _names(batch: pa.RecordBatch, column: str, for_all_rows: Mapping[str, str]) -> pa.DictionaryArray:
    """A column of names; if an option gives one name for all rows, that name."""
    if column in for_all_rows:
        return pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int32), [for_all_rows[column]])
    return batch.column(column).dictionary_encode()


def _true(column: pa.BooleanArray) -> list[int]:
    """The indexes at which the column is true; null counts as false."""
    places: list[int] = pc.indices_nonzero(column).to_pylist()
    return places


def _bytes(column: pa.Array) -> pa.Array:
    """The column as bytes. Spark may be set to give large strings."""
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


class _CheckedRow(NamedTuple):
    to_service: str | None
    message_type: str | None
    key: bytes | None
    body_bytes: int
    headers: Any


class RowChecks:
    """Checks the rows of one execution of a task before they are written."""

    def __init__(self, plan: Plan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._read = 0
        """Number of rows in earlier batches: errors number the rows of the whole task."""

    def check(self, rows: Columns) -> list[Headers] | None:
        """The users' headers of each row, if any. Raises BadInput or a subclass for the first row with a fault."""
        self._check_utf8(rows)
        found = None if rows.headers is None and self._fine(rows) else [*self._one_by_one(rows)]
        self._read += len(rows.bodies)
        return found

    def _check_utf8(self, rows: Columns) -> None:
        """Raise BadInput for the first row with a name that is not UTF-8: Spark keeps any bytes in a string."""
        for column, values in (("to_service", rows.services), ("message_type", rows.types)):
            for place, name in enumerate(values.dictionary.cast(pa.binary()).to_pylist()):
                if name is not None and not _is_utf8(name):
                    row = self._read + values.indices.to_pylist().index(place)
                    raise self._fault(BadInput, row, column, f"{name!r} is not UTF-8")
        if rows.headers is not None:
            for number, headers in enumerate(rows.headers):
                try:
                    headers.as_py()
                except UnicodeDecodeError as error:
                    text = f"the key {error.object!r} of a header is not UTF-8"
                    raise self._fault(BadInput, self._read + number, "headers", text) from None

    def _fine(self, rows: Columns) -> bool:
        """Whether every row can be sent, checked by column."""
        plan = self._plan
        return (
            not (rows.services.null_count or rows.types.null_count or rows.keys.null_count)
            and all(service in plan.services for service in rows.services.dictionary.to_pylist())
            and all(plan.types.get(name) for name in rows.types.dictionary.to_pylist())
            and _longest(rows.keys.dictionary) <= KEY_BYTES_MAX
            and _longest(rows.bodies) <= BODY_BYTES_MAX
        )

    def _one_by_one(self, rows: Columns) -> Iterator[Headers]:
        services, types, keys = (some.to_pylist() for some in (rows.services, rows.types, rows.keys))
        bodies = pc.fill_null(pc.binary_length(rows.bodies), 0).to_pylist()
        headers = [None] * len(bodies) if rows.headers is None else rows.headers.to_pylist()
        for number, row in enumerate(zip(services, types, keys, bodies, headers, strict=True), self._read):
            yield self._row(number, _CheckedRow(*row))

    def _row(self, row: int, given: _CheckedRow) -> Headers:
        to_service, message_type, key, size, headers = given
        plan = self._plan
        for column, value in (("key", key), ("to_service", to_service), ("message_type", message_type)):
            if value is None:
                raise self._fault(BadInput, row, column, "it is null; every row needs one")
        if to_service not in plan.services:
            known = ", ".join(map(repr, plan.services))
            text = (
                f"{to_service!r} is not a service that may be a target of contract {plan.contract!r} here; those are "
                f"{known} (option 'to_services' may leave some out)"
            )
            raise self._fault(ServiceNotFound, row, "to_service", text)
        if not plan.types.get(message_type or ""):
            if message_type in plan.types:
                text = (
                    f"contract {plan.contract!r} lets only the target send {message_type!r}, and rows come from an "
                    "initiator"
                )
                raise self._fault(WrongDirection, row, "message_type", text)
            known = ", ".join(repr(name) for name, ours in plan.types.items() if ours)
            text = f"{message_type!r} is not in contract {plan.contract!r}; it has {known}"
            raise self._fault(NotInContract, row, "message_type", text)
        if size > BODY_BYTES_MAX:
            text = f"it has {size} {TOO_LARGE}"
            raise self._fault(BodyTooLarge, row, "body", text)
        if len(key or b"") > KEY_BYTES_MAX:
            text = f"it has {len(key or b'')} bytes; at most {KEY_BYTES_MAX} are allowed"
            raise self._fault(BadInput, row, "key", text)
        return self._headers(row, headers, ROW_BYTES_MAX - size - len(key or b"")) if headers else []

    def _headers(self, row: int, given: Any, bytes_max: int) -> Headers:
        pairs: Headers = []
        for entry in given:
            name = None if entry is None else entry["key"]
            if name is None or name == HEADER:
                what = "without a name" if name is None else f"named {HEADER!r}, which is konverse's own"
                raise self._fault(BadInput, row, "headers", f"it holds a header {what}; remove it")
            pairs.append((name, entry["value"]))
        size = sum(len(name.encode()) + len(value or b"") + _HEADER_MORE_BYTES for name, value in pairs)
        if size > bytes_max:
            text = f"it has {size} bytes; at most {bytes_max} fit into one message beside the row's body and key"
            raise self._fault(BodyTooLarge, row, "headers", text)
        return pairs

    def _fault(self, kind: type[BadInput], row: int, column: str, text: str) -> BadInput:
        where = f"row {row} of task {self._task}, column {column!r}"
        return kind(f"{where}: {text}. Nothing of this batch is received")


def _longest(column: pa.Array) -> int:
    """Bytes of the longest value; 0 without values."""
    return pc.max(pc.binary_length(column)).as_py() or 0
