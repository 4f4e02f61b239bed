"""Delayed conversations: their target has no place yet (protocol.md section 9l).

A conversation with a service that routing does not find is written to a partition of the link queue. The first record
makes its endpoint there. This record and all later ones for the endpoint wait as they are in the log, unjudged and in
order, until a RELOCATE gives the endpoint its place.

Many wait at once, most with a single record, and nobody looks at them meanwhile. So the first record of a conversation
is packed, and its facts stand in columns, at the index of the endpoint.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from konverse.schemas.limits import DELAYED_BYTES_MAX, DELAYED_RECORDS_MAX
from konverse.schemas.wire.envelope import CONVERSATION_AT, WRITER_AT, decode, unflagged
from konverse.schemas.wire.records import FIRST, Begin, Kind

from .endpoint import Endpoint, Stamp
from .packed_records import PACKED_BYTES_MAX, PackedRecords, plain

FRESH_PART: Final = 2
"""So many times as many hints as conversations are kept."""
_NO_OFFSET: Final = -1


class DelayedRecord(NamedTuple):
    """A record for a delayed endpoint, as it is in the log."""

    offset: int
    header: bytes
    body: bytes | None
    stamp: Stamp


class RouteWanted(NamedTuple):
    """The route that a delayed conversation waits for."""

    topic: str
    """Data topic of the initiator's home, which shows the database that began the conversation."""
    service: str
    broker_instance: str | None
    """Broker id that BEGIN DIALOG named."""

    @classmethod
    def by(cls, begin: Begin) -> RouteWanted:
        """The route that a conversation with this BEGIN block wants."""
        return cls(begin.home.topic, begin.to_service, begin.broker_instance)


class Delayed(NamedTuple):
    """A delayed conversation: the route that it wants, and its records in the order of the log."""

    wanted: RouteWanted
    records: list[DelayedRecord]

    @property
    def begin(self) -> Begin:
        """The BEGIN block of the first record."""
        begin = decode(self.records[0].header).suffix.begin
        assert begin is not None
        return begin


class _Wanted:
    """A wanted route, shared by all conversations that want it."""

    __slots__ = ("route", "sample")

    def __init__(self, route: RouteWanted) -> None:
        self.route = route
        self.sample = b""
        """The first record of the first conversation: other ones are packed against it. Empty before there is one."""


