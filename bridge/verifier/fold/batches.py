"""Batches of queries in the second fold: a DECISION picks from the list of rows that wait (protocol.md 9b)."""

from __future__ import annotations

from typing import Any, Final

from konverse.bridge.verifier.records import LogRecord, Record
from konverse.schemas.counting import counted
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BATCH_RECORDS_MAX, VETO_ENTRIES_MAX
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
from konverse.schemas.wire.envelope import decode_suffix
from konverse.schemas.wire.operations import Abandon, Exclude
from konverse.schemas.wire.records import Decision, Envelope, Kind, Pending, Veto, address_from_avro

from .state import AcceptedRow, Output, SecondState, WaitingRow
from .writers import is_over

WHOLE: Final = (Kind.BATCH, Kind.DECISION)
"""Kinds whose bodies the second fold decodes: they are not kept as digests."""


def on_row(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """PENDING: a row of an attempt waits."""
    detail, batches = envelope.suffix.detail, state.batches
    if not isinstance(detail, Pending):
        state.tally["malformed"] += 1
        return
    settled = batches.meet((detail.query, detail.begins, detail.judge_writer))
    row = WaitingRow(
        detail.query,
        detail.begins,
        detail.judge_writer,
        detail.batch,
        envelope.writer,
        envelope.counter,
        detail.judge,
        envelope,
        record,
    )
    if detail.batch <= settled or row.number not in range(BATCH_RECORDS_MAX):
        state.tally["row void"] += 1
    elif row[:6] in batches.there and _content(row) in map(_content, batches.named(row)):
        state.tally["duplicate"] += 1
        state.tally["row twice"] += 1
    else:
        for before in [*batches.named(row)][:1]:
            state.tally["forged"] += 1
            state.problem(
                f"I23: the rows {before.record.offset} and {record.offset} have number {row.number} of attempt "
                f"{row.attempt.hex()} and different content"
            )
        batches.wait(row)


def _content(row: WaitingRow) -> tuple[object, ...]:
    """Everything that the executions of a task could write differently."""
    envelope = row.envelope
    suffix = envelope.suffix._replace(detail=None)
    return envelope.flags, envelope.role, envelope.conversation, suffix, row.record.body or b""


def exclude(state: SecondState, operation: Exclude) -> None:
    """EXCLUDE: the owner has no room for the rows of an attempt, and vetoes it."""
    batches = state.batches
    named = (operation.query, operation.begins, operation.batch, operation.attempt)
    waiting = [row for row in batches.waiting if (*row[:2], *row[3:5]) == named and row[:5] not in batches.asked]
    rows = [row for row in waiting if row.by == waiting[0].by]
    if not rows or rows[0].judge is None:
        state.problem(f"I19: attempt {operation.attempt.hex()} is vetoed, and none of its rows waits any more")
        return
    batches.asked.add(rows[0][:5])
    veto = Veto(operation.query, operation.batch, operation.begins, operation.attempt, state.address)
    state.stage(rows[0].judge, _said(state, Kind.VETO, operation.query, veto, b""))


def on_decision(state: SecondState, envelope: Envelope, record: LogRecord) -> list[tuple[Envelope, LogRecord]]:
    """DECISION: return the rows that won, as the records that the query would have sent."""
    detail, batches = envelope.suffix.detail, state.batches
    try:
        winners = decode_winners(record.body or b"")
    except MalformedRecord:
        winners = None
    if not isinstance(detail, Decision) or winners is None:
        state.tally["malformed"] += 1
        return []
    track = (detail.query, detail.begins, envelope.writer)
    settled = batches.meet(track)
    of_track = [row for row in batches.waiting if row[:3] == track]
    if not detail.final:
        for loser, _ in winners:
            gone = [row for row in of_track if (row.batch, row.attempt) == (detail.batch, loser)]
            batches.release(gone)
            state.tally["row void"] += len(gone)
        return []
    if detail.batch <= settled:
        return []
    del batches.settled[track]  # it was met above; the latest decisions are forgotten last
    batches.settled[track] = detail.batch
    batches.told.append((detail.query, detail.begins, detail.batch))
    over = [row for row in of_track if row.batch <= detail.batch]
    batches.release(over)
    state.tally["row void"] += len(over)
    by_name: dict[tuple[bytes, int], list[WaitingRow]] = {}
    for row in over:
        if row.batch == detail.batch:
            by_name.setdefault((row.attempt, row.number), []).append(row)
    names = [(attempt, number) for attempt, count in winners for number in range(count)]
    there = [by_name[name] for name in names if name in by_name]
    rows = [row for same in there for row in same]
    if len(there) < len(names):
        missing, batch = len(names) - len(there), f"batch {detail.batch} of query {detail.query.hex()}"
        batches.missing += missing
        lacking = counted(missing, f"row of {batch} won and is", f"rows of {batch} won and are")
        state.problem(f"I19: {lacking} not here, says the decision at {record.offset}")
        return []
    state.tally["row void"] -= len(rows)
    batches.taken += [AcceptedRow(*same[0][:6], same[0].record.offset) for same in there]
    return [(_plain(row), row.record) for row in rows]


def _plain(row: WaitingRow) -> Envelope:
    """The record that the query would have sent for a row. It gets its counter when it is taken."""
    envelope = row.envelope
    kind = Kind.BEGIN if row.begins else Kind.MESSAGE
    suffix = envelope.suffix._replace(detail=None)
    return envelope._replace(kind=kind, writer=row.query, sequence=-1, suffix=suffix)


def on_batch(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """BATCH: decide which attempts won, if this is the first BATCH of its number and names no vetoed attempt."""
    batches = state.batches
    try:
        batch = decode_batch(record.body or b"")
    except MalformedRecord:
        state.tally["malformed"] += 1
        return
    if is_over(state, batch.query):
        state.tally["BATCH of a query that is over"] += 1
        return
    if not batches.knows(batch.query):
        return
    if batch.number <= batches.decided(batch.query):
        state.tally["BATCH too late"] += 1
    elif {*batch.attempts} & {*batches.excluded[batch.query]}:
        state.tally["BATCH refused"] += 1
    else:
        _decide(state, batch, envelope.writer)


def on_veto(state: SecondState, envelope: Envelope) -> None:
    """VETO: an attempt must not win, unless it has won already."""
    detail, batches = envelope.suffix.detail, state.batches
    if isinstance(detail, Veto) and is_over(state, detail.query):
        _tell_loser(state, detail)
        return
    if not isinstance(detail, Veto) or not batches.knows(detail.query):
        return
    excluded = batches.excluded[detail.query]
    if detail.batch <= batches.decided(detail.query):
        state.tally["veto too late"] += 1
        _tell_loser(state, detail)
    elif len(excluded) < VETO_ENTRIES_MAX:
        excluded[detail.attempt] = detail.batch
        _tell_loser(state, detail)


def give_up(state: SecondState, operation: Abandon) -> None:
    """ABANDON: an operator ends a query."""
    batches = state.batches
    if batches.knows(operation.query) and batches.decided(operation.query) < ABANDONED:
        homes: Counts = dict.fromkeys(operation.homes, ())
        targets: Counts = dict.fromkeys(operation.targets, ())
        _decide(state, Batch(operation.query, ABANDONED, (), homes, targets), b"")


def _decide(state: SecondState, batch: Batch, by: bytes) -> None:
    state.batches.judged[batch.query].append((batch, by))
    excluded = state.batches.excluded[batch.query]
    state.batches.excluded[batch.query] = {a: number for a, number in excluded.items() if number > batch.number}
    for begins, counts in ((True, batch.homes), (False, batch.targets)):
        for address, numbers in counts.items():
            for home in () if begins else batch.homes:
                state.hold(address, behind=home)
            decision = Decision(batch.query, batch.number, begins, final=True)
            _tell(state, address, decision, winners_at(batch, numbers))


def _tell_loser(state: SecondState, veto: Veto) -> None:
    decision = Decision(veto.query, veto.batch, veto.begins, final=False)
    _tell(state, veto.at, decision, ((veto.attempt, 0),))


def _tell(state: SecondState, address: Address, decision: Decision, winners: Winners) -> None:
    state.stage(address, _said(state, Kind.DECISION, decision.query, decision, encode_winners(winners)))


def _said(state: SecondState, kind: Kind, query: bytes, detail: Decision | Veto, body: bytes) -> Output:
    return Output(state.order, kind, int(Role.INITIATOR), query, -1, "", body, detail)


def restore_batches(state: SecondState, base: dict[str, Any]) -> None:
    """Restore the batches in a snapshot, without their rows."""
    batches = state.batches
    for item in base["tracks"]:
        batches.settled[item["query"], item["begins"], item["judge_writer"]] = item["decided"]
    for attempt in base["attempts"]:
        if attempt["judge"] is None:
            batches.asked.add(_attempt_of(base, attempt))
    for item in base["judgements"]:
        last = Batch(item["query"], item["decided"], (), {}, {})
        batches.judged[item["query"]] = [(last, item["by"])] if item["decided"] >= 0 else []
        batches.excluded[item["query"]] = {attempt["id"]: attempt["batch"] for attempt in item["vetoed"]}


def _attempt_of(base: dict[str, Any], attempt: dict[str, Any]) -> tuple[bytes, bool, bytes, int, bytes]:
    track = base["tracks"][attempt["track"]]
    return track["query"], track["begins"], track["judge_writer"], attempt["batch"], attempt["id"]


def restore_row(state: SecondState, base: dict[str, Any], item: dict[str, Any]) -> None:
    """Restore a row that waited when the snapshot was made."""
    body, attempt = item["body"] or b"", base["attempts"][item["attempt"]]
    record = Record(item["offset"], None, state.brief(body), item["timestamp_ms"])
    suffix = decode_suffix(item["suffix"])
    envelope = Envelope(
        Kind.PENDING, item["flags"], Role(item["role"]), state.address.tag, attempt["id"], item["conversation"],
        item["number"], -1, suffix,
    )  # fmt: skip
    judge = None if attempt["judge"] is None else address_from_avro(attempt["judge"])
    state.batches.wait(WaitingRow(*_attempt_of(base, attempt), item["number"], judge, envelope, record))
