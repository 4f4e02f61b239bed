"""The partitions of a run: logs, identity, and folds of the logs that belong to no process."""

from __future__ import annotations

from konverse.bridge.verifier.check import Place as Verified
from konverse.bridge.verifier.journal import JournalJudge
from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.owner.events import JournalRead, Truncate
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.identifiers import Address, LogIdentity, incarnation_tag
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, encode_claim
from konverse.schemas.wire.snapshot import Chunk, decode

from .choices import Choices
from .failure import Fail
from .kafka import Kafka, Log, Record, Slice
from .redis_view import RedisView


class Place:
    """One partition of one queue."""

    def __init__(self, kafka: Kafka, queue: int, partition: int, fail: Fail) -> None:
        self.fail = fail
        topic = f"q{queue}"
        incarnation = (queue + 1).to_bytes(4, "big") + b"incarnation!"
        self.identity = LogIdentity(topic, partition, incarnation, b"data topic id   ", b"journal topic id")
        self.address = Address(topic, partition, incarnation_tag(incarnation))
        self.data = kafka.logs[topic, partition] = Log((topic, partition))
        self.journal = kafka.logs[f"{topic}.journal", partition] = Log((f"{topic}.journal", partition), is_journal=True)
        self.snapshots = kafka.logs[f"{topic}.snapshot", partition] = Log((f"{topic}.snapshot", partition))
        self.judge = JournalJudge((incarnation, self.identity.data_topic_id, self.identity.journal_topic_id))
        self.view = RedisView()
        self.shadow = Fold(self.identity)
        """The product's fold, fed directly from the logs: the state that every owner should reach."""
        self.rotten = False
        """A snapshot was damaged."""
        self._fed = 0

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.address.topic}/{self.address.partition}"

    def verified(self) -> Verified:
        """The partition in the form that the verifier judges; all of its data are certain."""
        identity = self.identity
        ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
        return Verified(identity.data_topic, identity.partition, *ids, self.data.end, self.data.end)

    def truncate(self, effect: Truncate) -> None:
        """Delete the records that an owner no longer needs."""
        for log, offset in (
            (self.journal, effect.journal),
            (self.data, effect.data),
            (self.snapshots, effect.snapshots),
        ):
            log.start = max(log.start, offset)

    def rot(self, choices: Choices) -> bool:
        """Damage a byte of the newest whole snapshot, once for each partition, and only when an older one exists."""
        chunks: dict[bytes, list[Record]] = {}
        whole: list[list[Record]] = []
        for record in self.snapshots.records:
            decoded = decode(record.body or b"")
            if isinstance(decoded, Chunk):
                chunks.setdefault(decoded.snapshot, []).append(record)
            elif len({decode(r.body or b"") for r in chunks.get(decoded.snapshot, ())}) == decoded.chunks:
                whole.append(chunks[decoded.snapshot])
        if self.rotten or len(whole) < 2:
            return False
        self.rotten = True
        spoilt = decode(choices.pick(whole[-1]).body or b"")
        for record in whole[-1]:  # duplicates too
            if decode(record.body or b"") == spoilt:
                body = bytearray(record.body or b"")
                body[-1] ^= 1
                record.body = bytes(body)
        return True

    def follow(self, offset: int) -> bool:
        """Bring the shadow up to a journal offset. False when the shadow is already past this offset."""
        self._fed = fold_up_to(self, self.shadow, self._fed, offset)
        return self._fed > 0 and self.journal.records[self._fed - 1].offset <= offset


def fold_up_to(place: Place, fold: Fold, fed: int, offset: int) -> int:
    """Feed a fold, which has taken `fed` journal records, up to a journal offset; returns the new number of records."""
    records = place.journal.records
    while fed < len(records) and records[fed].offset <= offset:
        record = records[fed]
        fold.feed_journal([journaled(record)])
        while (needed := fold.advance()) is not None:
            assert needed > fold.data_to
            fold.feed_data(columns(Slice(place.data.between(fold.data_to, needed), needed), fold.data_to))
        fed += 1
    return fed


def columns(read: Slice, start: int) -> RecordColumns:
    """Data records in the form that the product reads."""
    records = read.records
    return RecordColumns(
        [record.offset for record in records],
        [record.header for record in records],
        [record.body for record in records],
        [record.timestamp_ms for record in records],
        read.next_offset,
        start,
    )


def journal_read(read: Slice) -> JournalRead:
    """Journal records in the form that the product reads."""
    return JournalRead([*map(journaled, read.records)], read.next_offset)


def journaled(record: Record) -> JournalRecord:
    """A journal record in the form that the product reads."""
    return JournalRecord(record.offset, record.body or b"", record.timestamp_ms, record.header)


def litter(kafka: Kafka, place: Place) -> str:
    """Append a foreign record to a journal. Returns the name of the path.

    The record is undecodable, or it would be the next CLAIM but has the header of data.
    """
    if place.journal.end % 2:
        kafka.append(place.journal, (None, b"", b"\x07 not a record"))
        return "undecodable"
    ids = place.identity.incarnation, place.identity.data_topic_id, place.identity.journal_topic_id
    claim = Claim(place.judge.epoch + 1, b"whoever wrote it", FOLD_VERSION, *ids, clean=True)
    kafka.append(place.journal, (b"\x00 an envelope", b"", encode_claim(claim)))
    return "data in a journal"