class DelayedDialogs:
    """The delayed conversations of a partition, by the index of their endpoint."""

    __slots__ = (
        "_endpoints",
        "_later",
        "_offsets",
        "_packed",
        "_places",
        "_stamps",
        "_wanted",
        "_wanted_by",
        "bytes",
        "count",
        "dialogs",
        "fresh",
        "loose",
    )

    def __init__(self) -> None:
        self.dialogs = self.count = self.bytes = 0
        """Number of conversations and of their records, and bytes of headers and bodies."""
        self._wanted: dict[RouteWanted, _Wanted] = {}
        """The wanted routes. Emptied when nothing is delayed any more."""
        self._endpoints: list[Endpoint | None] = []
        """First of the columns. None: the endpoint with this index is not delayed."""
        self._wanted_by: list[_Wanted | None] = []
        self._offsets = array("q")
        """Data offset of the first record; `_NO_OFFSET` before there is one."""
        self._stamps = array("q")
        self._places = array("I")
        """Place of the first record in `_packed`; 0 when the record stands in `_later`, because it is large or its
        stamp is more than a time."""
        self._packed = PackedRecords()
        self._later: dict[int, list[DelayedRecord]] = {}
        self.loose: deque[DelayedRecord] = deque()
        """Records of conversations that have just ended while they were delayed. The fold takes them next."""
        self.fresh: list[Endpoint] = []
        """Endpoints delayed since the owner looked: a hint. Not state."""

    def __bool__(self) -> bool:
        return self.dialogs > 0

    def __iter__(self) -> Iterator[Endpoint]:
        """The delayed endpoints, by index. Endpoints may be delayed and released meanwhile."""
        return (endpoint for endpoint in self._endpoints if endpoint is not None)

    def __contains__(self, endpoint: Endpoint) -> bool:
        index = endpoint.index
        return index < len(self._endpoints) and self._endpoints[index] is endpoint

    @property
    def wanted(self) -> list[RouteWanted]:
        """The routes that are wanted, or were wanted since nothing was delayed."""
        return [*self._wanted]

    @property
    def full(self) -> bool:
        """Whether no further record may be ingested: the bounds of a link partition are reached."""
        return self.count >= DELAYED_RECORDS_MAX or self.bytes >= DELAYED_BYTES_MAX

    def wanted_by(self, endpoint: Endpoint) -> RouteWanted | None:
        """The route that an endpoint waits for; None when it is not delayed."""
        wanted = self._wanted_by[endpoint.index] if endpoint in self else None
        return None if wanted is None else wanted.route

    def of(self, endpoint: Endpoint) -> Delayed | None:
        """The delayed conversation of an endpoint; None when it is not delayed."""
        wanted = self.wanted_by(endpoint)
        return None if wanted is None else Delayed(wanted, [*self._records(endpoint)])

    def has_of(self, endpoint: Endpoint, writer: bytes) -> bool:
        """Whether a record of this writer waits at the endpoint."""
        records = self._records(endpoint) if endpoint in self else ()
        return any(record.header[WRITER_AT:CONVERSATION_AT] == writer for record in records)

    def records_of(self, endpoint: Endpoint) -> int:
        """Number of records that wait at an endpoint."""
        index = endpoint.index
        return bool(self._places[index]) + len(self._later.get(index, ())) if endpoint in self else 0

    def oldest(self) -> int | None:
        """Lowest data offset of a record that waits; None when none does."""
        return min((offset for offset in self._offsets if offset != _NO_OFFSET), default=None)

    def as_of_now(self) -> Iterator[tuple[int, DelayedRecord]]:
        """All records with the indexes of their endpoints, as of this call: later changes do not show."""
        copy = DelayedDialogs()
        copy._endpoints, copy._wanted_by = [*self._endpoints], [*self._wanted_by]
        copy._offsets, copy._stamps, copy._places = self._offsets[:], self._stamps[:], self._places[:]
        copy._packed = self._packed.copy()
        copy._later = {index: [*records] for index, records in self._later.items()}
        return ((endpoint.index, record) for endpoint in copy for record in copy._records(endpoint))

    def begin(self, endpoint: Endpoint, route: RouteWanted) -> None:
        """Delay an endpoint that was just made."""
        index = endpoint.index
        missing = index + 1 - len(self._endpoints)
        if missing > 0:
            self._endpoints += [None] * missing
            self._wanted_by += [None] * missing
            self._offsets.extend([_NO_OFFSET] * missing)
            self._stamps.extend([0] * missing)
            self._places.extend([0] * missing)
        wanted = self._wanted.get(route)
        if wanted is None:
            wanted = self._wanted[route] = _Wanted(route)
        self._endpoints[index], self._wanted_by[index] = endpoint, wanted
        self.dialogs += 1
        self.fresh.append(endpoint)
        if len(self.fresh) > FRESH_PART * self.dialogs:  # no owner looks: this process follows the partition
            self.fresh = [one for one in self.fresh if one in self]

    def keep(self, endpoint: Endpoint, record: DelayedRecord) -> None:
        """Append a record of a delayed endpoint."""
        index = endpoint.index
        self.count += 1
        self.bytes += _size(record)
        if self._offsets[index] != _NO_OFFSET:
            self._later.setdefault(index, []).append(record)
            return
        self._offsets[index] = record.offset
        wanted = self._wanted_by[index]
        assert wanted is not None
        if _size(record) > PACKED_BYTES_MAX or not isinstance(record.stamp, int):
            self._later[index] = [record]
            return
        data = plain(record.header, record.body)
        wanted.sample = wanted.sample or data
        self._stamps[index] = record.stamp
        self._places[index] = self._packed.add(data, wanted.sample + _ids(endpoint))

    def release(self, endpoint: Endpoint) -> list[DelayedRecord]:
        """End the delay of an endpoint, and return its records; none when it is not delayed."""
        index = endpoint.index
        if endpoint not in self:
            return []
        records = [*self._records(endpoint)]
        if self._places[index]:
            self._packed.drop(self._places[index])
        self._endpoints[index] = self._wanted_by[index] = None
        self._offsets[index], self._places[index] = _NO_OFFSET, 0
        self._later.pop(index, None)
        self.dialogs -= 1
        self.count -= len(records)
        self.bytes -= sum(map(_size, records))
        if not self.dialogs:
            self._wanted.clear()
            del self._endpoints[:], self._wanted_by[:], self._offsets[:], self._stamps[:], self._places[:]
        if self._packed.wasteful:
            self._packed.compact(self._places)
        return records

    def let_go(self, endpoint: Endpoint) -> None:
        """End the delay of an endpoint that ends: its records are judged as if they came now. They begin nothing."""
        endpoint.received = 0
        self.loose += [record._replace(header=unflagged(record.header, FIRST)) for record in self.release(endpoint)]

    def clean_up(self, endpoint: Endpoint) -> None:
        """End the delay of an endpoint that is cleaned up: its messages are dropped, an END is judged next (M145)."""
        endpoint.received = 0
        records = self.release(endpoint)
        self.loose += [record for record in records if decode(record.header).kind is not Kind.MESSAGE]

    def _records(self, endpoint: Endpoint) -> Iterator[DelayedRecord]:
        index = endpoint.index
        place, wanted = self._places[index], self._wanted_by[index]
        if place and wanted is not None:
            header, body = self._packed.get(place, wanted.sample + _ids(endpoint))
            yield DelayedRecord(self._offsets[index], header, body, self._stamps[index])
        yield from self._later.get(index, ())


def _ids(endpoint: Endpoint) -> bytes:
    """The ids that are in the first record of an endpoint, and are its own. They never change."""
    return endpoint.opener + endpoint.conversation


def _size(record: DelayedRecord) -> int:
    return len(record.header) + len(record.body or b"")
