"""Which attempts win a batch: decided once, in one partition of the transmission queue (protocol.md section 9b).

The first BATCH of a number wins. What it says goes to every partition of the query: the decision about BEGINs to the
homes first, that about messages behind it, so that no target lives before its home.
"""

from __future__ import annotations

from konverse.schemas.batches import ABANDONED, Batch, Counts, Winners, decode_batch, encode_winners, winners_at
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, time_of_writer
from konverse.schemas.limits import QUERY_ENTRIES_MAX, VETO_ENTRIES_MAX
from konverse.schemas.operations import Abandon
from konverse.schemas.records import NO_SEQUENCE, Decision, Envelope, Kind, Role, Suffix, Veto

from .batches import Judgement
from .endpoint import Record
from .outbox import Run
from .partition import Partition


def hear_batch(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BATCH of a driver: the first one of a query's batch decides it; nothing is answered to later ones."""
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


def hear_veto(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """VETO of a partition: the attempt shall not win, unless it has; then the decision is on its way already."""
    detail = envelope.suffix.detail
    if isinstance(detail, Veto) and is_over(state, detail.query):
        _tell_lost(state, detail)  # if it has won, that was said before
        return
    judgement = _of(state, detail.query) if isinstance(detail, Veto) else None
    if not isinstance(detail, Veto) or judgement is None or len(judgement.vetoed) >= VETO_ENTRIES_MAX:
        state.statistics.undeliverable += 1
        return
    if detail.batch > judgement.decided:
        judgement.vetoed[detail.attempt] = detail.batch
        _tell_lost(state, detail)


def abandon(state: Partition, operation: Abandon) -> None:
    """An operator gives a query up: a last batch that nobody wins."""
    judgement = _of(state, operation.query)
    if judgement is not None and judgement.decided < ABANDONED:
        judgement.decide(ABANDONED, b"")
        homes: Counts = dict.fromkeys(operation.homes, ())
        targets: Counts = dict.fromkeys(operation.targets, ())
        _tell_all(state, Batch(operation.query, ABANDONED, (), homes, targets))


def is_over(state: Partition, query: bytes) -> bool:
    """Whether a query is judged no more: the writer whose id it has is closed, or was forgotten since."""
    writer = state.writers.get(query)
    if writer is not None:
        return writer.closed_at is not None
    time_ms = time_of_writer(query)
    return time_ms is not None and time_ms < state.floor_ms


def _of(state: Partition, query: bytes) -> Judgement | None:
    """What was decided of a query; None when it is over, or not known and too many are."""
    if is_over(state, query):
        return None
    judgement = state.judgements.get(query)
    if judgement is None and len(state.judgements) < QUERY_ENTRIES_MAX:
        judgement = state.judgements[query] = Judgement()
    return judgement


def _tell_all(state: Partition, batch: Batch) -> None:
    """Every partition of the query learns of it, also where nobody has won: what lost waits there too."""
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
