"""Data records into the second fold: who was heard, and what was answered to the others."""

from __future__ import annotations

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import decode
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.records import REFUSED, Bounce, BounceReason, End, Envelope, Kind, NoticeReason, Opened, Role

from .records import LogRecord
from .second_state import Heard, Said, SecondState
from .second_writers import close, is_known, keep, may_come, notify, tell_closed, untrusted


def hear(state: SecondState, record: LogRecord) -> None:
    """Take a record in log order."""
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
        return
    known = is_known(state, envelope.writer)
    reason = None if known else untrusted(state, envelope.writer)
    if reason is not None:
        state.tally["stranger"] += 1
        notify(state, envelope, 0, reason)
        return
    taken = state.accepted[envelope.writer] if known else []
    if envelope.counter < len(taken):
        state.tally["duplicate"] += 1
        return
    if envelope.counter > len(taken):
        state.tally["gap"] += 1
        notify(state, envelope, len(taken), NoticeReason.GAP)
        return
    state.accepted[envelope.writer] = taken
    taken.append(envelope.counter)
    verdict = _judge(state, envelope, record)
    state.verdicts[envelope.writer, envelope.counter] = verdict


def _judge(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.writer in state.closed:
        return _answer_closed(state, envelope, record)
    match envelope.kind:
        case Kind.MESSAGE:
            return _message(state, envelope, record)
        case Kind.BEGIN:
            begin = envelope.suffix.begin
            key = (int(Role.INITIATOR), envelope.conversation)
            if begin is not None and key not in state.living:
                state.create(key, envelope.writer, begin.target, -1)
        case Kind.END_CALL:
            side = state.living.get((int(envelope.role), envelope.conversation))
            if side is not None and not side.ended:
                side.ended_by_session = True
                state.end(side, failed=bool(record.body))
        case Kind.END | Kind.ERROR:
            _peer_end(state, envelope, record)
        case Kind.BOUNCE:
            detail = envelope.suffix.detail
            if isinstance(detail, Bounce):
                state.mailbox[detail.writer, detail.at, detail.counter] = detail.reason
        case Kind.CLOSE_WRITER:
            close(state, envelope)
        case Kind.NOTICE | Kind.WRITER_CLOSED:
            keep(state, envelope.suffix.detail)
        case _:
            return "unknown kind"
    return "control"


def _message(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    role = Role(1 - envelope.role)
    key = (int(role), envelope.conversation)
    begin = envelope.suffix.begin
    if key not in state.living:
        if not envelope.flags & 1 or begin is None or role is Role.INITIATOR:
            state.too_late.append((envelope.writer, envelope.counter, envelope.conversation))
            return _bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        detail = envelope.suffix.detail
        opener = detail.opener if isinstance(detail, Opened) else envelope.writer
        if state.tombstones.get(envelope.conversation) == opener:
            del state.tombstones[envelope.conversation]
            return _bounce(state, envelope, record, BounceReason.ENDED, "tombstone")
        state.create(key, opener, begin.home, 0)
    side = state.living[key]
    if side.ended:
        return "discarded"
    if side.peer_ended or side.peer_failed:
        state.too_late.append((envelope.writer, envelope.counter, envelope.conversation))
        return _bounce(state, envelope, record, BounceReason.ENDED)
    side.talked = True
    misnumbered = envelope.sequence not in (-1, len(side.heard))
    state.tally["misnumbered"] += misnumbered
    if misnumbered and len({envelope.writer, *side.voices}) == 1:
        state.problem(f"I5: number {envelope.sequence} was accepted as {len(side.heard)} at {record.offset}")
    side.voices[envelope.writer] = envelope.counter
    side.heard.append(
        Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer, envelope.counter,
              Kind.MESSAGE)
    )  # fmt: skip
    return "accepted"


def _peer_end(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    role = Role(1 - envelope.role)
    side = state.living.get((int(role), envelope.conversation))
    detail = envelope.suffix.detail
    if not isinstance(detail, End):
        state.tally["malformed"] += 1
        return
    if side is None:
        if role is Role.TARGET:
            if not envelope.flags & REFUSED:  # else somebody else may begin it
                state.refused_for_ever.add((int(role), envelope.conversation))
            if may_come(state, detail.opener):
                state.tombstones[envelope.conversation] = detail.opener
            answer = End(detail.opener, detail.home)
            state.say(detail.home, Said(
                state.order, Kind.END, int(Role.TARGET), envelope.conversation, -1, END_DIALOG, b"", answer
            ))  # fmt: skip
        return
    if side.peer_ended or side.peer_failed or (envelope.flags & REFUSED and side.opener != detail.opener):
        return
    failed = envelope.kind is Kind.ERROR
    side.peer_failed, side.peer_ended = failed, not failed
    heard = Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer,
                  envelope.counter, envelope.kind)  # fmt: skip
    if side.ended:
        state.bury(side)
    elif failed:
        side.error = heard
    else:
        side.heard.append(heard)


def _answer_closed(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.kind is Kind.MESSAGE:
        return _bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    begin = envelope.suffix.begin
    refused = begin is not None and envelope.kind is Kind.BEGIN
    if begin is not None and refused:
        answer = End(envelope.writer, begin.home)
        state.say(begin.target, Said(
            state.order, Kind.END, int(Role.INITIATOR), envelope.conversation, -1, END_DIALOG, b"", answer
        ))  # fmt: skip
    tell_closed(state, envelope)
    return "refused BEGIN" if refused else "closed"


def _bounce(state: SecondState, envelope: Envelope, record: LogRecord, reason: BounceReason, why: str = "") -> str:
    suffix = envelope.suffix
    home = suffix.home or (suffix.begin.home if suffix.begin else None)
    if home is not None:
        detail = Bounce(suffix.origin or envelope.writer, envelope.counter, state.address, reason)
        state.say(home, Said(
            state.order, Kind.BOUNCE, 1 - envelope.role, envelope.conversation, -1, suffix.message_type,
            record.body or b"", detail,
        ))  # fmt: skip
    return f"bounced {why or reason.name}"
