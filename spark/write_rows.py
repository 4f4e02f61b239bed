"""Rows of a DataFrame as the records of a task. Each row is checked here, before anything counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from konverse.dialog.batch_task import Row, Task
from konverse.schemas.envelope import HEADER
from konverse.schemas.errors import (
    BadInput,
    BodyTooLarge,
    InvalidSettings,
    NotInContract,
    NotSupportedYet,
    ServiceNotFound,
    WrongDirection,
)
from konverse.schemas.limits import BODY_BYTES_MAX, KEY_BYTES_MAX
from konverse.schemas.records import Begin

from .write_plan import Plan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEEDED: Final = {
    "to_service": ("string",),
    "message_type": ("string",),
    "body": ("binary", "string"),
    "key": ("binary", "string"),
}
OPTIONAL: Final = {"headers": ("array<struct<key:string,value:binary>>",)}
"""Columns, and which types of Spark they may have."""

Headers = list[tuple[str, str | bytes | None]]


def check_columns(schema: StructType) -> None:
    """Raise InvalidSettings for a column that is missing, unknown, there twice, or of another type; NotSupportedYet."""
    allowed = {**NEEDED, **OPTIONAL}
    found = [field.name for field in schema.fields]
    if "end" in found:
        raise NotSupportedYet(
            "rows cannot end conversations yet; drop column 'end', and end them at the target, or from the queue of "
            "'from_service'"
        )
    for name in NEEDED:
        if name not in found:
            raise InvalidSettings(f"the DataFrame has no column {name!r}; a writer needs {', '.join(NEEDED)}")
    for field in schema.fields:
        if field.name not in allowed or found.count(field.name) > 1:
            what = "twice" if found.count(field.name) > 1 else "which a writer does not know"
            raise InvalidSettings(
                f"the DataFrame has column {field.name!r} {what}; select {', '.join(NEEDED)} and, if there are any, "
                f"{', '.join(OPTIONAL)}"
            )
        kind = field.dataType.simpleString()
        if kind not in allowed[field.name]:
            wanted = " or ".join(allowed[field.name])
            raise InvalidSettings(f"column {field.name!r} is {kind}; cast it to {wanted}")


class Rows:
    """The rows of one execution of a task, in their order."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self._plan = plan
        self._task = task
        self._dialogs: dict[tuple[str, bytes], tuple[bytes, Begin]] = {}
        """Those that this execution has begun. They may live already: then its BEGIN changes nothing."""
        self._read = 0

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[Row, Headers]]:
        """The records of a batch of rows, with the user's headers. Typed errors name row and column."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        headers: Sequence[Any] = columns.get("headers") or [None] * batch.num_rows
        named = zip(*(columns[name] for name in NEEDED), headers, strict=True)
        for to_service, message_type, body, key, others in named:
            yield from self._row(to_service, message_type, _bytes(body) or b"", _bytes(key), others)
            self._read += 1

    def _row(
        self, to_service: str | None, message_type: str | None, body: bytes, key: bytes | None, headers: Any
    ) -> Iterator[tuple[Row, Headers]]:
        if key is None or to_service is None or message_type is None:
            column = "key" if key is None else "to_service" if to_service is None else "message_type"
            raise self._fault(BadInput, column, "it is null; every row needs one")
        known = self._dialogs.get((to_service, key))
        self._check(to_service, message_type, body, key)
        task, others = self._task, self._headers(headers)
        if known is None:
            conversation, begin = self._plan.dialog(task.task.query, to_service, key)
            self._dialogs[to_service, key] = conversation, begin
            yield task.begin(conversation, begin), []
            yield task.first(conversation, begin, message_type, body), others
        else:
            conversation, begin = known
            yield task.message(begin.target, conversation, begin.home, message_type, body), others

    def _check(self, to_service: str, message_type: str, body: bytes, key: bytes) -> None:
        plan = self._plan
        if to_service not in plan.services:
            known = ", ".join(map(repr, plan.services))
            raise self._fault(
                ServiceNotFound,
                "to_service",
                f"{to_service!r} is no service that may be a target of contract {plan.contract!r} here; there are "
                f"{known} (option 'to_services' may leave some out)",
            )
        if not plan.types.get(message_type):
            if message_type in plan.types:
                text = f"contract {plan.contract!r} lets only the target send {message_type!r}, and rows are no answers"
                raise self._fault(WrongDirection, "message_type", text)
            known = ", ".join(repr(name) for name, ours in plan.types.items() if ours)
            text = f"{message_type!r} is not in contract {plan.contract!r}; it has {known}"
            raise self._fault(NotInContract, "message_type", text)
        if len(body) > BODY_BYTES_MAX:
            text = f"it has {len(body)} bytes; at most {BODY_BYTES_MAX} fit into one message"
            raise self._fault(BodyTooLarge, "body", text)
        if len(key) > KEY_BYTES_MAX:
            raise self._fault(BadInput, "key", f"it has {len(key)} bytes; at most {KEY_BYTES_MAX} are allowed")

    def _headers(self, given: Any) -> Headers:
        pairs: Headers = []
        for entry in given or ():
            name = None if entry is None else entry["key"]
            if name is None or name == HEADER:
                what = "without a name" if name is None else f"named {HEADER!r}, which is konverse's own"
                raise self._fault(BadInput, "headers", f"it holds a header {what}; remove it")
            pairs.append((name, entry["value"]))
        return pairs

    def _fault(self, kind: type[BadInput], column: str, text: str) -> BadInput:
        where = f"row {self._read} of task {self._task.task.number}, column {column!r}"
        return kind(f"{where}: {text}. Nothing of this batch is received")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
