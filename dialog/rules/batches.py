"""Batches of rows that Spark writes: rows, and the decisions about which of them are accepted (protocol.md section 9b).

A row is void until its batch is decided. Then the rows of the winning attempts are accepted, attempt by attempt, as if
the query had sent them at that moment. All other rows of that batch and of earlier ones are dropped, even if they
arrive later. So it does not matter how often a task ran, or what its attempts wrote.

One partition of the transmission queue decides, once: the first BATCH with a batch number wins. The decision goes to
every partition of the query. Homes get the decision about BEGINs first, and targets get the one about messages after
that, so that no target exists before the initiator's side.
"""

from __future__ import annotations

from functools import lru_cache

from konverse.dialog.state.batches import Judgement, PendingRow
from konverse.dialog.state.endpoint import Record, Stamp, timestamp_ms
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import Forgery
from konverse.dialog.state.writer import Writer
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import (
    BATCH_RECORDS_MAX,
    PENDING_BYTES_MAX,
    PENDING_RECORDS_MAX,
    QUERY_ENTRIES_MAX,
    SUFFIX_CACHE_ENTRIES_MAX,
    VETO_ENTRIES_MAX,
)
from konverse.schemas.wire.batches import (
    ABANDONED,
    Batch,
    Counts,
    Winners,
    decode_batch,
    decode_winners,
    encode_winners,
    winners_at,
)
from konverse.schemas.wire.envelope import decode, encode, encode_suffix, head
from konverse.schemas.wire.operations import Abandon, Exclude, Rare
from konverse.schemas.wire.records import LAST, NO_SEQUENCE, Decision, Envelope, Kind, Pending, Suffix, Veto

from .endings import call_end
from .heirs import closing_of
from .messages import on_begin, on_message
from .relocation import forwarded
from .replies import refuse_closed
from .writers import is_over


def on_pending(state: Partition, offset: int, envelope: Envelope, record: Record) -> None:
    """PENDING: keeps a row of an attempt. Its writer is the attempt, which has no writer entry.

    Each number comes once. Of two rows with one number and different content, one is a stranger's: both wait (M274).
    """
    detail, number = envelope.suffix.detail, envelope.counter
    if not isinstance(detail, Pending):
        state.statistics.malformed += 1
        return
    pending = state.pending
    track = (detail.query, detail.begins, detail.judge_writer)
    attempt = (track, detail.batch, envelope.writer)
    if detail.batch <= pending.last_decided(track) or not 0 <= number < BATCH_RECORDS_MAX:
        state.statistics.void += 1
        return
    suffix = _suffix_of(envelope.suffix)
    row = PendingRow(offset, envelope.flags, envelope.role, envelope.conversation, suffix, *record)
    before = pending.attempts.get(attempt, {}).get(number)
    if pending.has(attempt, number, row):
        state.statistics.duplicates += 1
        return
    if before is not None:
        state.statistics.forged += 1
        state.recent.report(Forgery(envelope.writer, number, before.offset, offset))
    pending.meet(attempt, detail.judge)
    pending.put(attempt, number, row)


@lru_cache(SUFFIX_CACHE_ENTRIES_MAX)
def _suffix_of(suffix: Suffix) -> bytes:
    """Header suffix with which a row is accepted."""
    return encode_suffix(suffix._replace(detail=None))


def overflowing(state: Partition) -> list[Rare]:
    """Attempts that an owner has to exclude to get within its bounds: the oldest ones, most of which are dead."""
    pending = state.pending
    rows, size_bytes = pending.rows, pending.size_bytes
    excluded: list[Rare] = []
    for attempt in pending.live:
        if rows <= PENDING_RECORDS_MAX and size_bytes <= PENDING_BYTES_MAX:
            break
        count, size = pending.weight(attempt)
        rows, size_bytes = rows - count, size_bytes - size
        (query, begins, _), batch, identifier = attempt
        excluded.append(Exclude(query, batch, begins, identifier))
    return excluded


def exclude(state: Partition, operation: Exclude) -> None:
    """EXCLUDE: asks the query's judge to let an attempt lose. Its rows stay until the answer: it may have won."""
    named = (operation.query, operation.begins, operation.batch, operation.attempt)
    attempt = next((one for one in state.pending.live if (*one[0][:2], *one[1:]) == named), None)
    if attempt is None:
        return
    stream = state.stream_to(state.pending.veto(attempt))
    veto = Veto(*operation, state.address)
    prefix = stream.head(Kind.VETO, Role.INITIATOR) + operation.query
    stream.push(Run(prefix, operation.query, NO_SEQUENCE, encode_suffix(Suffix(detail=veto)), [None]))


