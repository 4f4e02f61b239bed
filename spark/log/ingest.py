"""Judges the records of one partition in log order: the envelope, verdict and sequence number of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, cast

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from konverse.schemas.wire.records import ACKED, Kind

from .acceptance import ACCEPTED, DUPLICATE, GAP, IS_SEQUENCED, Acceptance
from .batch_rows import AcceptedRows, BatchRows
from .contested import CONTESTED, ContestedPair, ContestedRecords
from .frame import TAG_BYTES, Frame, decode
from .headers import Headers, split

UNKNOWN: Final = -1
"""Stands for the counter of a batch row whose real counter is not known."""


class RecordVerdict(IntEnum):
    """Whether a record is accepted, and if not, why."""

    accepted = ACCEPTED
    duplicate = DUPLICATE
    gap = GAP
    malformed = 3
    foreign = 4
    """Without our header, or meant for another incarnation of the queue."""
    control = 5
    """Accepted, and of a kind that applications never see."""
    pending = 6
    """A row of a batch, void at its own offset. If its attempt wins, the row appears as a message at the DECISION."""
    contested = CONTESTED
    """Has the counter of an accepted record of its writer, and other content. Receivers get both."""


class IngestedRows(NamedTuple):
    """Consecutive records. Columns of `frame` are undefined where the verdict is malformed or foreign."""

    messages: list[Message]
    offsets: NDArray[np.int64]
    headers: Headers
    frame: Frame
    verdict: NDArray[np.uint8]
    sequence: NDArray[np.int64]
    """-1 where a record has none."""
    decoded: NDArray[np.bool_]
    """Rows with an envelope for this queue."""
    decided_at: int | None = None
    """Offset of the DECISION that accepted these rows; None: they are accepted at their own offsets."""
    decided_ms: int = -1
    """Kafka's time of that DECISION."""
    groups: Mapping[bytes, bytes] | None = None
    """Handle -> conversation group of each side in the partition; None unless the column was requested."""


