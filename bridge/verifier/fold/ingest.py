"""Ingest in the second fold: what each data record does, and the answers to records that are not accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konverse.bridge.verifier.records import Key, LogRecord, Record, origin_of
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import WRITER_HOLE_RECORDS_MAX
from konverse.schemas.system_messages import ERROR, NO_PEER_BODY, Rejected, rejected_body
from konverse.schemas.wire.envelope import decode, encode_envelope
from konverse.schemas.wire.records import (
    ACKED,
    FIRST,
    HEIR,
    LAST,
    NAMED,
    REFUSED,
    RETURNING,
    BounceReason,
    End,
    Envelope,
    Kind,
    NoticeReason,
)

from .answers import answer_end, ask_for_end, bounce, refuse_begin, refuse_over, stray
from .batches import on_batch, on_decision, on_row, on_veto
from .ended import NEVER_BEGUN
from .endings import told_of_cleanup, told_of_loss
from .half_close import expand, on_finished
from .loss import goes_on_behind_acknowledged, misses, pass_over_acknowledged, resumes, too_late
from .mailbox import decide, put
from .moves import arrive, closed, follow, install
from .state import AcceptedRecord, SecondState, Side
from .timers import live_until, on_timer
from .writers import (
    came_early,
    close,
    goes_on,
    is_known,
    is_one_session,
    is_opened_at_home,
    keep,
    may_come,
    notify,
    opened_by,
    tell_closed,
    untrusted,
)


def ingest(state: SecondState, record: LogRecord) -> None:
    """Take the next record of the data log."""
    if record.header is None:
        state.tally["foreign"] += 1
        return
    try:
        envelope = decode(record.header)
    except MalformedRecord:
        state.tally["malformed"] += 1
        return
    if envelope.tag != state.address.tag:
        state.tally["foreign"] += 1
        state.contents.copied += 1
        return
    if envelope.kind is Kind.PENDING:
        on_row(state, envelope, record)
        return
    known = is_known(state, envelope.writer)
    reason = None if known else untrusted(state, envelope.writer)
    if not known and reason is None and envelope.counter and came_early(state, envelope.writer):
        reason = NoticeReason.CLOCK
    if reason is not None:
        state.tally["stranger"] += 1
        notify(state, envelope, 0, reason)
        return
    taken = state.accepted[envelope.writer] if known else []
    if envelope.counter < len(taken):
        if state.losses.answers(envelope.writer, envelope.counter):
            state.verdicts[envelope.writer, envelope.counter] = too_late(state, envelope, record)
        elif state.contents.compare(envelope, record):
            _take_contested(state, envelope, record)
        else:
            state.tally["duplicate"] += 1
        return
    if envelope.counter > len(taken):
        behind = goes_on_behind_acknowledged(state, envelope, record)
        if not behind and not resumes(state, envelope.writer, envelope.counter):
            state.tally["gap"] += 1
            notify(state, envelope, len(taken), NoticeReason.GAP)
            return
        taken = state.accepted[envelope.writer]
    state.accepted[envelope.writer] = taken
    taken.append(envelope.counter)
    state.contents.take(envelope, record)
    envelope, record = _without_ack(envelope, record)
    if envelope.kind is Kind.BEGIN and envelope.flags & NAMED:
        state.named.begins[opened_by(envelope), envelope.conversation] += 1
    verdict = _judge(state, envelope, record)
    state.verdicts[envelope.writer, envelope.counter] = verdict


def _without_ack(envelope: Envelope, record: LogRecord) -> tuple[Envelope, LogRecord]:
    """A record without the flag ACKED, which concerns its counter alone."""
    if not envelope.flags & ACKED:
        return envelope, record
    envelope = envelope._replace(flags=envelope.flags & ~ACKED)
    header = encode_envelope(envelope)
    return envelope, Record(*(record.offset, header, record.body, record.timestamp_ms, record.order, record.body_bytes))


def _take_contested(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """Take a contested record. Another record has its counter, so its offset identifies it instead (M277)."""
    state.tally["forged"] += 1
    notify(state, envelope, envelope.counter, NoticeReason.FORGED)
    here = envelope.counter < state.closed.get(envelope.writer, envelope.counter + 1)
    envelope = envelope._replace(counter=-1 - record.offset, flags=envelope.flags & ~ACKED)
    whole = Record(
        *(record.offset, encode_envelope(envelope), record.body, record.timestamp_ms, record.order, record.body_bytes)
    )
    verdict = _apply(state, envelope, whole) if here else _answer_closed(state, envelope, whole)
    state.verdicts[envelope.writer, envelope.counter] = verdict


def _judge(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.writer in state.closed:
        return _answer_closed(state, envelope, record)
    return _apply(state, envelope, record)


def _apply(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    return (follow(state, envelope, record) if state.moves.stubs else None) or _take(state, envelope, record)


def _take(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    heard = _HEARD.get(envelope.kind)
    if heard is None:
        return "unknown kind"
    return heard(state, envelope, record) or "control"


def _begin(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    begin = envelope.suffix.begin
    key = (int(Role.INITIATOR), envelope.conversation)
    if key in state.named.over:
        state.tally["begun when over"] += 1
        state.named.refused.add(envelope.conversation)
        refuse_over(state, envelope)
    elif begin is not None and key not in state.living:
        if envelope.flags & NAMED:
            state.named.living[key] = False
        known = state.losses.any or envelope.flags & NAMED  # its first BEGIN may be gone, or have been refused
        if envelope.conversation in state.strays and not known:
            state.problem(f"I20: {envelope.conversation.hex()} begins when its target was heard already")
        opener = opened_by(envelope)
        state.may_live(key, opener, envelope.writer)
        live_until(state, state.create(key, opener, begin.target, -1, begin.group), begin, record.timestamp_ms)
    elif key in state.living and key in state.named.living and opened_by(envelope) != state.living[key].opener:
        state.named.living[key] = True


def _end_call(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    side = state.living.get((int(envelope.role), envelope.conversation))
    if side is not None and not side.ended:
        if not side.peer_failed:  # after an Error the peer is not notified of this END
            side.ended_by_session = envelope.suffix.origin or envelope.writer
        state.end(side, failed=bool(record.body))


def _decision(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    state.deciding = record.offset
    for row, there in on_decision(state, envelope, record):
        _hear_row(state, row, there, record.timestamp_ms)
    state.deciding = -1


def _hear_row(state: SecondState, row: Envelope, record: LogRecord, decided_ms: int) -> None:
    """Take a row that won as the next record of its query, with the time of the DECISION."""
    taken = state.accepted.setdefault(row.writer, [])
    envelope = row._replace(counter=len(taken), flags=row.flags & ~LAST)
    taken.append(envelope.counter)
    whole = Record(record.offset, encode_envelope(envelope), record.body, decided_ms, record.order)
    state.verdicts[envelope.writer, envelope.counter] = _judge(state, envelope, whole)
    if row.flags & LAST and row.kind is Kind.MESSAGE and row.writer not in state.closed:
        ask_for_end(state, row)


def _open(state: SecondState, envelope: Envelope, record: LogRecord) -> str | None:
    """Begin a target by FIRST and return None, or return the verdict about a message that begins none."""
    key, begin = (int(Role.TARGET), envelope.conversation), envelope.suffix.begin
    if not envelope.flags & FIRST or begin is None:
        _late(state, envelope, ended=key in state.over)
        verdict = bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        if not told_of_cleanup(state, envelope.conversation):
            told_of_loss(state, envelope)
        return verdict
    opener = opened_by(envelope)
    at_home = is_opened_at_home(envelope)
    if not at_home and not may_come(state, opener):
        return bounce(state, envelope, record, BounceReason.WRITER_CLOSED, "opener")
    if state.tombstones.get(envelope.conversation) in {opener, envelope.conversation if at_home else opener}:
        del state.tombstones[envelope.conversation]
        verdict = bounce(state, envelope, record, BounceReason.ENDED, "tombstone")
        told_of_cleanup(state, envelope.conversation)
        return verdict
    if key in state.named.over:
        state.tally["FIRST when over"] += 1
        verdict = bounce(state, envelope, record, BounceReason.ENDED, "over")
        told_of_cleanup(state, envelope.conversation)
        return verdict
    state.may_live(key, opener, envelope.writer)
    state.cleanups.cleaned.pop(envelope.conversation, None)
    state.heard_of_home(envelope.conversation)
    live_until(state, state.create(key, opener, begin.home, 0), begin, record.timestamp_ms)
    if envelope.flags & NAMED:
        state.named.living[key] = False
    if key in state.over:
        state.again.append((envelope.conversation, opener, begin.home))
    if at_home and may_come(state, opener):
        state.refuse_first(envelope.conversation, opener)
        state.tally["opened at home"] += 1
    return None


def _opened_again(state: SecondState, envelope: Envelope, key: Key) -> None:
    """Note that another session has begun a living target, or that the FIRST of its own session has come."""
    opener = opened_by(envelope)
    if opener != state.living[key].opener:
        if key in state.named.living:
            state.named.living[key] = True
    elif is_opened_at_home(envelope):
        state.heard_of_home(envelope.conversation)
    elif state.tombstones.get(envelope.conversation) == opener:
        del state.tombstones[envelope.conversation]
        state.tally["opened at home first"] += 1


def _message(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    role = Role(1 - envelope.role)
    key = (int(role), envelope.conversation)
    if key not in state.living:
        refused = stray(state, envelope) if role is Role.INITIATOR else _open(state, envelope, record)
        if refused:
            return refused
    elif envelope.flags & FIRST:
        _opened_again(state, envelope, key)
    side = state.living[key]
    if side.ended:
        if envelope.flags & FIRST and key in state.named.over:
            return bounce(state, envelope, record, BounceReason.ENDED, "over")
        if not envelope.flags & RETURNING:
            return "discarded"
        return bounce(state, envelope, record, BounceReason.PEER_ENDED)
    if side.peer_ended or side.peer_failed:
        _late(state, envelope, ended=role is Role.TARGET)
        return bounce(state, envelope, record, BounceReason.ENDED)
    if side.peer_finished:
        if side.finisher == (envelope.suffix.origin or envelope.writer):
            state.problem(
                f"I20: {envelope.conversation.hex()} goes on at {record.offset}, behind a FIN of the same writer"
            )
        return bounce(state, envelope, record, BounceReason.FINISHED, side=side)
    if misses(state, side, envelope, record):
        return bounce(state, envelope, record, BounceReason.ENDED)
    if _goes_on_from_elsewhere(side, envelope):
        state.tally["reply after missed ones"] += 1
        return stray(state, envelope)
    if record.offset in state.rejected:
        return _reject(state, side, envelope, record)
    side.talked = True
    side.begun_again |= bool(envelope.flags & FIRST and side.heard)
    misnumbered = envelope.sequence not in (-1, len(side.heard))
    state.tally["misnumbered"] += misnumbered
    side.speakers.add(envelope.suffix.origin or envelope.writer)
    at_home = origin_of(record) is None  # it is unknown here which writers were closed elsewhere
    gap = envelope.sequence - len(side.heard)
    if side.taken_back is None and envelope.sequence >= 0:
        side.taken_back = max(gap, 0)
    behind_gap = 0 < gap <= (side.taken_back or 0)
    # each opener numbers from 0: a target may be cleaned up in silence and be opened again by another session
    two_lives = side.begun_again or state.named.living.get(side.key, False)
    if misnumbered and at_home and not (behind_gap or two_lives) and is_one_session(state, side.speakers):
        state.problem(f"I5: number {envelope.sequence} was accepted as {len(side.heard)} at {record.offset}")
    side.voices[envelope.writer] = max(envelope.counter, side.voices.get(envelope.writer, -1))
    side.heard.append(
        AcceptedRecord(
            record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer, envelope.counter,
            Kind.MESSAGE, record.timestamp_ms, origin_of(record), state.deciding,
        )
    )  # fmt: skip
    return "accepted"


def _reject(state: SecondState, side: Side, envelope: Envelope, record: LogRecord) -> str:
    """Reject a message as its COMMIT says: the conversation fails."""
    state.tally["rejected"] += 1
    if side.key[0] == Role.TARGET and not side.heard:
        state.tally["rejected at once"] += 1
        state.end(side, failed=True)
    else:
        which = Rejected(envelope.suffix.message_type, envelope.conversation, Role(side.key[0]), len(side.heard))
        state.fail(side, record.offset, rejected_body(state.rejected[record.offset], which))
    return "rejected"


def _late(state: SecondState, envelope: Envelope, *, ended: bool) -> None:
    late = (envelope.suffix.origin or envelope.writer, envelope.counter, envelope.conversation)
    state.too_late.append(late)
    if ended:
        state.behind_end.append(late)


def _close(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """CLOSE_WRITER: an heir reports how many records of its predecessor Kafka had acknowledged."""
    writer, told = envelope.conversation, envelope.sequence
    trusted = is_known(state, writer) or (untrusted(state, writer) is None and not came_early(state, writer))
    lacks = 0 < told - len(state.accepted.get(writer, ())) <= WRITER_HOLE_RECORDS_MAX
    if envelope.flags & HEIR and envelope.writer != writer and writer not in state.closed and trusted and lacks:
        pass_over_acknowledged(state, writer, told, record.offset)
    close(state, envelope)


def _void(state: SecondState, envelope: Envelope, _record: LogRecord) -> str:
    side = state.living.get((1 - int(envelope.role), envelope.conversation))
    if side is not None and side.taken_back is not None:
        side.taken_back += 1
    return "void"


def _peer_end(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    role = Role(1 - envelope.role)
    side = state.living.get((int(role), envelope.conversation))
    detail = envelope.suffix.detail
    if not isinstance(detail, End):
        state.tally["malformed"] += 1
        return
    if side is None:
        if role is Role.TARGET:
            state.cleanups.cleaned.pop(envelope.conversation, None)
            state.heard_of_home(envelope.conversation)
            if not envelope.flags & REFUSED:  # if the BEGIN was refused, another session may begin the conversation
                state.over_before_it_began((int(role), envelope.conversation), detail.opener)
            if envelope.flags & NAMED:
                state.named.forbid((int(role), envelope.conversation), NEVER_BEGUN, state.now_ms)
            if envelope.kind is Kind.ERROR and envelope.flags & REFUSED:
                return
            if may_come(state, detail.opener):
                state.refuse_first(envelope.conversation, detail.opener)
            answer_end(state, envelope, detail)
        elif envelope.sequence >= 0:
            stray(state, envelope)
        return
    if envelope.flags & REFUSED and side.opener != detail.opener:
        return
    if envelope.kind is Kind.ERROR and envelope.sequence < 0 and detail.opener == envelope.writer:
        if side.code == "SO" and side.numbering >= 0:  # its peer knows nothing of it
            return
        state.await_home(side)
    elif role is Role.TARGET:
        state.heard_of_home(envelope.conversation)
    open_still = not (side.ended or side.peer_ended or side.peer_failed)
    if envelope.kind is Kind.END and open_still and _goes_on_from_elsewhere(side, envelope):
        state.tally["END after missed replies"] += 1
        _peer_is_over(state, side, envelope, record, state.brief(NO_PEER_BODY))
        return
    error = record.body or b"" if envelope.kind is Kind.ERROR else None
    _peer_is_over(state, side, envelope, record, error)


def _goes_on_from_elsewhere(side: Side, envelope: Envelope) -> bool:
    """Whether a target's second or later record meets an initiator that has not received the first one."""
    return envelope.role is Role.TARGET and envelope.sequence >= 1 and not side.heard


