"""Detects forged records: a second record with other content under a counter that was already used (protocol.md 9f).

A foreign producer wrote under the id of one of our writers. The partition cannot tell which of the two records the
writer wrote, and the second one may have been acknowledged to an honest sender. So it accepts both: the second record
is contested and counts as a message of its own. The owner decides that once; its COMMIT names the offset, and every
fold follows the COMMIT. To find contested records, a partition keeps the records that it ingested last. Of the records
that it no longer keeps, it has a digest of the last one of each writer. None of this is state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.limits import (
    ALARMS_MAX,
    RECENT_BODY_BYTES_MAX,
    RECENT_KEPT_ENTRIES_MAX,
    RECENT_RECORDS_MAX,
    RECENT_WRITERS_MAX,
)
from konverse.schemas.wire.envelope import PREFIX_BYTES, encode, encode_suffix
from konverse.schemas.wire.records import NO_SEQUENCE, Envelope, Kind, Notice, Suffix
from konverse.schemas.wire.varint import read_varint

from .endpoint import Stamp

if TYPE_CHECKING:
    from .endpoint import Record

Key = tuple[bytes, int]
"""Incarnation tag with writer id, and counter."""
WRITER: Final = slice(3, 23)
"""Slice of a header that holds incarnation tag and writer."""
FORGED: Final = "FORGED"
"""Start of each alarm about a forged record."""
_APART: Final = 10
"""Number of kinds of alarms about forged records."""
TAG_BYTES: Final = 4
"""Length of the incarnation tag, which precedes the writer."""
DIGEST_BYTES: Final = 12
PENDING: Final = Kind.PENDING << 1
"""First header byte of a PENDING."""
VOID: Final = Kind.VOID << 1
"""First header byte of a VOID."""
_NOTHING_SAID: Final = encode_suffix(Suffix())
Contents = dict[bytes, int]
"""Digest -> offset of each record accepted under one counter: several when it was contested."""


class Forgery(NamedTuple):
    """Two records with different content under one counter of one writer."""

    writer: bytes
    counter: int
    taken: int
    """Offset of the record that was accepted first."""
    contested: int
    """Offset of the record that came later."""


class AckedLoss(NamedTuple):
    """Acknowledged records of a writer that the log lacks."""

    writer: bytes
    first: int
    """Counter of the first one."""
    end: int
    """Counter after the last one."""
    offset: int
    """Offset of the record that revealed the loss."""


class _KeptRecord(NamedTuple):
    """A record that is kept in full."""

    offset: int
    header: bytes
    body: bytes


class DigestedRecord(NamedTuple):
    """An accepted record of which only the digest is kept."""

    writer: bytes
    """Incarnation tag and writer id, 20 bytes."""
    counter: int
    offset: int
    digest: bytes


class _Place:
    """The kept records with one counter of one writer."""

    __slots__ = ("compared", "contents", "rows")

    def __init__(self) -> None:
        self.rows: deque[_KeptRecord] = deque()
        """In the order of the log. Records that are not ingested yet may be among them."""
        self.compared = 0
        """Number of these records, from the first one on, whose contents are known below."""
        self.contents: Contents = {}

    def known_before(self, offset: int, passed: Collection[int]) -> Contents:
        """Contents of the records before an offset that were accepted. Each record is read once."""
        while self.compared < len(self.rows) and self.rows[self.compared].offset < offset:
            row = self.rows[self.compared]
            if row.offset not in passed:
                self.contents.setdefault(_digest(row), row.offset)
            self.compared += 1
        return self.contents

    def forget_first(self) -> None:
        """Forget the first record. Its content stays known while later ones are kept."""
        self.rows.popleft()
        self.compared = max(self.compared - 1, 0)


class _KeptRead:
    """The kept records of one read of the data log."""

    def __init__(self, columns: RecordColumns, body_bytes: int) -> None:
        self.columns = columns
        self.body_bytes = body_bytes
        self.keys: list[Key] = []
        """Keys of its records in the index."""


class Recent:
    """The records that were ingested last, to compare duplicates with; indexed when the first duplicate comes."""

    def __init__(self) -> None:
        self.decides = False
        """True while this process leads the partition: it finds contested records itself. Else a COMMIT names them."""
        self.contested: dict[int, None] = {}
        """Offsets of contested records. The commit that is being folded names them, or the next one will."""
        self.found: deque[Forgery] = deque(maxlen=ALARMS_MAX)
        """Forgeries that were found here and that the driver has not reported yet."""
        self.losses: deque[AckedLoss] = deque(maxlen=ALARMS_MAX)
        """Acknowledged records that were found missing here and that the driver has not reported yet."""
        self.told: deque[Notice] = deque(maxlen=ALARMS_MAX)
        """FORGED notices of other partitions about sessions whose home is here."""
        self.contested_last: int | None = None
        """Offset of the latest contested record known here; None when there is none."""
        self.unknown = 0
        """Number of duplicates whose first record is no longer known."""
        self.unknown_at: int | None = None
        """Offset of the first such duplicate."""
        self._kept: deque[_KeptRead] = deque()
        self._records = self._body_bytes = 0
        self._places: dict[Key, _Place] = {}
        self._unindexed: deque[_KeptRead] = deque()
        self._passed: set[int] = set()
        """Offsets of kept records that were not accepted."""
        self._last: dict[bytes, tuple[int, Contents]] = {}
        """Incarnation tag with writer -> counter and contents of its last record that is no longer kept."""
        self._older: dict[Key, Contents] = {}
        """Contents of contested counters, and of records from the snapshot from which the state was restored."""

    def keep(self, columns: RecordColumns, body_bytes: int) -> None:
        """Keep the records that are ingested next. Drops the oldest reads beyond the bounds, but never this one."""
        kept = _KeptRead(columns, body_bytes)
        self._kept.append(kept)
        self._unindexed.append(kept)
        self._records += len(columns.offsets)
        self._body_bytes += body_bytes
        while len(self._kept) > 1 and (self._records > RECENT_RECORDS_MAX or self._body_bytes > RECENT_BODY_BYTES_MAX):
            self._forget(self._kept.popleft())

    def note(self, notice: Notice) -> None:
        """Record a FORGED notice about a session whose home is here."""
        if self.decides:
            self.told.append(notice)

    def report(self, forgery: Forgery) -> None:
        """Record that two records share writer and counter but not content."""
        if self.decides:
            self.found.append(forgery)

    def lose(self, loss: AckedLoss) -> None:
        """Record that acknowledged records are missing."""
        if self.decides:
            self.losses.append(loss)

    def pass_over(self, offset: int) -> None:
        """Note that a record was not accepted: no duplicate is compared with it."""
        self._passed.add(offset)

    def is_contested(self, envelope: Envelope, offset: int, header: bytes, record: Record) -> bool:
        """Whether a record that repeats a counter has other content than the record that was accepted under it."""
        if self.decides and self._differs(envelope, _KeptRecord(offset, header, record[0] or b"")):
            self.contested[offset] = None
        if offset in self.contested:
            self.contested_last = offset
        return offset in self.contested

    def _differs(self, envelope: Envelope, came: _KeptRecord) -> bool:
        while self._unindexed:
            self._index(self._unindexed.popleft())
        key = came.header[WRITER], envelope.counter
        known = self._known_under(key, came.offset)
        if not known:
            self.unknown += 1
            self.unknown_at = came.offset if self.unknown_at is None else self.unknown_at
            self.pass_over(came.offset)
        digest = _digest(came)
        if not known or any(digest in some for some in known) or _taken_back(envelope, came, known):
            return False
        first = min(next(iter(some.values())) for some in known)
        self.found.append(Forgery(envelope.writer, envelope.counter, first, came.offset))
        older = self._older.get(key) or {content: at for some in known for content, at in some.items()}
        self._keep_older(key, older)
        older[digest] = came.offset
        return True

    def _known_under(self, key: Key, offset: int) -> list[Contents]:
        """The contents that are known under a counter, of records before an offset. None is empty."""
        place, (counter, last) = self._places.get(key), self._last.get(key[0], (-1, {}))
        kept = {} if place is None else place.known_before(offset, self._passed)
        return [some for some in (self._older.get(key), last if counter == key[1] else None, kept) if some]

    def _keep_older(self, key: Key, contents: Contents) -> None:
        self._older.pop(key, None)
        self._older[key] = contents
        if len(self._older) > RECENT_KEPT_ENTRIES_MAX:
            del self._older[next(iter(self._older))]

    def known(self) -> Iterator[DigestedRecord]:
        """Digests for a snapshot: all older ones, and those of the latest kept records."""
        older = [(key, {**contents}) for key, contents in self._older.items()]  # they grow while this is written
        last = list(self._last.items())
        kept, passed = list(self._kept), {*self._passed}

        def them() -> Iterator[DigestedRecord]:
            for (writer, counter), contents in older:
                yield from (DigestedRecord(writer, counter, offset, digest) for digest, offset in contents.items())
            for writer, (counter, contents) in last:
                yield from (DigestedRecord(writer, counter, offset, digest) for digest, offset in contents.items())
            rows = [row for one in kept for row in _rows(one.columns) if row.offset not in passed]
            for row in rows[-RECENT_KEPT_ENTRIES_MAX:]:
                yield from _known(row)

        return them()

    def recall(self, known: DigestedRecord) -> None:
        """Restore one digest from a snapshot."""
        key = known.writer, known.counter
        contents = {**self._older.get(key, {}), known.digest: known.offset}
        self._keep_older(key, contents)
        self._remember(known)
        if len(contents) > 1 and time_of_writer(known.writer[TAG_BYTES:]) is not None:  # an owner may void its outputs
            self.contested_last = max(self.contested_last or 0, *contents.values())

    def _index(self, kept: _KeptRead) -> None:
        for row in _rows(kept.columns):
            counter = _counter_of(row.header)
            if counter is not None:
                key = row.header[WRITER], counter
                self._places.setdefault(key, _Place()).rows.append(row)
                kept.keys.append(key)

    def _forget(self, kept: _KeptRead) -> None:
        columns = kept.columns
        self._records -= len(columns.offsets)
        self._body_bytes -= kept.body_bytes
        for key in kept.keys:
            place = self._places[key]
            place.forget_first()
            if not place.rows:
                del self._places[key]
        if self._unindexed and self._unindexed[0] is kept:
            self._unindexed.popleft()
        rows = _rows(columns) if self._passed else zip(*columns[:3], strict=True)
        latest = {row[1][WRITER]: row for row in rows if row[1] and row[0] not in self._passed}
        for offset, header, body in latest.values():
            for known in _known(_KeptRecord(offset, header or b"", body or b"")):
                self._remember(known)
        self._passed = {offset for offset in self._passed if offset >= columns.next_offset}

    def _remember(self, known: DigestedRecord) -> None:
        """Keep the digest of the last record of a writer."""
        counter, contents = self._last.pop(known.writer, (-1, {}))
        if known.counter >= counter:
            contents = {**(contents if known.counter == counter else {}), known.digest: known.offset}
        self._last[known.writer] = (max(known.counter, counter), contents)
        if len(self._last) > RECENT_WRITERS_MAX:
            del self._last[next(iter(self._last))]


def _rows(columns: RecordColumns) -> Iterator[_KeptRecord]:
    """The records that have a counter of their writer; rows of batches have none."""
    for offset, header, body in zip(*columns[:3], strict=True):
        if header and header[0] != PENDING:
            yield _KeptRecord(offset, header, body or b"")


def _known(row: _KeptRecord) -> Iterator[DigestedRecord]:
    counter = _counter_of(row.header)
    if counter is not None and row.header[0] != PENDING:
        yield DigestedRecord(row.header[WRITER], counter, row.offset, _digest(row))


def _counter_of(header: bytes) -> int | None:
    try:
        return read_varint(header, PREFIX_BYTES)[0]
    except (IndexError, ValueError):
        return None


def _digest(row: _KeptRecord) -> bytes:
    return blake2b(len(row.header).to_bytes(4) + row.header + row.body, digest_size=DIGEST_BYTES).digest()


def _taken_back(envelope: Envelope, came: _KeptRecord, known: Iterable[Contents]) -> bool:
    """Whether both records are an owner's own: an output, and VOID in its place after CLEANUP or WITHDRAW.

    If the VOID came first, only its digest may be known, from a snapshot. So its record is built again.
    """
    if time_of_writer(envelope.writer) is not None:
        return False
    void = encode(bytes((VOID, 0)) + came.header[2:PREFIX_BYTES], envelope.counter, NO_SEQUENCE, _NOTHING_SAID)
    digest = _digest(_KeptRecord(came.offset, void, b""))
    return envelope.kind is Kind.VOID or any(digest in some for some in known)


class Alarm(NamedTuple):
    """A text for the operator of a partition."""

    text: str
    kind: str = ""
    """Drivers throttle alarms of one kind, since a foreign producer can cause many. They log each alarm of kind ""."""


def alarm_of(forgery: Forgery, where: str) -> Alarm:
    """The alarm about a forged record. It has one of ten kinds, so a few alarms are all logged, but a flood is not."""
    return Alarm(
        f"{FORGED}: the records {forgery.taken} and {forgery.contested} of {where} have the same writer "
        f"({forgery.writer.hex()}) and counter ({forgery.counter}) but different content: a foreign producer writes "
        "under the id of a sender. Both were accepted, because one of them is the sender's own. Compare both, find out "
        "which principals may write to the topic, and revoke the right of the foreign one",
        f"{FORGED} {forgery.taken % _APART}",
    )


def alarm_of_loss(loss: AckedLoss, where: str) -> Alarm:
    """The alarm about acknowledged records that the log lacks."""
    return Alarm(
        f"LOST BY KAFKA: {where} lacks the records {loss.first} to {loss.end - 1} of writer {loss.writer.hex()}, which "
        f"Kafka had acknowledged before record {loss.offset} was written. Conversations that may have missed one of "
        "them got an Error on both sides. Find out why: a replica that lacked records became the leader "
        "(unclean.leader.election.enable), or records were deleted or compacted away",
        f"LOST BY KAFKA {loss.offset % _APART}",
    )


def alarm_of_session(notice: Notice) -> Alarm:
    """Alarm of a session's home about a forged record elsewhere; the session reports it too, if it asks the home."""
    at = notice.at
    return Alarm(
        f"{FORGED}: another producer writes to {at.topic}/{at.partition} under the id of session {notice.writer.hex()}"
        f". Counter {notice.next} was the first one. The records of both are received. Find out which principals may "
        "write to the topic, and revoke the right of the foreign one",
        f"{FORGED} elsewhere {at.partition % _APART}",
    )


