"""Rows of batches where they are to be accepted (protocol.md section 9b).

A row is void until its batch is decided. Then the rows of the attempts that won are accepted, those of one attempt
after the other, as if the query had sent them at that moment; all others of the batch and before it are dropped, also
when they come later. So it does not matter how often a task was executed, or what its executions wrote.
"""

from __future__ import annotations

from functools import lru_cache

from konverse.schemas.batches import decode_winners
from konverse.schemas.envelope import decode, encode, encode_suffix, head
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import (
    BATCH_RECORDS_MAX,
    PENDING_BYTES_MAX,
    PENDING_RECORDS_MAX,
    SUFFIX_CACHE_ENTRIES_MAX,
)
from konverse.schemas.operations import Exclude, Rare
from konverse.schemas.records import LAST, NO_SEQUENCE, Decision, Envelope, Kind, Pending, Role, Suffix, Veto

from .answers import refuse_closed
from .batches import Row
from .endings import call_end
from .endpoint import Record, Stamp, Writer, timestamp_ms
from .messages import hear_begin, hear_message
from .outbox import Run
from .partition import Partition
from .relocation import forwarded
from .writers import closing_of


def hear_pending(state: Partition, offset: int, envelope: Envelope, record: Record) -> None:
    """PENDING: a row of an attempt, each number once. Its writer is the attempt, which has no entry here."""
    detail, number = envelope.suffix.detail, envelope.counter
    if not isinstance(detail, Pending):
        state.statistics.malformed += 1
        return
    pending = state.pending
    track = (detail.query, detail.begins)
    attempt = (track, detail.batch, envelope.writer)
    if detail.batch <= pending.last_decided(track) or not 0 <= number < BATCH_RECORDS_MAX:
        state.statistics.void += 1
        return
    if number in pending.attempts.get(attempt, ()):
        state.statistics.duplicates += 1
        return
    suffix = _suffix_of(envelope.suffix)
    row = Row(offset, envelope.flags, envelope.role, envelope.conversation, suffix, *record)
    pending.meet(attempt, detail.judge)
    pending.put(attempt, number, row)


@lru_cache(SUFFIX_CACHE_ENTRIES_MAX)
def _suffix_of(suffix: Suffix) -> bytes:
    """The end of the header with which a row is accepted."""
    return encode_suffix(suffix._replace(detail=None))


def overflowing(state: Partition) -> list[Rare]:
    """What an owner has to exclude so that what waits fits again: the attempts that came first, most of them dead."""
    pending = state.pending
    rows, size_bytes = pending.rows, pending.size_bytes
    excluded: list[Rare] = []
    for attempt in pending.live:
        if rows <= PENDING_RECORDS_MAX and size_bytes <= PENDING_BYTES_MAX:
            break
        count, size = pending.weight(attempt)
        rows, size_bytes = rows - count, size_bytes - size
        (query, begins), batch, identifier = attempt
        excluded.append(Exclude(query, batch, begins, identifier))
    return excluded


def exclude(state: Partition, operation: Exclude) -> None:
    """Ask the judge of a query that an attempt shall not win. Until the answer its rows stay: it may have won."""
    attempt = ((operation.query, operation.begins), operation.batch, operation.attempt)
    if attempt not in state.pending.live:
        return
    stream = state.stream_to(state.pending.veto(attempt))
    veto = Veto(*operation, state.address)
    prefix = stream.head(Kind.VETO, Role.INITIATOR) + operation.query
    stream.push(Run(prefix, operation.query, NO_SEQUENCE, encode_suffix(Suffix(detail=veto)), [None]))


def hear_decision(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """DECISION: the winners' rows are accepted, in the order of tasks and numbers, each once; the rest is dropped."""
    detail = envelope.suffix.detail
    try:
        winners = decode_winners(record[0] or b"")
    except MalformedRecord:
        winners = None
    if not isinstance(detail, Decision) or winners is None:
        state.statistics.malformed += 1
        return
    pending = state.pending
    track = (detail.query, detail.begins)
    decided = pending.last_decided(track)
    if not detail.final:
        for loser, _ in winners:
            state.statistics.void += len(pending.drop((track, detail.batch, loser)))
        return
    if detail.batch <= decided:
        return
    pending.decided[track] = detail.batch
    over = [attempt for attempt in pending.attempts if attempt[0] == track and attempt[1] <= detail.batch]
    waiting = {attempt: pending.drop(attempt) for attempt in over}
    rows = [
        waiting.get((track, detail.batch, attempt), {}).get(number)
        for attempt, count in winners
        for number in range(count)
    ]
    accepted = [row for row in rows if row is not None]
    if len(accepted) < len(rows):  # a row was acknowledged and is not here: Kafka, or a task, has lied
        state.statistics.missing += len(rows) - len(accepted)
        accepted = []
    state.statistics.void += sum(map(len, waiting.values())) - len(accepted)
    decided_ms = timestamp_ms(record[1])
    for row in accepted:
        _accept(state, detail, row, decided_ms)


def _accept(state: Partition, detail: Decision, row: Row, decided_ms: int) -> None:
    """As if the query had sent it now, under its next counter."""
    stamp: Stamp = decided_ms if isinstance(row.stamp, int) else (decided_ms, row.stamp[1])
    writer = state.writers.get(detail.query)
    if writer is None:
        writer = state.writers[detail.query] = Writer(detail.query)
    kind = Kind.BEGIN if detail.begins else Kind.MESSAGE
    prefix = head(kind, row.flags & ~LAST, row.role, state.address.tag, writer.id) + row.conversation
    header = encode(prefix, writer.next, NO_SEQUENCE, row.suffix)
    envelope, record = decode(header), (row.body, stamp)
    writer.advance()
    if writer.closed_at is not None:
        refuse_closed(state, envelope, record, closing_of(state, writer))
        return
    if state.moves.stubs and forwarded(state, row.offset, header, envelope, record):
        pass  # its conversation has moved
    elif detail.begins:
        hear_begin(state, row.offset, header, envelope, record)
    else:
        hear_message(state, row.offset, header, envelope, record)
    if row.flags & LAST and not detail.begins:
        call_end(state, envelope)
