"""Other content under a counter that was taken: a stranger has written in the name of one of our writers.

The fold cannot tell which of two records its writer wrote: it takes the first, as it must. But the other one may have
been acknowledged to an honest sender, so it is not dropped in silence. A partition keeps the records that it ingested
last, as they are, and compares a duplicate with the record that was taken. This is no state: what it finds changes
nothing but what is said, and two folds of one log may remember differently far back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from konverse.schemas.envelope import decode
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.limits import ALARMS_MAX, RECENT_BODY_BYTES_MAX, RECENT_RECORDS_MAX
from konverse.schemas.records import Envelope, Kind

if TYPE_CHECKING:
    from .endpoint import Record
    from .ingest import Columns

Key = tuple[bytes, bytes, int]
"""Incarnation tag, writer and counter."""


class Forgery(NamedTuple):
    """Two records with other content under one counter of one writer."""

    writer: bytes
    counter: int
    taken: int
    """Offset of the record that was accepted."""
    dropped: int
    """Offset of the record that came later."""


class _Kept:
    """One read of the data log."""

    def __init__(self, columns: Columns, body_bytes: int) -> None:
        self.columns = columns
        self.body_bytes = body_bytes
        self.keys: list[Key] = []
        """What the index has of it."""


class Recent:
    """The records that were ingested last, to compare duplicates with. They are indexed when the first one comes."""

    def __init__(self) -> None:
        self.found: deque[Forgery] = deque(maxlen=ALARMS_MAX)
        """What the driver has not taken yet."""
        self.count = 0
        """How many were found since this process follows the partition."""
        self._kept: deque[_Kept] = deque()
        self._records = self._body_bytes = 0
        self._places: dict[Key, tuple[int, bytes, bytes | None]] = {}
        """Offset, header and body of the first record under a counter."""
        self._unindexed: deque[_Kept] = deque()

    def keep(self, columns: Columns, body_bytes: int) -> None:
        """These are ingested next. Older ones go, beyond the bounds; the newest read stays, whatever its size."""
        kept = _Kept(columns, body_bytes)
        self._kept.append(kept)
        self._unindexed.append(kept)
        self._records += len(columns.offsets)
        self._body_bytes += body_bytes
        while len(self._kept) > 1 and (self._records > RECENT_RECORDS_MAX or self._body_bytes > RECENT_BODY_BYTES_MAX):
            self._let_go(self._kept.popleft())

    def compare(self, envelope: Envelope, offset: int, header: bytes, record: Record) -> None:
        """A duplicate came. Where the record that was taken is not known any more it cannot be judged."""
        while self._unindexed:
            self._index(self._unindexed.popleft())
        known = self._places.get(_key(envelope))
        if known is None or known[0] >= offset:
            return
        taken, first, body = known
        if (first, body or b"") != (header, record[0] or b"") and not _taken_back(envelope, first):
            self.count += 1
            self.found.append(Forgery(envelope.writer, envelope.counter, taken, offset))

    def _index(self, kept: _Kept) -> None:
        for offset, header, body in zip(*kept.columns[:3], strict=True):
            try:
                envelope = decode(header or b"")
            except MalformedRecord:
                continue
            key = _key(envelope)
            if header is not None and envelope.kind is not Kind.PENDING and key not in self._places:
                self._places[key] = (offset, header, body)
                kept.keys.append(key)

    def _let_go(self, kept: _Kept) -> None:
        self._records -= len(kept.columns.offsets)
        self._body_bytes -= kept.body_bytes
        for key in kept.keys:
            del self._places[key]
        if self._unindexed and self._unindexed[0] is kept:
            self._unindexed.popleft()


def _key(envelope: Envelope) -> Key:
    return envelope.tag, envelope.writer, envelope.counter


def _taken_back(envelope: Envelope, first: bytes) -> bool:
    """An owner says VOID in the place of an output that was taken back WITH CLEANUP: both are its own."""
    if time_of_writer(envelope.writer) is not None:
        return False
    return Kind.VOID in (envelope.kind, decode(first).kind)


def alarm_of(forgery: Forgery, where: str) -> str:
    """What an operator is told."""
    return (
        f"FORGED: the records {forgery.taken} and {forgery.dropped} of {where} have the same writer "
        f"({forgery.writer.hex()}) and counter ({forgery.counter}) and other content: somebody writes in the name of "
        f"a sender. The first was accepted, the second was dropped, although its sender was told that Kafka has it. "
        "Compare both, find out who may write to the topic, and take that right away"
    )