def on_decision(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """DECISION: accepts the winners' rows in the order of attempts and numbers, and drops all others.

    It concerns the rows that name its writer as their judge (M293): a stranger can write decisions, too.
    """
    detail = envelope.suffix.detail
    try:
        winners = decode_winners(record[0] or b"")
    except MalformedRecord:
        winners = None
    if not isinstance(detail, Decision) or winners is None:
        state.statistics.malformed += 1
        return
    pending = state.pending
    track = (detail.query, detail.begins, envelope.writer)
    decided = pending.last_decided(track)
    if not detail.final:
        for loser, _ in winners:
            state.statistics.void += sum(len(one.all) for one in pending.drop((track, detail.batch, loser)).values())
        return
    if detail.batch <= decided:
        return
    pending.decide(track, detail.batch)
    over = [attempt for attempt in pending.attempts if attempt[0] == track and attempt[1] <= detail.batch]
    waiting = {attempt: pending.drop(attempt) for attempt in over}
    rows = [
        waiting.get((track, detail.batch, attempt), {}).get(number)
        for attempt, count in winners
        for number in range(count)
    ]
    accepted = [row for row in rows if row is not None]
    if len(accepted) < len(rows):  # an acknowledged row is missing: Kafka, or a task, broke its promise
        state.statistics.missing += len(rows) - len(accepted)
        accepted = []
    won = [row for one in accepted for row in one.all]
    state.statistics.void += sum(len(one.all) for rows in waiting.values() for one in rows.values()) - len(won)
    decided_ms = timestamp_ms(record[1])
    for row in won:
        _accept(state, detail, row, decided_ms)


def _accept(state: Partition, detail: Decision, row: PendingRow, decided_ms: int) -> None:
    """Accept a row as if the query had sent it at the time of the decision, under its next counter."""
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
        on_begin(state, row.offset, header, envelope, record)
    else:
        on_message(state, row.offset, header, envelope, record)
    if row.flags & LAST and not detail.begins:
        call_end(state, envelope)


def on_batch(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BATCH of a driver: the first one with its number decides the batch; later ones get no answer."""
    try:
        batch = decode_batch(record[0] or b"")
    except MalformedRecord:
        state.statistics.malformed += 1
        return
    judgement = _of(state, batch.query)
    if judgement is None:
        state.statistics.undeliverable += 1
        return
    if batch.number <= judgement.decided or any(attempt in judgement.vetoed for attempt in batch.attempts):
        return
    judgement.decide(batch.number, envelope.writer)
    _tell_all(state, batch)


def on_veto(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """VETO: records that an attempt must lose, unless it has won, and answers that it has lost.

    If it has won, the DECISION left before this answer, and the attempt's rows are accepted. The answer then removes
    rows only where the partition has forgotten that decision.
    """
    detail = envelope.suffix.detail
    if isinstance(detail, Veto) and is_over(state, detail.query):
        _tell_lost(state, detail)
        return
    judgement = _of(state, detail.query) if isinstance(detail, Veto) else None
    late = judgement is not None and isinstance(detail, Veto) and detail.batch <= judgement.decided
    if not isinstance(detail, Veto) or judgement is None or not (late or len(judgement.vetoed) < VETO_ENTRIES_MAX):
        state.statistics.undeliverable += 1
        return
    if not late:
        judgement.vetoed[detail.attempt] = detail.batch
    _tell_lost(state, detail)


def abandon(state: Partition, operation: Abandon) -> None:
    """ABANDON: an operator gives up a query; decides a last batch without winners."""
    judgement = _of(state, operation.query)
    if judgement is not None and judgement.decided < ABANDONED:
        judgement.decide(ABANDONED, b"")
        homes: Counts = dict.fromkeys(operation.homes, ())
        targets: Counts = dict.fromkeys(operation.targets, ())
        _tell_all(state, Batch(operation.query, ABANDONED, (), homes, targets))


def _of(state: Partition, query: bytes) -> Judgement | None:
    """Judgement of a query; None when the query is over, or is new and too many are known."""
    if is_over(state, query):
        return None
    judgement = state.judgements.get(query)
    if judgement is None and len(state.judgements) < QUERY_ENTRIES_MAX:
        judgement = state.judgements[query] = Judgement()
    return judgement


def _tell_all(state: Partition, batch: Batch) -> None:
    """Send the decision to every partition of the query, also where no attempt won: losing rows wait there too."""
    for address, counts in batch.homes.items():
        decision = Decision(batch.query, batch.number, begins=True, final=True)
        _tell(state, address, decision, winners_at(batch, counts))
    for address, counts in batch.targets.items():
        for home in batch.homes:
            state.hold(state.stream_to(address), behind=state.stream_to(home))
        decision = Decision(batch.query, batch.number, begins=False, final=True)
        _tell(state, address, decision, winners_at(batch, counts))


def _tell_lost(state: Partition, veto: Veto) -> None:
    decision = Decision(veto.query, veto.batch, veto.begins, final=False)
    _tell(state, veto.at, decision, ((veto.attempt, 0),))


def _tell(state: Partition, address: Address, decision: Decision, winners: Winners) -> None:
    stream = state.stream_to(address)
    prefix = stream.head(Kind.DECISION, Role.INITIATOR) + decision.query
    suffix = encode_suffix(Suffix(detail=decision))
    stream.push(Run(prefix, decision.query, NO_SEQUENCE, suffix, [encode_winners(winners)]))
