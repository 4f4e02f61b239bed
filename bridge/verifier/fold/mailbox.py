"""The mailbox in the second fold: messages that came back, and how each one left (protocol.md section 3)."""

from __future__ import annotations

from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import MAILBOX_BYTES_MAX, MAILBOX_ENTRIES_MAX
from konverse.schemas.wire.records import (
    FIRST,
    NAMED,
    RETURNING,
    Bounce,
    BounceId,
    BounceReason,
    Envelope,
    Kind,
    Opened,
)

from .state import BouncedRecord, MailboxOutcome, Output, SecondState
from .writers import line_of


def put(state: SecondState, envelope: Envelope, record: LogRecord) -> str:
    """BOUNCE: put a message that came back into the mailbox."""
    suffix = envelope.suffix
    detail = suffix.detail
    if not isinstance(detail, Bounce):
        return "control"
    name = BounceId(detail.writer, detail.counter, detail.at)
    if name in state.mailbox:
        return "control"
    letter = BouncedRecord(
        suffix.origin or detail.writer,
        envelope.conversation,
        envelope.sequence,
        detail.reason,
        suffix.message_type,
        record.body or b"",
        record.body_bytes,
    )
    state.mailbox_bytes += letter.weight
    while state.mailbox and (len(state.mailbox) + 1 > MAILBOX_ENTRIES_MAX or state.mailbox_bytes > MAILBOX_BYTES_MAX):
        others = (one for one, kept in state.mailbox.items() if kept.reason is not BounceReason.REDIRECTED)
        oldest = next(others, next(iter(state.mailbox)))
        _take(state, oldest)
        state.fates[oldest] = MailboxOutcome("let go")
        state.tally["let go"] += 1
    state.mailbox[name] = letter
    return "control"


def decide(state: SecondState, envelope: Envelope) -> str:
    """CONFIRM or REDIRECT: let a message in the mailbox go, or send it on another conversation."""
    name = envelope.suffix.detail
    if not isinstance(name, BounceId) or name not in state.mailbox:
        state.tally["bounce unknown"] += 1
        return "control"
    letter = state.mailbox[name]
    if envelope.writer != letter.session and letter.session not in state.closed:
        state.tally["bounce of another"] += 1
        return "control"
    if envelope.kind is Kind.CONFIRM:
        state.fates[name] = MailboxOutcome("confirmed")
        _take(state, name)
        state.tally["confirmed"] += 1
        return "control"
    side = state.living.get((int(Role.INITIATOR), envelope.conversation))
    state.tally["redirected to what has moved"] += (int(Role.INITIATOR), envelope.conversation) in state.moves.stubs
    if side is None or side.ended or side.peer_ended or side.peer_failed or not letter.type:
        state.tally["redirected without effect"] += 1
        return "control"
    if side.generation:
        return "control"  # it has moved away and back: nothing is redirected to it (M193)
    _take(state, name)
    mine = envelope.writer == side.opener or envelope.writer in line_of(state, side.opener)
    asked_to = bool(envelope.flags & 1) and envelope.suffix.begin is not None and mine
    opens = not side.talked and (asked_to or side.numbering >= 0)
    state.tally["redirected first"] += opens
    state.tally["redirected first, opened by another"] += opens and side.opener != envelope.writer
    side.talked = True
    state.fates[name] = MailboxOutcome(
        "redirected", envelope.conversation, side.peer_at, len(state.outputs.get(side.peer_at, ()))
    )
    state.stage(side.peer_at, Output(
        state.order, Kind.MESSAGE, int(Role.INITIATOR), envelope.conversation, side.numbering, letter.type, letter.body,
        Opened(side.opener) if opens and side.opener != envelope.writer else None, envelope.writer,
        FIRST * opens | envelope.flags & (RETURNING | NAMED),
    ))  # fmt: skip
    if side.numbering >= 0:
        side.numbering += 1
    state.tally["redirected"] += 1
    state.tally["redirected by another"] += envelope.writer != letter.session
    state.tally["redirected again"] += name.writer == state.writer
    return "control"


def _take(state: SecondState, name: BounceId) -> None:
    state.mailbox_bytes -= state.mailbox.pop(name).weight
