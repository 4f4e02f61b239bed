"""Relocation in the second fold: RELOCATE, INSTALL, FORWARD and CLOSED (protocol.md section 7.3).

The states that left and the states that arrived are both kept, so that `check` can compare them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konverse.bridge.verifier.records import ForwardedRecord, Key, LogRecord
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import BODY_BYTES_MAX, INSTALL_BYTES_MAX
from konverse.schemas.system_messages import BEGUN_TWICE_BODY, DIALOG_TIMER, END_DIALOG, ERROR
from konverse.schemas.wire.envelope import decode_accepted
from konverse.schemas.wire.moved import Moved, MovedMessage, decode_moved
from konverse.schemas.wire.operations import Relocate
from konverse.schemas.wire.records import NAMED, BounceReason, Closed, End, Envelope, Forwarded, Kind, Origin

from .answers import answer_end, bounce, refuse_begin, refuse_over, stray
from .ended import MOVED
from .endings import told_of_cleanup, told_of_loss
from .half_close import say_finished
from .moved_state import MovedState, SecondStub
from .state import CODES, PAST, AcceptedRecord, Output, SecondState, Side

MINE: Final = (Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER)
THEIRS: Final = (Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.NO_PEER, Kind.FIN, Kind.FIN_ANSWER)

INSTALL_PIECES_MAX: Final = INSTALL_BYTES_MAX // BODY_BYTES_MAX
"""Pieces of one side's state; a record that names more is malformed."""

MoveJudge = Callable[[SecondState, Envelope, LogRecord], str]


def meant_for(envelope: Envelope) -> Key | None:
    """The side that a record is for; None for a kind that is for no side."""
    if envelope.kind in MINE:
        return int(envelope.role), envelope.conversation
    return (1 - envelope.role, envelope.conversation) if envelope.kind in THEIRS else None


# -------------------------------------------------------------------------------------------------------------- moves


def relocate(state: SecondState, operation: Relocate) -> None:
    """RELOCATE: move a side to another partition."""
    side = state.table.get(operation.endpoint)
    if side is None or side.generation != operation.generation:
        state.problem(f"I3: a commit moves endpoint {operation.endpoint}, which does not live here in that generation")
        return
    past, key = state.past, side.key
    follows_group = state.moves.leaving.get(side.group) == operation.to
    if not follows_group and side.group in state.moves.leaving and operation.to.topic == state.address.topic:
        state.problem(f"I7: {key[1].hex()} moves to another partition than its group")
    followed = follows_group or operation.to.topic != state.address.topic
    tried = past.wary or key in (*past.failures, *past.handed, *(one for case in past.accused for one in case))
    if key in past.suspended or (tried and not followed):
        state.problem(f"I7: {key[1].hex()} moves although its attempts bind it here")
    if state.moves.groups.setdefault(side.group, operation.to) != operation.to:
        state.problem(f"I7: {key[1].hex()} moves to another partition than its group")
    state.tally["moved as a group"] += len(state.mates(side)) > 1
    generation = side.generation + 1
    state.moves.left.setdefault((side.key, generation), []).append(_pack(state, side))
    state.hold(operation.to, behind=side.peer_at)
    for _ in range(operation.pieces):
        state.stage(operation.to, Output(state.order, Kind.INSTALL, side.key[0], side.key[1], -1, "", b"", None))
    state.moves.stubs.setdefault(side.key, {})[side.generation] = SecondStub(
        operation.to, side.previous, side.code != "SO"
    )
    state.moves.away[side.key] = side.opener
    state.tally["moved"] += 1
    state.tally["followed its group"] += follows_group
    state.tally["moved again"] += side.generation > 0
    state.tally["moved with unread"] += not side.ended and len(side.heard) > len(side.consumed)
    state.tally["moved finished"] += side.finished or side.peer_finished
    state.tally["moved with a timer"] += side.timer_ms is not None or side.rang is not None
    state.tally["moved with a level"] += side.level != DEFAULT_LEVEL
    side.left = True
    state.take_away(side)


