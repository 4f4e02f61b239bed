"""Answers in the second fold to records that are not accepted, and the request to end a side of a query."""

from __future__ import annotations

from konverse.bridge.verifier.records import LogRecord, origin_of
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, NO_PEER_BODY
from konverse.schemas.wire.records import NAMED, REFUSED, Bounce, BounceReason, End, Envelope, Kind

from .state import Output, SecondState, Side
from .writers import opened_by, reads_at, spoken_for


def bounce(  # noqa: PLR0913  # the message, the reason in two forms, and the side that refuses it
    state: SecondState,
    envelope: Envelope,
    record: LogRecord,
    reason: BounceReason,
    why: str = "",
    *,
    side: Side | None = None,
) -> str:
    """Send a message back to the mailbox of its session, named by the place where it was written first."""
    suffix, home, origin = envelope.suffix, reads_at(state, envelope), origin_of(record)
    session = suffix.origin or spoken_for(envelope, side)
    if home is None and session is not None and suffix.origin is None and side is not None:
        home = side.peer_at
    if home is not None:
        at = state.address if origin is None else origin.at
        detail = Bounce(envelope.writer, envelope.counter, at, reason)
        state.sent_back.append((detail, session or envelope.writer))
        state.stage(home, Output(
            state.order, Kind.BOUNCE, 1 - envelope.role, envelope.conversation, envelope.sequence, suffix.message_type,
            record.body or b"", detail, session,
        ))  # fmt: skip
    return f"bounced {why or reason.name}"


def stray(state: SecondState, envelope: Envelope) -> str:
    """Answer with NO_PEER a target's record for an initiator that does not live."""
    state.tally["no peer"] += 1
    if (int(Role.INITIATOR), envelope.conversation) not in state.over:
        state.strays.add(envelope.conversation)
    to = envelope.suffix.home
    if to is not None:
        state.stage(to, Output(
            state.order, Kind.NO_PEER, int(Role.INITIATOR), envelope.conversation, -1, ERROR,
            state.brief(NO_PEER_BODY), None,
        ))  # fmt: skip
    return "no peer"


def answer_end(state: SecondState, envelope: Envelope, detail: End) -> None:
    """Answer an END for a target that does not live."""
    answer = End(detail.opener, detail.home)
    state.stage(detail.home, Output(
        state.order, Kind.END, int(Role.TARGET), envelope.conversation, -1, END_DIALOG, b"", answer, None,
        envelope.flags & REFUSED,
    ))  # fmt: skip


def ask_for_end(state: SecondState, last: Envelope) -> None:
    """Ask home to end its side, whose last message was a row of a query."""
    begin = last.suffix.begin
    home = begin.home if begin is not None else last.suffix.home
    if home is not None and last.role is Role.INITIATOR:
        state.stage(home, Output(state.order, Kind.END_CALL, 0, last.conversation, -1, END_DIALOG, b"", None))


def refuse_begin(state: SecondState, envelope: Envelope) -> bool:
    """Notify the target of a refused BEGIN; return whether the record names a target."""
    begin = envelope.suffix.begin
    if begin is not None:
        state.stage(begin.target, Output(
            state.order, Kind.END, int(Role.INITIATOR), envelope.conversation, -1, END_DIALOG, b"",
            End(opened_by(envelope), begin.home), None, REFUSED,
        ))  # fmt: skip
        if envelope.flags & NAMED:
            state.named.refused.add(envelope.conversation)
    return begin is not None


def refuse_over(state: SecondState, envelope: Envelope) -> None:
    """Refuse a BEGIN whose conversation is over: its target gets an Error, should it live nevertheless."""
    begin = envelope.suffix.begin
    if begin is not None:
        state.stage(begin.target, Output(
            state.order, Kind.ERROR, int(Role.INITIATOR), envelope.conversation, -1, ERROR, b"",
            End(opened_by(envelope), begin.home), None, REFUSED | NAMED,
        ))  # fmt: skip