def _no_peer(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    side = state.living.get((1 - int(envelope.role), envelope.conversation))
    if side is not None:
        state.tally["no peer heard"] += 1
        _peer_is_over(state, side, envelope, record, record.body or b"")


def _peer_is_over(
    state: SecondState, side: Side, envelope: Envelope, record: LogRecord, error: bytes | None = None
) -> None:
    """Take the end of the peer; with `error`, the body of an Error, the peer has failed."""
    if side.peer_ended or side.peer_failed:
        return
    failed = error is not None
    side.peer_failed, side.peer_ended = failed, not failed
    body = record.body or b"" if error is None else error
    heard = AcceptedRecord(
        record.offset,
        ERROR if failed else envelope.suffix.message_type,
        body,
        envelope.writer,
        envelope.counter,
        envelope.kind,
        record.timestamp_ms,
        origin_of(record),
    )
    if side.ended:
        state.bury(side)
    elif failed:
        side.error = heard
    else:
        side.heard.append(heard)


def _answer_closed(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.kind is Kind.MESSAGE and not goes_on(state, envelope.writer):
        return bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    if envelope.kind is Kind.TRANSACTION and not goes_on(state, envelope.writer):
        whole = Record(record.offset, record.header, state.brief(record.body or b""), record.timestamp_ms)
        return bounce(state, envelope, whole, BounceReason.WRITER_CLOSED, "whole")
    refused = envelope.kind is Kind.BEGIN and refuse_begin(state, envelope)
    tell_closed(state, envelope)
    return "refused BEGIN" if refused else "closed"


_HEARD: Final[dict[Kind, Callable[[SecondState, Envelope, LogRecord], str | None]]] = {
    Kind.MESSAGE: _message,
    Kind.BEGIN: _begin,
    Kind.END_CALL: _end_call,
    Kind.END: _peer_end,
    Kind.ERROR: _peer_end,
    Kind.BOUNCE: put,
    Kind.CONFIRM: lambda state, envelope, _: decide(state, envelope),
    Kind.REDIRECT: lambda state, envelope, _: decide(state, envelope),
    Kind.NO_PEER: _no_peer,
    Kind.SET_TIMER: on_timer,
    Kind.CLOSE_WRITER: _close,
    Kind.NOTICE: lambda state, envelope, _: keep(state, envelope.suffix.detail),
    Kind.WRITER_CLOSED: lambda state, envelope, _: keep(state, envelope.suffix.detail),
    Kind.BATCH: on_batch,
    Kind.VETO: lambda state, envelope, _: on_veto(state, envelope),
    Kind.DECISION: _decision,
    Kind.FIN: lambda state, envelope, _: on_finished(state, envelope),
    Kind.FIN_ANSWER: lambda state, envelope, _: on_finished(state, envelope),
    Kind.TRANSACTION: expand,
    Kind.INSTALL: install,
    Kind.FORWARD: lambda state, envelope, record: arrive(state, envelope, record, _take),
    Kind.CLOSED: lambda state, envelope, _: closed(state, envelope),
    Kind.VOID: _void,
}
