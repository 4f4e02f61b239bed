"""All possible journals, as a tree. The product's own rule judges each once.

A `Journal` is one prefix: the records before it are its ancestors, so its verdict depends on them alone. Its head is
the product's `JournalHead`. The facts for the invariants are counted beside the head, without using it.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from konverse.dialog.fold.journal import JournalHead, JournalRecord
from konverse.dialog.owner.events import JournalRead
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.wire.journal import Claim, Commit, Part, decode


class Broken(Exception):
    """An invariant of protocol.md section 10 does not hold. The text begins with its number."""


class Record:
    """A record to append. Equal bytes are the same object."""

    __slots__ = ("data", "decision", "number", "outputs")

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        """A short name; requests on their way are sorted by it."""
        self.data = data
        decision = decode(data)
        assert not isinstance(decision, Part), "the commits of this model fit into one record"
        self.decision: Final[Claim | Commit] = decision
        self.outputs: tuple[bytes, ...] = ()
        if isinstance(self.decision, Commit):
            self.outputs = tuple(body for _, _, bodies in self.decision.operations.sends for body in bodies)

    def __str__(self) -> str:
        decision = self.decision
        who = decision.owner.decode().strip()
        if isinstance(decision, Claim):
            return f"CLAIM({decision.epoch}) of {who}"
        return f"COMMIT({decision.epoch}, number {decision.number}) of {who}"


class Records:
    """Every record ever made."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self._known: dict[bytes, Record] = {}

    def of(self, data: bytes) -> Record:
        """The record with these bytes."""
        record = self._known.get(data)
        if record is None:
            record = self._known[data] = Record(len(self.all), data)
            self.all.append(record)
        return record


class Journal:
    """A journal: its last record, and the journal before it. The empty one has no record."""

    __slots__ = ("_next", "claim", "commits", "counts", "head", "length", "outputs", "parent", "record")

    def __init__(self, head: JournalHead) -> None:
        self.parent: Journal | None = None
        self.record: Record | None = None
        self.length = 0
        self.head = head
        self.counts = False
        """Whether the last record counts."""
        self.claim: Claim | None = None
        """The last CLAIM that counts."""
        self.commits: tuple[Record, ...] = ()
        """The COMMITs that count."""
        self.outputs: tuple[bytes, ...] = ()
        """Outputs of these COMMITs. The index is the counter."""
        self._next: dict[Record, Journal] = {}

    def append(self, record: Record) -> Journal:
        """The journal with one more record. Raises Broken when that record counts against an invariant."""
        journal = self._next.get(record)
        if journal is None:
            journal = self._next[record] = self._judged(record)
        return journal

    def _judged(self, record: Record) -> Journal:
        journal = Journal(copy(self.head))
        journal.parent, journal.record, journal.length = self, record, self.length + 1
        journal.claim, journal.commits, journal.outputs = self.claim, self.commits, self.outputs
        head, decision = journal.head, record.decision
        try:
            journal.counts = head.accepts(decision)
        except PartitionHalted as error:
            raise Broken(f"I17: the journal contradicts itself although nobody lied: {error}") from error
        if not journal.counts:
            head.skip(self.length)
        else:
            head.take(decision, record.data, self.length, self.length)
            journal.count(record)
        return journal

    def count(self, record: Record) -> None:
        """Count the last record. Raises Broken when it must not count (I1, I2)."""
        claim, decision = self.claim, record.decision
        if isinstance(decision, Claim):
            if claim is not None and decision.epoch <= claim.epoch:
                raise Broken(f"I1: {record} counts after CLAIM({claim.epoch})")
            self.claim = decision
            return
        if claim is None or (decision.epoch, decision.owner) != (claim.epoch, claim.owner):
            raise Broken(f"I1: {record} counts, and the partition is not its writer's")
        if decision.number != len(self.commits) + 1:
            raise Broken(f"I2: {record} counts after {len(self.commits)} commits")
        self.commits += (record,)
        self.outputs += record.outputs

    def tail(self, start: int) -> tuple[Record, ...]:
        """The records from offset `start` on."""
        records: list[Record] = []
        journal = self
        while journal.length > start:
            assert journal.parent is not None
            assert journal.record is not None
            records.append(journal.record)
            journal = journal.parent
        return tuple(reversed(records))

    def head_at(self, offset: int) -> JournalHead:
        """The head behind the record at that offset."""
        journal: Journal | None = self
        while journal is not None and journal.length > offset + 1:
            journal = journal.parent
        assert journal is not None
        return journal.head

    def read(self, start: int, end: int) -> JournalRead:
        """The result of a read. The log-append time is the offset."""
        records = self.tail(start)[: end - start]
        return JournalRead([JournalRecord(start + at, r.data, start + at) for at, r in enumerate(records)], end)