class Ingest:
    """Judges one partition, continuing from the counters in `acceptance`.

    `cut`: the start of the log was deleted, so rows of batches may be missing.
    """

    def __init__(self, acceptance: Acceptance, *, tag: bytes | None, cut: bool = False) -> None:
        self._tag = None if tag is None else np.frombuffer(tag, np.uint8)
        self._acceptance = acceptance
        self._records = ContestedRecords()
        self.batches = BatchRows(acceptance.decided, acceptance.vetoed, cut=cut or acceptance.cut)
        self.contested: list[ContestedPair] = []
        """The contested records of the last call of `take`."""

    def recall(self, messages: list[Message]) -> None:
        """Read again records that were judged before, so that rows among them wait for their decision here."""
        headers = split(messages)
        frame = decode(headers.ours)
        rows = _pending(frame, self._concerned(headers, frame) == ACCEPTED)
        self.batches.recall(headers.ours, messages, rows)

    def take(self, messages: list[Message]) -> list[IngestedRows]:
        """Judge the records that follow those of the last call. The rows of a batch come after its DECISION."""
        offsets = _offsets(messages)
        headers = split(messages)
        frame = decode(headers.ours)
        verdict = self._concerned(headers, frame)
        decoded = verdict == ACCEPTED
        pending = decoded & (frame.kind == Kind.PENDING)
        verdict[pending] = RecordVerdict.pending
        rows = _where(verdict == ACCEPTED)
        vouching = frame.flags[rows] & ACKED != 0
        verdict[rows] = self._acceptance.judge(frame.tagged_writer[rows], frame.counter[rows], vouching)
        self.contested = self._records.judge(messages, offsets, headers.ours, frame, verdict)
        taken = verdict == ACCEPTED
        decisions = np.flatnonzero(taken & (frame.kind == Kind.DECISION)).tolist()
        verdict[taken & ~IS_SEQUENCED[frame.kind]] = RecordVerdict.control
        sequence = np.full(len(messages), -1, np.int64)
        whole = IngestedRows(messages, offsets, headers, frame, verdict, sequence, decoded)
        if not decisions:
            self._wait(messages, headers, frame, pending)
            return [self._numbered(whole)]
        return list(self._in_turn(whole, pending, decisions))

    def _in_turn(self, whole: IngestedRows, pending: NDArray[np.bool_], decisions: list[int]) -> Iterator[IngestedRows]:
        """The records up to each DECISION that accepts rows, then those rows."""
        given = waiting = 0
        for at in decisions:
            part = slice(waiting, at)
            self._wait(whole.messages[part], whole.headers.part(part), whole.frame.part(part), pending[part])
            waiting = at
            won = self.batches.decide(cast("bytes", whole.headers.ours[at]), whole.messages[at])
            if won is not None:
                yield self._numbered(_part(whole, slice(given, at + 1)))
                yield self._numbered(self._accepted(won, whole.messages[at], whole.frame.tagged_writer[at : at + 1]))
                given = at + 1
        part = slice(waiting, len(whole.messages))
        self._wait(whole.messages[part], whole.headers.part(part), whole.frame.part(part), pending[part])
        if given < len(whole.messages):
            yield self._numbered(_part(whole, slice(given, len(whole.messages))))

    def _wait(self, messages: list[Message], headers: Headers, frame: Frame, among: NDArray[np.bool_]) -> None:
        self.batches.put(headers.ours, messages, _pending(frame, among))

    def _accepted(self, won: AcceptedRows, decision: Message, told_by: NDArray[np.void]) -> IngestedRows:
        """The rows of the winners as if the query had sent them at the DECISION, under its next counters (M255)."""
        count = len(won.messages)
        writer = told_by.tobytes()[:TAG_BYTES] + won.query
        counter = self._counters(writer, won)
        headers = split(won.messages)
        frame = decode(headers.ours)._replace(
            kind=np.full(count, Kind.BEGIN if won.begins else Kind.MESSAGE, np.uint8),
            tagged_writer=np.frombuffer(writer * count, f"V{len(writer)}"),
            counter=counter,
        )
        verdict = np.full(count, RecordVerdict.control if won.begins else ACCEPTED, np.uint8)
        sequence = np.full(count, -1, np.int64)
        decoded = np.ones(count, np.bool_)
        decided = (cast("int", decision.offset()), decision.timestamp()[1])
        return IngestedRows(won.messages, _offsets(won.messages), headers, frame, verdict, sequence, decoded, *decided)

    def _counters(self, writer: bytes, won: AcceptedRows) -> NDArray[np.int64]:
        """The counters of accepted rows; UNKNOWN when earlier rows of the query may be deleted: no record names it."""
        known = self._acceptance
        if known.cut and writer not in known.next:
            return np.full(len(won.places), UNKNOWN, np.int64)
        first = known.next.get(writer, 0)
        known.next[writer] = first + won.total
        return np.array(won.places, np.int64) + first

    def _numbered(self, rows: IngestedRows) -> IngestedRows:
        """The rows, with sequence numbers for those that an application receives."""
        frame = rows.frame
        where = _where(rows.verdict == ACCEPTED)
        rows.sequence[where] = self._acceptance.number(
            frame.conversation[where], frame.role[where], frame.kind[where], frame.sequence[where]
        )
        return rows

    def _concerned(self, headers: Headers, frame: Frame) -> NDArray[np.uint8]:
        """ACCEPTED for every record whose counter has to be judged, else malformed or foreign."""
        verdict = np.where(frame.sound, np.uint8(ACCEPTED), np.uint8(RecordVerdict.malformed))
        if headers.raw is not None:
            verdict[[header is None for header in headers.ours]] = RecordVerdict.foreign
        if self._tag is not None:
            tags = frame.tagged_writer.view(np.uint8).reshape(len(verdict), -1)[:, : len(self._tag)]
            verdict[frame.sound & (tags != self._tag).any(axis=1)] = RecordVerdict.foreign
        return verdict


def _pending(frame: Frame, among: NDArray[np.bool_]) -> list[int]:
    """The rows of batches among some rows."""
    rows: list[int] = np.flatnonzero(among & (frame.kind == Kind.PENDING)).tolist()
    return rows


def _where(mask: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    """An index of the rows of a mask; for all rows a slice, which copies nothing."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _part(rows: IngestedRows, part: slice) -> IngestedRows:
    return IngestedRows(
        rows.messages[part],
        rows.offsets[part],
        rows.headers.part(part),
        rows.frame.part(part),
        rows.verdict[part],
        rows.sequence[part],
        rows.decoded[part],
    )


def _offsets(messages: list[Message]) -> NDArray[np.int64]:
    return np.fromiter(cast("Iterator[int]", map(Message.offset, messages)), np.int64, len(messages))
