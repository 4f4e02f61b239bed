"""One execution of a task that writes rows of a batch. It numbers the rows and reports them when all are acknowledged.

A machine without I/O. Rows go straight to the partitions that will accept them, as PENDING records: void until their
batch is decided. A task may be executed any number of times, also concurrently, and with different rows each time. Each
execution has an id of its own that was never used before.

Messages are sent on returning dialogs (protocol.md M237), because a query is not notified when a target ends and keeps
sending.
"""

from __future__ import annotations

from typing import NamedTuple

from konverse.dialog.session.lanes import Handed
from konverse.schemas.errors import TransactionTooLarge
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from konverse.schemas.wire.envelope import encode, encode_suffix, flagged, head
from konverse.schemas.wire.records import FIRST, LAST, NO_SEQUENCE, RETURNING, Begin, Kind, Pending, Suffix

Counts = dict[tuple[Address, bool], tuple[int, int]]
"""(partition, True for BEGINs or False for messages) -> number of rows, and bytes of their bodies."""


class TaskOf(NamedTuple):
    """The query, batch and task to which an execution belongs."""

    query: bytes
    """Id of the query, 16 bytes; it stays the same for as long as the query has its checkpoint."""
    judge: Address
    """Partition of the transmission queue that decides all batches of the query."""
    judge_writer: bytes
    """Writer id of the owners of that partition, 16 bytes."""
    run: bytes
    """Writer id of the driver that started the execution."""
    batch: int
    number: int
    """Number of the task in its batch, from 0."""


class Report(NamedTuple):
    """The rows that an execution wrote; all were acknowledged."""

    task: TaskOf
    attempt: bytes
    counts: Counts


class ProduceRow(NamedTuple):
    """Effect: hand this record to the producer."""

    address: Address
    record: Handed


class Task:
    """One execution of a task."""

    def __init__(self, task: TaskOf, attempt: bytes) -> None:
        self.task = task
        self.attempt = attempt
        """16 random bytes: no other execution ever has them, under any driver."""
        self.counts: Counts = {}
        self.unacknowledged = 0
        self._suffixes: dict[tuple[str, Address], bytes] = {}

    def begin(self, conversation: bytes, begin: Begin) -> ProduceRow:
        """BEGIN DIALOG, at the dialog's home."""
        suffix = encode_suffix(Suffix(begin=begin, detail=self._detail(begins=True)))
        number = self._take((begin.home, True), 1, 0)
        header = encode(self._head(begin.home) + conversation, number, NO_SEQUENCE, suffix)
        return ProduceRow(begin.home, (header, begin.key or conversation, None))

    def opening(self, conversation: bytes, begin: Begin, message_type: str) -> tuple[bytes, bytes]:
        """Header prefix and suffix of the first message of a dialog; its row number goes between them."""
        suffix = encode_suffix(Suffix(message_type, begin=begin, detail=self._detail(begins=False)))
        return self._head(begin.target, FIRST | RETURNING) + conversation, suffix

    def prefix(self, to: Address, conversation: bytes) -> bytes:
        """Header prefix of every later message of a dialog; its number (see `numbers`) and `suffix` follow."""
        return self._head(to, RETURNING) + conversation

    def suffix(self, message_type: str, home: Address) -> bytes:
        """Header suffix of every later message of that type, in dialogs with that home."""
        suffix = self._suffixes.get((message_type, home))
        if suffix is None:
            suffix = encode_suffix(Suffix(message_type, home=home, detail=self._detail(begins=False)))
            self._suffixes[message_type, home] = suffix
        return suffix

    def numbers(self, to: Address, count: int, size_bytes: int) -> int:
        """Reserve `count` row numbers for messages with bodies of `size_bytes` in all. Returns the first number."""
        return self._take((to, False), count, size_bytes)

    def acknowledged(self, count: int = 1) -> None:
        """Note that `count` more rows are acknowledged, in any order."""
        self.unacknowledged -= count

    def report(self) -> Report | None:
        """The report for the driver; None before all rows are acknowledged."""
        if self.unacknowledged:
            return None
        return Report(self.task, self.attempt, dict(self.counts))

    def _detail(self, *, begins: bool) -> Pending:
        task = self.task
        return Pending(task.query, task.batch, begins, task.judge, task.judge_writer)

    def _head(self, to: Address, flags: int = 0) -> bytes:
        return head(Kind.PENDING, flags, Role.INITIATOR, to.tag, self.attempt)

    def _take(self, place: tuple[Address, bool], count: int, size_bytes: int) -> int:
        number, size_before = self.counts.get(place, (0, 0))
        if number + count > BATCH_RECORDS_MAX or size_before + size_bytes > BATCH_BYTES_MAX:
            raise TransactionTooLarge(too_large(place[0]))
        self.counts[place] = (number + count, size_before + size_bytes)
        self.unacknowledged += count
        return number


def ending(prefix: bytes) -> bytes:
    """The header prefix of a message that also ends its side of the dialog, after all rows of the batch."""
    return flagged(prefix, LAST)


def too_large(address: Address) -> str:
    """Text of the error for a batch with too many rows or bytes."""
    return (
        f"a batch has more than {BATCH_RECORDS_MAX} rows or {BATCH_BYTES_MAX} bytes for partition {address.partition} "
        f"of {address.topic}; write smaller batches, or to more conversations. Nothing of this batch is received"
    )
