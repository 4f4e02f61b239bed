"""Makes records of a DataFrame's rows, column by column: a row costs a few concatenations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from konverse.dialog.batch.task import Task, ending
from konverse.dialog.session.lanes import Handed
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import NO_SEQUENCE, Begin
from konverse.schemas.wire.varint import varint, varints

from .checks import Columns, Headers, RowChecks, columns_of
from .plan import Plan

_NO_SEQUENCE: Final = varint(NO_SEQUENCE)


class Records(NamedTuple):
    """Records for one partition, in their order."""

    address: Address
    envelopes: list[bytes]
    keys: list[bytes]
    bodies: list[bytes | None]
    others: list[Headers] | None
    """The users' headers of each record; None: there are none."""


class _WrittenDialog(NamedTuple):
    """A conversation that this execution writes to."""

    conversation: bytes
    begin: Begin
    prefix: bytes


class TaskRows:
    """The rows of one execution of a task, in their order."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self._plan = plan
        self._task = task
        self._checks = RowChecks(plan, task.task.number)
        self._dialogs: dict[tuple[str, bytes], _WrittenDialog] = {}
        """Dialogs that this execution has begun. The BEGIN of a dialog that exists already has no effect."""

    def of(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """The records of a batch of rows, partition by partition. Errors name row and column."""
        if not batch.num_rows:
            return
        columns = columns_of(batch, self._plan.for_all_rows)
        others = self._checks.check(columns)
        lanes = _Lanes(self._task, columns, others)
        begun: dict[Address, list[Handed]] = {}
        for code, (first, service, key) in enumerate(lanes.names()):
            dialog = self._dialogs.get((service, key))
            if dialog is None:
                dialog = self._new(service, key)
                self._dialogs[service, key] = dialog
                row = self._task.begin(dialog.conversation, dialog.begin)
                begun.setdefault(row.address, []).append(row.record)
                lanes.open(first, dialog)
            lanes.lead(code, dialog)
        for address, records in begun.items():
            envelopes, keys, bodies = map(list, zip(*records, strict=True))
            yield Records(address, envelopes, keys, bodies, None)
        yield from lanes.records()

    def _new(self, service: str, key: bytes) -> _WrittenDialog:
        conversation, begin = self._plan.dialog(self._task.task.query, service, key)
        return _WrittenDialog(conversation, begin, self._task.prefix(begin.target, conversation))


class _Lanes:
    """Rows of one batch, grouped by conversation and message type, which their headers have in common."""

    def __init__(self, task: Task, columns: Columns, others: list[Headers] | None) -> None:
        self._task = task
        self._columns = columns
        self._others = others
        keys = _codes(columns.keys)
        whole = _codes(columns.services).astype(np.int64) * len(columns.keys.dictionary) + keys
        found, self._firsts, self._dialog = np.unique(whole, return_index=True, return_inverse=True)
        self._found = found
        self._types: list[str] = columns.types.dictionary.to_pylist()
        self._of = [_NOBODY] * len(found)
        self._opened: dict[int, _WrittenDialog] = {}

    def names(self) -> Iterator[tuple[int, str, bytes]]:
        """First row, service and key of each conversation."""
        services, keys = self._columns.services.dictionary.to_pylist(), self._columns.keys.dictionary.to_pylist()
        for first, code in zip(self._firsts.tolist(), self._found.tolist(), strict=True):
            yield first, services[code // len(keys)], keys[code % len(keys)]

    def lead(self, code: int, dialog: _WrittenDialog) -> None:
        """Set the dialog of a conversation, by its number in the order of `names`."""
        self._of[code] = dialog

    def open(self, row: int, dialog: _WrittenDialog) -> None:
        """Mark a row as the first message of its dialog."""
        self._opened[row] = dialog

    def records(self) -> Iterator[Records]:
        """All rows as records, partition by partition, in the order of the rows."""
        addresses = list(dict.fromkeys(dialog.begin.target for dialog in self._of))
        numbers = {address: number for number, address in enumerate(addresses)}
        targets = np.array([numbers[dialog.begin.target] for dialog in self._of], np.int32)[self._dialog]
        bodies = self._columns.bodies
        values = bodies.to_numpy(zero_copy_only=False)
        sizes = pc.fill_null(pc.binary_length(bodies), 0).to_numpy(zero_copy_only=False)
        prefixes, endings, keys = self._parts()
        for number, address in enumerate(addresses):
            rows = np.flatnonzero(targets == number)
            first = self._task.numbers(address, len(rows), int(sizes[rows].sum()))
            between = varints(first, len(rows))
            parts = zip(prefixes[rows].tolist(), between, endings[rows].tolist(), strict=True)
            envelopes = [prefix + counter + ending for prefix, counter, ending in parts]
            others = self._others and [self._others[row] for row in rows.tolist()]
            yield Records(address, envelopes, keys[rows].tolist(), _bodies(values[rows]), others)

    def _parts(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The beginning and the end of each row's header, and the key of its record."""
        dialogs, task = self._of, self._task
        prefixes = _objects([dialog.prefix for dialog in dialogs])[self._dialog]
        keys = _objects([dialog.begin.key or dialog.conversation for dialog in dialogs])[self._dialog]
        homes = {home: number for number, home in enumerate(dict.fromkeys(dialog.begin.home for dialog in dialogs))}
        by_home = _objects([_NO_SEQUENCE + task.suffix(kind, home) for home in homes for kind in self._types])
        home_of = np.array([homes[dialog.begin.home] for dialog in dialogs], np.int64)[self._dialog]
        types = _codes(self._columns.types)
        endings = by_home[home_of * len(self._types) + types]
        for row, dialog in self._opened.items():
            prefix, suffix = task.opening(dialog.conversation, dialog.begin, self._types[types[row]])
            prefixes[row], endings[row] = prefix, _NO_SEQUENCE + suffix
        for row in self._columns.ending:
            prefixes[row] = ending(prefixes[row])
        return prefixes, endings, keys


_NOBODY: Final[Any] = None
"""Stands for a dialog until `lead` sets it."""


def _codes(column: pa.DictionaryArray) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _objects(values: list[bytes]) -> NDArray[Any]:
    """An array of Python objects; by itself numpy would make byte strings of one length."""
    made = np.empty(len(values), np.object_)
    made[:] = values
    return made


def _bodies(values: NDArray[Any]) -> list[bytes | None]:
    """The bodies. A null becomes an empty body, as only a BEGIN has a null body."""
    return [value or b"" for value in values.tolist()]
