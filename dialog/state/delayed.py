"""Delayed conversations: their target has no place yet (protocol.md section 9l).

A conversation with a service that routing does not find is written to a partition of the link queue. The first record
makes its endpoint there. This record and all later ones for the endpoint wait as they are in the log, unjudged and in
order, until a RELOCATE gives the endpoint its place.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from konverse.schemas.limits import DELAYED_BYTES_MAX, DELAYED_RECORDS_MAX
from konverse.schemas.wire.envelope import CONVERSATION_AT, WRITER_AT, decode, unflagged
from konverse.schemas.wire.records import FIRST, Begin

from .endpoint import Endpoint, Stamp


class DelayedRecord(NamedTuple):
    """A record for a delayed endpoint, as it is in the log."""

    offset: int
    header: bytes
    body: bytes | None
    stamp: Stamp


class RouteWanted(NamedTuple):
    """The route that a delayed conversation waits for: one object for all conversations that want the same one."""

    topic: str
    """Data topic of the initiator's home, which shows the database that began the conversation."""
    service: str
    broker_instance: str | None
    """Broker id that BEGIN DIALOG named."""

    @classmethod
    def by(cls, begin: Begin) -> RouteWanted:
        """The route that a conversation with this BEGIN block wants."""
        return cls(begin.home.topic, begin.to_service, begin.broker_instance)


class Delayed:
    """A delayed conversation: the route that it wants, and its records in the order of the log.

    Most have one record, and many wait at once. So the first record needs no object of its own.
    """

    __slots__ = ("_body", "_header", "_later", "_stamp", "offset", "wanted")

    def __init__(self, wanted: RouteWanted) -> None:
        self.wanted = wanted
        self.offset = 0
        """Data offset of the first record, once there is one."""
        self._header = b""
        """Header of the first record; empty before it is kept."""
        self._body: bytes | None = None
        self._stamp: Stamp = 0
        self._later: tuple[DelayedRecord, ...] | list[DelayedRecord] = ()

    def __len__(self) -> int:
        """Number of records."""
        return bool(self._header) + len(self._later)

    @property
    def begin(self) -> Begin:
        """The BEGIN block of the first record."""
        begin = decode(self._header).suffix.begin
        assert begin is not None
        return begin

    @property
    def records(self) -> list[DelayedRecord]:
        """All records."""
        if not self._header:
            return []
        return [DelayedRecord(self.offset, self._header, self._body, self._stamp), *self._later]

    def keep(self, record: DelayedRecord) -> None:
        """Append a record."""
        if not self._header:
            self.offset, self._header, self._body, self._stamp = record
        elif isinstance(self._later, list):
            self._later.append(record)
        else:
            self._later = [record]


class DelayedDialogs:
    """The delayed conversations of a partition, by the index of their endpoint."""

    __slots__ = ("bytes", "count", "dialogs", "fresh", "loose", "wanted")

    def __init__(self) -> None:
        self.dialogs: dict[int, Delayed] = {}
        self.wanted: dict[RouteWanted, RouteWanted] = {}
        """The wanted routes, so that conversations share them. Emptied when nothing is delayed any more."""
        self.count = self.bytes = 0
        """Number of records, and bytes of their headers and bodies."""
        self.loose: deque[DelayedRecord] = deque()
        """Records of conversations that have just ended while they were delayed. The fold takes them next."""
        self.fresh: list[Endpoint] = []
        """Endpoints delayed since the owner looked: a hint. Not state."""

    def __bool__(self) -> bool:
        return bool(self.dialogs)

    def __contains__(self, endpoint: Endpoint) -> bool:
        return endpoint.index in self.dialogs

    @property
    def full(self) -> bool:
        """Whether no further record may be ingested: the bounds of a link partition are reached."""
        return self.count >= DELAYED_RECORDS_MAX or self.bytes >= DELAYED_BYTES_MAX

    def has_of(self, endpoint: Endpoint, writer: bytes) -> bool:
        """Whether a record of this writer waits at the endpoint."""
        delayed = self.dialogs.get(endpoint.index)
        records = () if delayed is None else delayed.records
        return any(record.header[WRITER_AT:CONVERSATION_AT] == writer for record in records)

    def records_of(self, endpoint: Endpoint) -> int:
        """Number of records that wait at an endpoint."""
        delayed = self.dialogs.get(endpoint.index)
        return 0 if delayed is None else len(delayed)

    def oldest(self) -> int | None:
        """Lowest data offset of a record that waits; None when none does."""
        return min((delayed.offset for delayed in self.dialogs.values() if delayed), default=None)

    def begin(self, endpoint: Endpoint, wanted: RouteWanted) -> None:
        """Delay an endpoint that was just made."""
        self.dialogs[endpoint.index] = Delayed(self.wanted.setdefault(wanted, wanted))
        self.fresh.append(endpoint)

    def keep(self, index: int, record: DelayedRecord) -> None:
        """Append a record of a delayed endpoint."""
        self.dialogs[index].keep(record)
        self.count += 1
        self.bytes += len(record.header) + len(record.body or b"")

    def release(self, endpoint: Endpoint) -> list[DelayedRecord]:
        """End the delay of an endpoint, and return its records; none when it is not delayed."""
        delayed = self.dialogs.pop(endpoint.index, None)
        if delayed is None:
            return []
        if not self.dialogs:
            self.wanted.clear()
        records = delayed.records
        self.count -= len(records)
        self.bytes -= sum(len(record.header) + len(record.body or b"") for record in records)
        return records

    def let_go(self, endpoint: Endpoint) -> None:
        """End the delay of an endpoint that ends: its records are judged as if they came now. They begin nothing."""
        endpoint.received = 0
        self.loose += [record._replace(header=unflagged(record.header, FIRST)) for record in self.release(endpoint)]
