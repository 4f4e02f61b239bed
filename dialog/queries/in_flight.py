"""Conversation groups between two partitions: they have left one and have not arrived in the other.

An INSTALL names the group of its endpoint. It is in the outbox of the old partition until the new one has it, and then
in the new one's data log until a COMMIT has ingested it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.transaction.received import GroupPlace
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.moved import MovedGroup, group_of_moved
from konverse.schemas.wire.records import Kind
from konverse.schemas.wire.varint import varint

_INSTALL: Final = bytes((Kind.INSTALL << 1,))
"""First byte of the header of an INSTALL."""


class InFlight(NamedTuple):
    """An endpoint of the wanted group, on its way."""

    generation: int
    """Number of its moves, including this one."""
    found: GroupPlace
    """Its destination."""


def sent(state: Partition, group: bytes) -> Iterator[InFlight]:
    """Members of a group that have left this partition and may not have arrived, or have arrived here in part."""
    for stream in state.streams.values():
        runs = [run for run in stream.runs if run.prefix.startswith(_INSTALL)]
        rows = ((run.headers(iter((varint(0),)))[0], run.bodies[0]) for run in runs)
        yield from _among(rows, stream.address, group)
    for pieces in state.moves.installing.values():
        moved = _read(pieces[0])
        if moved is not None and moved.group == group:
            yield InFlight(moved.generation, GroupPlace(state.address, moved.service))


def arriving(columns: RecordColumns, to: Address, group: bytes) -> Iterator[InFlight]:
    """Members of a group in data records of partition `to`."""
    return _among(zip(columns.headers, columns.bodies, strict=True), to, group)


def newest(several: Iterable[InFlight]) -> GroupPlace | None:
    """Where the group goes, by the latest generation: an endpoint that arrived and left again has a higher one."""
    last = max(several, key=lambda one: one.generation, default=None)
    return None if last is None else last.found


def _among(rows: Iterable[tuple[bytes | None, bytes | None]], to: Address, group: bytes) -> Iterator[InFlight]:
    for header, body in rows:
        if header is None or not header.startswith(_INSTALL):
            continue
        try:
            envelope = decode(header)
        except MalformedRecord:
            continue
        number, _ = envelope.suffix.fragment or (-1, 0)
        moved = _read(body or b"") if number == 0 and envelope.tag == to.tag else None
        if moved is not None and group == (moved.group or own_group(envelope.role, envelope.conversation)):
            yield InFlight(moved.generation, GroupPlace(to, moved.service))


def _read(piece: bytes) -> MovedGroup | None:
    try:
        return group_of_moved(piece)
    except MalformedRecord:
        return None
