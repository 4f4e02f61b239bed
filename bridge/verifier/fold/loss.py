"""LOST in the second fold: which conversations fail, and how writers go on after deleted data (protocol.md 7.7).

The verdict does not depend on whether the records can still be read: after a LOST they count as never written.
"""

from __future__ import annotations

from konverse.bridge.verifier.records import LogRecord, Record, origin_of
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import WRITER_HOLE_RECORDS_MAX
from konverse.schemas.system_messages import ACKED_LOST_BODY, ERROR, lost_body
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import Lost
from konverse.schemas.wire.records import ACKED, FIRST, BounceReason, End, Envelope, Kind, Suffix

from .answers import bounce, refuse_begin
from .endings import told_of_loss
from .moves import follow
from .state import SecondState, Side, minted_ms
from .writers import is_known, line_of


def hole_of(commit: Commit) -> Lost | None:
    """The LOST in a COMMIT; None if it has none."""
    holes = [operation for operation in commit.operations.rare if isinstance(operation, Lost)]
    return holes[0] if holes else None


def said_to_be_lost(start: int, end: int) -> str:
    """The text of a finding about lost records."""
    return (
        f"the records {start} to {end - 1} were deleted before they were received, or given up by an operator (LOST), "
        "and the conversations that lived here got an Error"
    )


def fail_by_loss(state: SecondState, lost: Lost) -> None:
    """LOST: fail each conversation that may have lost a record."""
    state.problem(f"lost: {said_to_be_lost(*lost)}")
    losses = state.losses
    losses.count += 1
    losses.hole = lost.start, lost.end
    state.moves.installing.clear()
    body = lost_body(*lost)
    for index in sorted(state.table):
        side = state.table.get(index)
        if side is not None and side.key not in state.moves.stubs:  # a stub forwards the Error, behind its records
            _fail(state, side, lost, body)
    for key in [*state.moves.stubs]:
        _fail_elsewhere(state, key[1], Role(1 - key[0]), lost, body)


def _fail(state: SecondState, side: Side, lost: Lost, body: bytes) -> None:
    if side.peer_ended or side.peer_failed or (side.code == "SO" and side.numbering >= 0):
        return  # its peer sends nothing more, or does not know the conversation yet
    state.tally["freed by a loss" if side.ended else "failed by a loss"] += 1
    if side.ended:
        side.peer_failed = True
        state.await_home(side)
        state.bury(side)
    else:
        state.fail(side, lost.start, body)


def _fail_elsewhere(state: SecondState, conversation: bytes, role: Role, lost: Lost, body: bytes) -> None:
    told = End(state.writer, state.address)
    envelope = Envelope(
        Kind.ERROR, 0, role, state.address.tag, state.writer, conversation, 0, -1, Suffix(ERROR, detail=told)
    )
    state.tally["failed elsewhere by a loss"] += 1
    follow(state, envelope, Record(lost.start, encode_envelope(envelope), state.brief(body), state.now_ms))


def goes_on_behind_acknowledged(state: SecondState, envelope: Envelope, record: LogRecord) -> bool:
    """Whether a record shows that Kafka has lost acknowledged ones before it. If so, pass over the lost records."""
    writer = envelope.writer
    due = len(state.accepted.get(writer, ()))
    said_before = state.losses.count and minted_ms(writer) is None  # the LOST covers the gap of an owner
    vouches = envelope.flags & ACKED and writer not in state.closed and not said_before
    if not vouches or envelope.counter - due > WRITER_HOLE_RECORDS_MAX:
        return False
    pass_over_acknowledged(state, writer, envelope.counter, record.offset)
    return True


def pass_over_acknowledged(state: SecondState, writer: bytes, counter: int, offset: int) -> None:
    """Pass over acknowledged records that the log lacks, and fail the conversations that they may belong to."""
    due = len(state.accepted.get(writer, ()))
    state.problem(
        f"lost: the records {due} to {counter - 1} of writer {writer.hex()} were acknowledged by Kafka before record "
        f"{offset} was written, and the log lacks them; conversations that may have missed one got an Error"
    )
    state.accepted[writer] = [*range(counter)]
    state.tally["acknowledged and lost"] += 1
    state.losses.unsaid += 1
    state.losses.skip(writer, due, counter)
    lost = Lost(offset, offset)
    for index in sorted(state.table):
        side = state.table.get(index)
        if side is not None and side.key not in state.moves.stubs and _may_hear(state, side, writer, due):
            _fail(state, side, lost, ACKED_LOST_BODY)
    for key in [*state.moves.stubs]:
        _fail_elsewhere(state, key[1], Role(1 - key[0]), lost, ACKED_LOST_BODY)