def all_together(state: SecondState) -> None:
    """Check after a COMMIT that each group which it moved has moved as a whole."""
    for group in state.moves.groups:
        if state.groups.get(group):
            state.problem(f"I7: only a part of group {group.hex()} moves")
    state.moves.groups.clear()


def _pack(state: SecondState, side: Side) -> MovedState:
    identity = state.incarnation
    waiting = [] if side.ended else side.heard[len(side.consumed) :]

    def message(heard: AcceptedRecord) -> tuple[str, bytes, int, Origin]:
        here = Origin(state.address.topic, state.address.partition, identity, heard.offset)
        return heard.type, heard.body, heard.timestamp_ms, heard.origin or here

    return MovedState(
        state.address,
        state.is_named(side),
        side.code,
        side.peer_at,
        side.opener,
        side.group,
        len(side.heard),
        len(side.consumed),
        side.numbering,
        tuple(reversed(side.voices.items())),
        tuple(map(message, waiting)),
        None if side.error is None else message(side.error),
        (side.finished, side.peer_finished, side.answer, tuple(side.askers)),
        None if side.rang is None else message(side.rang),
        (side.timer_ms, side.expires_ms, side.end_of_stream),
        side.level,
    )


def install(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    """INSTALL: take a piece of a side's state. With the last piece the side lives here."""
    at, count = envelope.suffix.fragment or (0, 0)
    pieces = state.moves.installing.pop(envelope.writer, [])
    if at != len(pieces) or not at < count <= INSTALL_PIECES_MAX:
        state.tally["malformed"] += 1
        return "control"
    pieces.append(record.body or b"")
    if len(pieces) < count:
        state.moves.installing[envelope.writer] = pieces
        state.tally["installed from pieces"] += len(pieces) == 1
        return "control"
    try:
        moved = decode_moved(b"".join(pieces))
    except MalformedRecord:
        moved = None
    if moved is None or not 0 <= moved.state < len(CODES) or CODES[moved.state] in ("SI", "CD"):
        state.tally["malformed"] += 1
        return "control"
    key = (int(envelope.role), envelope.conversation)
    if key in state.living:
        _meet(state, state.living[key], moved, record)
        return "control"
    side = _arrive(state, key, moved, record)
    state.tally["moved back"] += key in state.moves.stubs
    state.moves.arrived.setdefault((key, moved.generation), []).append(_unpack(state, moved, side))
    return "control"


def _meet(state: SecondState, side: Side, moved: Moved, record: LogRecord) -> None:
    """A side arrives where its id was begun anew: both fail. Only an id that the caller chose can be begun twice."""
    key, body = side.key, state.brief(BEGUN_TWICE_BODY)
    if not state.is_named(side):
        state.problem(f"I9: {key[1].hex()} moves to a partition where it already lives")
    state.given_up.add(key[1])
    for peer in dict.fromkeys((moved.peer, side.peer_at)):
        state.stage(peer, Output(state.order, Kind.NO_PEER, *key, -1, ERROR, body, None))
    state.say_closed(key, moved.previous, Closed(moved.generation - 1, None, key[0] == Role.TARGET))
    if side.peer_ended or side.peer_failed:
        return
    side.peer_failed = True
    if side.ended:
        state.bury(side)
    else:
        side.error = AcceptedRecord(record.offset, ERROR, body, b"", -1, Kind.ERROR, state.now_ms)


def _arrive(state: SecondState, key: Key, moved: Moved, record: LogRecord) -> Side:
    opener = state.writer if moved.begin else moved.opener
    state.may_live(key, opener, b"")
    side = state.create(key, opener, moved.peer, moved.sent, moved.group or b"")
    code = CODES[moved.state]
    side.generation, side.previous, side.level = moved.generation, moved.previous, moved.level
    side.named = moved.named
    side.talked, side.ended = code != "SO", code == "DO"
    side.peer_ended, side.peer_failed = code == "DI", code == "ER"
    side.voices = dict(reversed(moved.voices))
    side.speakers = set(side.voices)
    side.finished, side.peer_finished, side.answer, askers = moved.finished or (False, False, None, ())
    side.askers = [*askers]
    side.consumed = [(-1, PAST)] * moved.consumed
    side.heard = [PAST] * (moved.received - len(moved.waiting))
    side.thrown_away = side.heard[moved.consumed :]
    side.thrown_before = len(side.thrown_away)
    side.heard += [_heard(state, record, message) for message in moved.waiting]
    side.brought, side.consumed_before = len(side.heard), moved.consumed
    for message in moved.urgent:
        if message.type == DIALOG_TIMER:
            side.rang = _heard(state, record, message)
        else:
            side.error = _heard(state, record, message)
    side.timer_ms = None if moved.timer_ms < 0 else moved.timer_ms
    side.expires_ms = None if moved.expires_ms < 0 else moved.expires_ms
    side.end_of_stream = moved.end_of_stream
    state.times.expecting[key] = None
    state.times.include(side.timer_ms, side.expires_ms)
    return side


def _heard(state: SecondState, record: LogRecord, message: MovedMessage) -> AcceptedRecord:
    kind = Kind.END if message.type == END_DIALOG else Kind.MESSAGE
    body = state.brief(message.body or b"")
    return AcceptedRecord(record.offset, message.type, body, b"", -1, kind, message.timestamp_ms, message.origin)


def _unpack(state: SecondState, moved: Moved, side: Side) -> MovedState:
    def message(one: MovedMessage) -> tuple[str, bytes, int, Origin]:
        return one.type, state.brief(one.body or b""), one.timestamp_ms, one.origin

    return MovedState(
        moved.previous,
        moved.named,
        side.code,
        moved.peer,
        moved.opener,
        side.group,
        moved.received,
        moved.consumed,
        moved.sent,
        tuple(moved.voices),
        tuple(map(message, moved.waiting)),
        next((message(one) for one in moved.urgent if one.type != DIALOG_TIMER), None),
        (side.finished, side.peer_finished, side.answer, tuple(side.askers)),
        next((message(one) for one in moved.urgent if one.type == DIALOG_TIMER), None),
        (side.timer_ms, side.expires_ms, side.end_of_stream),
        side.level,
    )


def closed(state: SecondState, envelope: Envelope) -> str:
    """CLOSED: the conversation is over at the next place, so the stub here is removed."""
    detail = envelope.suffix.detail
    key = (int(envelope.role), envelope.conversation)
    if not isinstance(detail, Closed):
        state.tally["malformed"] += 1
    else:
        chain = state.moves.stubs.get(key, {})
        stub = chain.pop(detail.generation, None)
        failed_here = stub is not None and key[0] == Role.TARGET and state.heard_of_home(key[1])
        awaited = failed_here or detail.awaits_home
        if stub is not None and not chain and key not in state.living:
            state.named.end(key, MOVED, state.now_ms)
            if awaited and stub.previous is None:
                state.refuse_home(key[1])
            if detail.cleaned is not None:
                state.tally["cleaned up elsewhere"] += 1
                state.cleanups.remember(key[1], detail.cleaned, state.now_ms)
        if not chain:
            state.moves.stubs.pop(key, None)
            opener = state.moves.away.pop(key, None)
            if opener is not None and key not in state.living:
                state.over[key] = opener, True
                state.moves.over_elsewhere.add(key[1])
        if stub is not None and stub.previous is not None:
            state.tally["CLOSED walked on"] += 1
            before = Closed(detail.generation - 1, detail.cleaned, awaited)
            state.say_closed(key, stub.previous, before)
    return "control"


# ---------------------------------------------------------------------------------------------------------- forwarding


def follow(state: SecondState, envelope: Envelope, record: LogRecord) -> str | None:
    """Forward a record to a side that has moved away; None if the side has not moved."""
    key = meant_for(envelope)
    chain = None if key is None else state.moves.stubs.get(key)
    if not chain:
        return None
    generation = min(chain)
    origin = Origin(state.address.topic, state.address.partition, state.incarnation, record.offset)
    detail = Forwarded(generation + 1, origin, record.timestamp_ms, (), record.header or b"")
    state.tally["END met a stub"] += envelope.kind in (Kind.END, Kind.ERROR)
    state.tally["END CONVERSATION met a stub"] += envelope.kind is Kind.END_CALL
    state.tally["FIN met a stub"] += envelope.kind is Kind.FIN
    state.tally["FIN answer met a stub"] += envelope.kind is Kind.FIN_ANSWER
    state.tally["no peer met a stub"] += envelope.kind is Kind.NO_PEER
    state.tally["timer met a stub"] += envelope.kind is Kind.SET_TIMER
    state.tally["row met a stub"] += state.deciding >= 0
    _pass_on(state, chain[generation].to, envelope, detail, record)
    return "forwarded"


def _pass_on(state: SecondState, to: Address, envelope: Envelope, detail: Forwarded, record: LogRecord) -> None:
    state.stage(to, Output(
        state.order, Kind.FORWARD, int(envelope.role), envelope.conversation, -1, "", record.body or b"", detail
    ))  # fmt: skip


def arrive(state: SecondState, envelope: Envelope, record: LogRecord, judge: MoveJudge) -> str:
    """FORWARD: judge a record where its side lives or lived last, or send it on to the next place."""
    detail = envelope.suffix.detail
    try:
        original = decode_accepted(detail.header) if isinstance(detail, Forwarded) else None
    except MalformedRecord:
        original = None
    key = None if original is None else meant_for(original)
    if original is None or key is None or not isinstance(detail, Forwarded):
        state.tally["malformed"] += 1
        return "control"
    stub = state.moves.stubs.get(key, {}).get(detail.hop)
    if stub is not None:
        _pass_on(state, stub.to, original, detail._replace(hop=detail.hop + 1, headers=()), record)
        return "sent on"
    origin = detail.origin
    there = ForwardedRecord(
        record.offset, detail.header, record.body, detail.timestamp_ms, record.order, record.body_bytes, origin
    )
    side = state.living.get(key)
    if side is None or side.generation != detail.hop:
        verdict = _nobody(state, original, there)
    else:
        verdict = judge(state, original, there)
    state.far_verdicts[original.writer, origin.at, original.counter] = verdict
    return verdict


def _nobody(state: SecondState, envelope: Envelope, record: ForwardedRecord) -> str:
    kind, detail, to_target = envelope.kind, envelope.suffix.detail, envelope.role is Role.INITIATOR
    if kind is Kind.MESSAGE and to_target:
        state.too_late.append((envelope.suffix.origin or envelope.writer, envelope.counter, envelope.conversation))
        state.tally["bounced after a move"] += 1
        verdict = bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        if not told_of_cleanup(state, envelope.conversation):
            told_of_loss(state, envelope)
        return verdict
    if kind is Kind.MESSAGE:
        return stray(state, envelope)
    if kind is Kind.FIN:
        state.tally["FIN after a move"] += 1
        say_finished(state, envelope, ())
    elif kind is Kind.BEGIN and envelope.flags & NAMED:
        state.named.refused.add(envelope.conversation)
        refuse_over(state, envelope)
    elif kind is Kind.BEGIN:
        refuse_begin(state, envelope)
    elif isinstance(detail, End) and to_target:
        answer_end(state, envelope, detail)
    elif isinstance(detail, End) and envelope.sequence >= 0:
        stray(state, envelope)
    return "control"