def alarm_of_unknown(offset: int, where: str) -> Alarm:
    """The alarm, raised once, about duplicates that cannot be compared."""
    return Alarm(
        f"NOT COMPARED: record {offset} of {where} has a counter that its writer used long ago, and the record "
        "accepted then is no longer in memory. The later record was dropped as a duplicate without comparison, and "
        "others may be, too. `konverse verify` compares all records in the topic"
    )


class RecordColumns(NamedTuple):
    """Consecutive records of a data log, column by column.

    `headers` holds our header of each record, or None.
    """

    offsets: Sequence[int]
    headers: Sequence[bytes | None]
    bodies: Sequence[bytes | None]
    stamps: Sequence[Stamp]
    next_offset: int
    """Next offset to read: after the last record, and after transaction markers."""
    start: int
    """No record between this offset and `next_offset` is missing."""

    def before(self, offset: int) -> tuple[RecordColumns, RecordColumns]:
        """Split into the records before `offset`, and the rest."""
        cut = 0
        while cut < len(self.offsets) and self.offsets[cut] < offset:
            cut += 1
        before = self._part(slice(0, cut), min(offset, self.next_offset), self.start)
        return before, self._part(slice(cut, None), self.next_offset, max(offset, self.start))

    def _part(self, rows: slice, next_offset: int, start: int) -> RecordColumns:
        return RecordColumns(
            self.offsets[rows], self.headers[rows], self.bodies[rows], self.stamps[rows], next_offset, start
        )