def _may_hear(state: SecondState, side: Side, writer: bytes, due: int) -> bool:
    """Whether one of a writer's lost records, from counter `due` on, may have been for this side."""
    if writer in side.voices or minted_ms(writer) is None or state.is_named(side):
        return True
    line = [side.opener, *line_of(state, side.opener)]
    if writer in line:
        return True
    last = line[-1]
    if not any(last) or minted_ms(last) is None:
        return False  # no heir, ever; or an owner
    return due == 0 or not is_known(state, last)  # its CLOSE_WRITER may be lost too, or its heir is forgotten


def _words(state: SecondState) -> bytes:
    """The Error about a record that was passed over."""
    return lost_body(*state.losses.hole) if state.losses.count else ACKED_LOST_BODY


def resumes(state: SecondState, writer: bytes, counter: int) -> bool:
    """Whether a writer goes on at this counter, after a LOST; the counters in between are passed over."""
    losses, taken = state.losses, state.accepted.get(writer, [])
    if not losses.count or counter - len(taken) > losses.hole[1]:  # each lost record had an offset below its end
        return False
    if writer not in state.closed:  # an heir resends all records of a closed writer, or none
        losses.skip(writer, len(taken), counter)
    state.accepted[writer] = [*range(counter)]
    who = "owner" if minted_ms(writer) is None else "session"
    state.tally[f"{who} went on after a loss"] += 1
    return True


def too_late(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    """Answer a record that was passed over and comes late: it is not received."""
    state.tally["late after a loss"] += 1
    verdict = "late"
    if envelope.kind is Kind.MESSAGE:
        verdict = bounce(state, envelope, record, BounceReason.NO_ENDPOINT, "late")
    elif envelope.kind is Kind.TRANSACTION:
        whole = Record(record.offset, record.header, state.brief(record.body or b""), record.timestamp_ms)
        verdict = bounce(state, envelope, whole, BounceReason.NO_ENDPOINT, "late")
    elif envelope.kind is Kind.BEGIN:
        refuse_begin(state, envelope)
    key = (1 - int(envelope.role), envelope.conversation)
    side = state.living.get(key)
    lost = Lost(*state.losses.hole)
    if side is not None and envelope.kind in (Kind.MESSAGE, Kind.END, Kind.ERROR):
        _fail(state, side, lost, _words(state))
    elif key in state.moves.stubs and envelope.kind in (Kind.MESSAGE, Kind.END, Kind.ERROR):
        _fail_elsewhere(state, envelope.conversation, envelope.role, lost, _words(state))
    elif envelope.kind is Kind.MESSAGE and envelope.role is Role.INITIATOR:
        told_of_loss(state, envelope)
    return verdict


def misses(state: SecondState, side: Side, envelope: Envelope, record: LogRecord) -> bool:
    """Whether the message's number shows that one before it was passed over; if so, the conversation fails."""
    first_is_missing = _expects_first(state, side, envelope) and envelope.sequence > 0
    skipped = (envelope.sequence > len(side.heard) or first_is_missing) and origin_of(record) is None
    if not skipped or not state.losses.missed.get(envelope.writer):
        return False
    state.tally["missed after a loss"] += 1
    _fail(state, side, Lost(*state.losses.hole), _words(state))
    return True


def _expects_first(state: SecondState, side: Side, envelope: Envelope) -> bool:
    """Whether home's FIRST made the target, and the FIRST of the session that began it has not come."""
    own = envelope.writer == side.opener or not state.is_named(side)
    made_by_home = side.key[0] == Role.TARGET and state.tombstones.get(side.key[1]) == side.opener
    return made_by_home and own and not envelope.flags & FIRST
