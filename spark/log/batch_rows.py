"""Rows of Spark's writes in a log: they wait until a DECISION accepts or drops them (protocol.md section 9b).

The rules are those of `konverse.dialog.rules.batches`, which an owner follows. A row waits once, however often and in
whatever order it comes. A DECISION accepts the rows of the winning attempts in the order of tasks and row numbers, and
drops all other rows of this batch and of earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from confluent_kafka import Message

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import BATCH_RECORDS_MAX, QUERY_ENTRIES_MAX
from konverse.schemas.wire.batches import Winners, decode_winners
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import Decision, Envelope, Pending

from .headers import split

UNDECIDED = -1
"""The batch number of a track without a decision."""

Track = bytes
"""16 bytes of a query, one byte that tells its BEGINs (1) from its messages (0), and 16 of the writer that decides."""

Attempt = tuple[Track, int, bytes]
"""One execution of a task: track, batch, and the id of the execution."""


def track_of(detail: Pending | Decision, judge_writer: bytes) -> Track:
    """The track of a row or a decision."""
    return detail.query + bytes((detail.begins,)) + judge_writer


class AcceptedRows(NamedTuple):
    """The rows of one decision, in the order in which they are accepted."""

    query: bytes
    begins: bool
    messages: list[Message]
    places: list[int]
    """Place of each message among all rows of the decision, of which some may be deleted."""
    total: int
    """Number of all rows of the decision."""


class _SameNumber(list[Message]):
    """The rows that wait under one number of an attempt: one, unless a foreign producer wrote others."""

    __slots__ = ("_contents",)

    def __init__(self) -> None:
        super().__init__()
        self._contents: set[tuple[object, ...]] | None = None
        """Content of each row; None until the number comes again, which is rare."""

    def put(self, row: Message) -> None:
        """Add a row, unless one with its content is there."""
        if self:
            if self._contents is None:
                self._contents = {_content(self[0])}
            content = _content(row)
            if content in self._contents:
                return
            self._contents.add(content)
        self.append(row)


class BatchRows:
    """The rows that wait in one partition."""

    def __init__(self, decided: dict[Track, int], vetoed: dict[bytes, int], *, cut: bool) -> None:
        self._decided = decided
        """Highest batch that was decided, UNDECIDED for none: rows at or below it are void. See `_last_decided`."""
        self._vetoed = vetoed
        """Attempt, in the form of `_name` -> offset of the DECISION that dropped its rows: rows before it are void."""
        self._cut = cut
        """The start of the log was deleted, maybe with rows of a batch: the rows that are left are then accepted."""
        self._waiting: dict[Attempt, dict[int, _SameNumber]] = {}
        """Attempt -> row number -> rows."""
        self.lost_at: int | None = None
        """Offset of the last DECISION that found some of its rows deleted; None when there was none."""

    def put(self, headers: Sequence[bytes | None], messages: Sequence[Message], rows: Sequence[int]) -> None:
        """Let PENDING records wait. Rows of decided batches and vetoed attempts are dropped."""
        for row in rows:
            envelope = decode(cast("bytes", headers[row]))
            if isinstance(envelope.suffix.detail, Pending):
                self._wait(envelope, envelope.suffix.detail, messages[row])

    def recall(self, headers: Sequence[bytes | None], messages: Sequence[Message], rows: Sequence[int]) -> None:
        """Let PENDING records that were read before wait again. A track forgotten since then has no waiting rows."""
        for row in rows:
            envelope = decode(cast("bytes", headers[row]))
            detail = envelope.suffix.detail
            if isinstance(detail, Pending) and track_of(detail, detail.judge_writer) in self._decided:
                self._wait(envelope, detail, messages[row])

    def _wait(self, envelope: Envelope, detail: Pending, row: Message) -> None:
        attempt = (track_of(detail, detail.judge_writer), detail.batch, envelope.writer)
        if detail.batch <= self._last_decided(attempt[0]) or not 0 <= envelope.counter < BATCH_RECORDS_MAX:
            return
        if self._is_after_veto(attempt, row):
            numbers = self._waiting.setdefault(attempt, {})
            same = numbers.get(envelope.counter)
            if same is None:
                same = numbers[envelope.counter] = _SameNumber()
            same.put(row)

    def decide(self, header: bytes, decision: Message) -> AcceptedRows | None:
        """Apply an accepted DECISION. Returns the rows that it accepts, if any."""
        envelope = decode(header)
        found = _decision(envelope, decision.value())
        if found is None:
            return None
        detail, winners = found
        track = track_of(detail, envelope.writer)
        decided = self._last_decided(track)
        if not detail.final:
            for loser, _ in winners:
                if self._waiting.pop((track, detail.batch, loser), None):
                    self._vetoed[_name((track, detail.batch, loser))] = cast("int", decision.offset())
            self._forget_vetoes()
            return None
        if detail.batch <= decided:
            return None
        del self._decided[track]  # as at the owner, the query that was decided last is forgotten last
        self._decided[track] = detail.batch
        over = [attempt for attempt in self._waiting if attempt[0] == track and attempt[1] <= detail.batch]
        waited = {attempt: self._waiting.pop(attempt) for attempt in over}
        self._forget_vetoes()
        none: list[Message | None] = [None]
        rows = [
            row
            for attempt, count in winners
            for number in range(count)
            for row in waited.get((track, detail.batch, attempt), {}).get(number) or none
        ]
        there = [(place, row) for place, row in enumerate(rows) if row is not None]
        if len(there) < len(rows):
            if not self._cut:  # an owner accepts nothing of an incomplete batch
                return None
            self.lost_at = decision.offset()
        if not there:
            return None
        places, messages = map(list, zip(*there, strict=True))
        return AcceptedRows(detail.query, detail.begins, messages, places, len(rows))

    def oldest(self) -> int | None:
        """Lowest offset of a row that waits; None when no row waits."""
        return min(
            (cast("int", one.offset()) for rows in self._waiting.values() for same in rows.values() for one in same),
            default=None,
        )

    def _is_after_veto(self, attempt: Attempt, row: Message) -> bool:
        """False for a row that a veto dropped before the state was stored, and that is read again now."""
        return not self._vetoed or cast("int", row.offset()) > self._vetoed.get(_name(attempt), -1)

    def _forget_vetoes(self) -> None:
        """Forget vetoes before the oldest waiting row: no record before that row is read again."""
        if self._vetoed:
            oldest = self.oldest()
            for name in [name for name, at in self._vetoed.items() if oldest is None or at < oldest]:
                del self._vetoed[name]

    def _last_decided(self, track: Track) -> int:
        """Highest decided batch of a track.

        When there are too many tracks, the oldest one without waiting rows is forgotten. Late rows of a forgotten track
        wait until the owner vetoes them, and an owner that still knows the track sends no veto. So this must be the
        track that the owner forgets, too.
        """
        if track not in self._decided:
            if len(self._decided) >= QUERY_ENTRIES_MAX:
                busy = {waiting for waiting, _, _ in self._waiting}
                idle = next((known for known in self._decided if known not in busy), None)
                if idle is not None:
                    del self._decided[idle]
            self._decided[track] = UNDECIDED
        return self._decided[track]


def _content(row: Message) -> tuple[object, ...]:
    """Everything that the executions of a task could write differently."""
    (header,) = split([row]).ours
    envelope = decode(header or b"")
    suffix = envelope.suffix._replace(detail=None)
    return envelope.flags, envelope.role, envelope.conversation, suffix, row.value() or b""


def _name(attempt: Attempt) -> bytes:
    """An attempt in 57 bytes."""
    track, batch, writer = attempt
    return track + batch.to_bytes(8, "big", signed=True) + writer


def _decision(envelope: Envelope, body: bytes | None) -> tuple[Decision, Winners] | None:
    """The decision in a record; None for a record of that kind that cannot be read."""
    detail = envelope.suffix.detail
    if not isinstance(detail, Decision):
        return None
    try:
        return detail, decode_winners(body or b"")
    except MalformedRecord:
        return None
