"""Data records into the second fold: who was heard, and what was answered to the others."""

from __future__ import annotations

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import decode
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.records import Bounce, BounceReason, End, Envelope, Kind, Role

from .records import LogRecord
from .second_moves import arrive, bounce, closed, follow, install, origin_of
from .second_state import Heard, Said, SecondState


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
    taken = state.accepted.get(envelope.writer, [])
    if envelope.counter != len(taken):
        state.tally["duplicate" if envelope.counter < len(taken) else "gap"] += 1
        return
    state.accepted[envelope.writer] = taken
    taken.append(envelope.counter)
    verdict = _judge(state, envelope, record)
    state.verdicts[envelope.writer, envelope.counter] = verdict


def _judge(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.writer in state.closed:
        return _answer_closed(state, envelope, record)
    return (follow(state, envelope, record) if state.stubs else None) or _take(state, envelope, record)


def _take(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
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
            _close(state, envelope.conversation)
        case Kind.INSTALL:
            return install(state, envelope, record)
        case Kind.FORWARD:
            return arrive(state, envelope, record, _take)
        case Kind.CLOSED:
            return closed(state, envelope)
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
            return bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        if state.tombstones.get(envelope.conversation) == envelope.writer:
            del state.tombstones[envelope.conversation]
            return bounce(state, envelope, record, BounceReason.ENDED, "tombstone")
        state.create(key, envelope.writer, begin.home, 0)
    side = state.living[key]
    if side.ended:
        return "discarded"
    if side.peer_ended or side.peer_failed:
        state.too_late.append((envelope.writer, envelope.counter, envelope.conversation))
        return bounce(state, envelope, record, BounceReason.ENDED)
    side.talked = True
    misnumbered = envelope.sequence not in (-1, len(side.heard))
    state.tally["misnumbered"] += misnumbered
    if misnumbered and len({envelope.writer, *side.voices}) == 1:
        state.problem(f"I5: number {envelope.sequence} was accepted as {len(side.heard)} at {record.offset}")
    side.voices[envelope.writer] = envelope.counter
    side.heard.append(
        Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer, envelope.counter,
              Kind.MESSAGE, record.timestamp_ms, origin_of(record))
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
            state.refused_for_ever.add((int(role), envelope.conversation))
            if detail.opener not in state.closed:
                state.tombstones[envelope.conversation] = detail.opener
            answer = End(detail.opener, detail.home)
            state.say(detail.home, Said(
                state.order, Kind.END, int(Role.TARGET), envelope.conversation, -1, END_DIALOG, b"", answer
            ))  # fmt: skip
        return
    if side.peer_ended or side.peer_failed:
        return
    failed = envelope.kind is Kind.ERROR
    side.peer_failed, side.peer_ended = failed, not failed
    heard = Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer,
                  envelope.counter, envelope.kind, record.timestamp_ms, origin_of(record))  # fmt: skip
    if side.ended:
        state.bury(side)
    elif failed:
        side.error = heard
    else:
        side.heard.append(heard)


def _close(state: SecondState, writer: bytes) -> None:
    if writer not in state.closed:
        state.closed[writer] = len(state.accepted.setdefault(writer, []))
    state.tombstones = {key: opener for key, opener in state.tombstones.items() if opener != writer}


def _answer_closed(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    if envelope.kind is Kind.MESSAGE:
        return bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    begin = envelope.suffix.begin
    if envelope.kind is Kind.BEGIN and begin is not None:
        answer = End(envelope.writer, begin.home)
        state.say(begin.target, Said(
            state.order, Kind.END, int(Role.INITIATOR), envelope.conversation, -1, END_DIALOG, b"", answer
        ))  # fmt: skip
        return "refused BEGIN"
    return "closed"
