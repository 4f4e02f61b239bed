"""Answers of a partition to records that it does not accept, and answers that it keeps for its sessions."""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Endpoint, FarStamp, Record
from konverse.dialog.state.named import Over, describe_end
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import NO_HEIR
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.system_messages import (
    ACKED_LOST_BODY,
    ANOTHER_ID,
    END_DIALOG,
    ERROR,
    NO_PEER_BODY,
    OVER,
    error_body,
    lost_body,
)
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import (
    NAMED,
    NO_SEQUENCE,
    REFUSED,
    Bounce,
    BounceReason,
    End,
    Envelope,
    Kind,
    Notice,
    Opened,
    Suffix,
    WriterClosed,
)


def refuse_closed(state: Partition, envelope: Envelope, record: Record, closing: WriterClosed) -> None:
    """Answer a record of a closed writer, which is never accepted (protocol.md section 5).

    A session's message bounces if the closed id will never have an heir. Otherwise an heir, known or still to come,
    sends the message again.
    """
    if envelope.kind in (Kind.MESSAGE, Kind.TRANSACTION) and closing.heir == NO_HEIR[0]:
        bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
        return
    if envelope.kind is Kind.BEGIN:
        refuse_begin(state, envelope)
    home = home_of(envelope, state)
    if home is not None:
        answer(state, home, Kind.WRITER_CLOSED, closing)


def refuse_begin(state: Partition, envelope: Envelope) -> None:
    """Tell the target, by an END with REFUSED, that the conversation was not begun."""
    begin = envelope.suffix.begin
    if begin is not None:
        stream = state.stream_to(begin.target)
        suffix = Suffix(END_DIALOG, detail=End(opener_of(envelope), begin.home))
        prefix = stream.head(Kind.END, Role.INITIATOR, REFUSED) + envelope.conversation
        stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(suffix), [None]))


def refuse_over(state: Partition, envelope: Envelope, over: Over) -> None:
    """Tell the target, by an ERROR with REFUSED, that a BEGIN named an ended id: messages of that BEGIN fail there."""
    begin = envelope.suffix.begin
    if begin is not None:
        stream = state.stream_to(begin.target)
        suffix = Suffix(ERROR, detail=End(opener_of(envelope), begin.home))
        prefix = stream.head(Kind.ERROR, Role.INITIATOR, REFUSED | NAMED) + envelope.conversation
        body = error_body(OVER, f"{describe_end(envelope.conversation, over)}. {ANOTHER_ID}")
        stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(suffix), [body]))


def answer(state: Partition, home: Address | None, kind: Kind, said: Notice | WriterClosed) -> None:
    """Send a NOTICE or WRITER_CLOSED to the home of a session."""
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    prefix = stream.head(kind, Role.TARGET) + said.writer
    stream.push(Run(prefix, said.writer, NO_SEQUENCE, encode_suffix(Suffix(detail=said)), [None]))


def bounce(
    state: Partition, envelope: Envelope, record: Record, reason: BounceReason, endpoint: Endpoint | None = None
) -> None:
    """Bounce a message to the mailbox of its session: the record's writer, or the session for which an owner sent it.

    The record names the home. A handler's message does not, and goes to the home of the target's `endpoint` (M41).
    """
    state.statistics.bounced += 1
    home, session = home_of(envelope, state), envelope.suffix.origin
    if session is None and envelope.role is Role.INITIATOR and time_of_writer(envelope.writer) is None:
        session = _session_behind(envelope, endpoint)
        if session is not None and home is None and endpoint is not None:
            home = endpoint.stream.address
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream, suffix, stamp = state.stream_to(home), envelope.suffix, record[1]
    at = stamp.origin.at if isinstance(stamp, FarStamp) else state.address  # the partition for which it was numbered
    detail = Bounce(envelope.writer, envelope.counter, at, reason)
    back = encode_suffix(Suffix(suffix.message_type, origin=session, detail=detail))
    prefix = stream.head(Kind.BOUNCE, other(envelope.role)) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, envelope.sequence, back, [record[0]]))


def _session_behind(envelope: Envelope, endpoint: Endpoint | None) -> bytes | None:
    """The session that began the conversation on which a handler has sent; None when a handler or a query began it."""
    detail = envelope.suffix.detail
    opener = detail.opener if isinstance(detail, Opened) else b"" if endpoint is None else endpoint.opener
    return opener if opener and time_of_writer(opener) is not None else None


def answer_no_peer(state: Partition, envelope: Envelope) -> None:
    """Answer a target's record for an initiator without an endpoint, by NO_PEER. NO_PEER is never answered."""
    state.statistics.strays += 1
    to = envelope.suffix.home
    if to is None:
        state.statistics.undeliverable += 1
        return
    say_no_peer(state, to, Role.INITIATOR, envelope.conversation)


def follows_missed_replies(endpoint: Endpoint, envelope: Envelope) -> bool:
    """Whether a target's record follows earlier replies, of which this initiator has received none (M283).

    A session whose BEGIN never took effect can open a target. The target's first replies find no initiator, and then
    another session begins the conversation.
    """
    return envelope.role is Role.TARGET and not endpoint.received and envelope.sequence > 0


def answer_cleaned(state: Partition, conversation: bytes) -> bool:
    """Tell an initiator, once, that its target was ended WITH CLEANUP (behaviour 121)."""
    cleaned = state.cleaned.pop(conversation, None)
    if cleaned is not None:
        say_no_peer(state, cleaned.home, Role.TARGET, conversation)
    return cleaned is not None


def answer_lost(state: Partition, envelope: Envelope) -> None:
    """If data was lost here, tell the home of an unknown conversation: its FIRST may be among the lost records.

    The home ignores this if it already knows of the conversation's end.
    """
    home, writer = home_of(envelope, state), state.writers.get(envelope.writer)
    lossy = state.lost_to or (writer is not None and writer.holes)
    if lossy and home is not None and state.endpoint(Role.TARGET, envelope.conversation) is None:
        say_no_peer(state, home, Role.TARGET, envelope.conversation, body_of_loss(state))


def body_of_loss(state: Partition) -> bytes:
    """The Error of a conversation that may have missed a record which was passed over."""
    return lost_body(state.lost_from, state.lost_to) if state.lost_to else ACKED_LOST_BODY


def say_no_peer(state: Partition, to: Address, role: Role, conversation: bytes, body: bytes = NO_PEER_BODY) -> None:
    """Send NO_PEER: the side `role` of the conversation has no endpoint here."""
    stream = state.stream_to(to)
    prefix = stream.head(Kind.NO_PEER, role) + conversation
    stream.push(Run(prefix, conversation, NO_SEQUENCE, _NO_PEER_SUFFIX, [body]))


def on_answer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """NOTICE, WRITER_CLOSED: another partition's answer about a session's writer; kept for the session."""
    detail = envelope.suffix.detail
    if isinstance(detail, Notice | WriterClosed):
        state.keep_answer(detail)


def opener_of(envelope: Envelope) -> bytes:
    """Writer id that began the conversation of this BEGIN or FIRST.

    It differs from the record's writer when an owner sends for a session, or when the session changed its id after
    BEGIN.
    """
    detail = envelope.suffix.detail
    return detail.opener if isinstance(detail, Opened) else envelope.suffix.origin or envelope.writer


def is_opened_at_home(envelope: Envelope) -> bool:
    """Whether home sent this FIRST for a handler: the session that began the conversation may still send its own."""
    suffix = envelope.suffix
    return isinstance(suffix.detail, Opened) and suffix.origin is None and time_of_writer(envelope.writer) is None


def home_of(envelope: Envelope, state: Partition) -> Address | None:
    """Partition at which the record's session reads answers; None when the record names none, or a target sent it."""
    suffix = envelope.suffix
    if envelope.role is Role.TARGET:
        return None
    if envelope.kind in _AT_HOME:
        return state.address
    return suffix.home or (suffix.begin.home if suffix.begin else None)


def other(role: Role) -> Role:
    """The other side of a conversation."""
    return Role.TARGET if role is Role.INITIATOR else Role.INITIATOR


_NO_PEER_SUFFIX: Final = encode_suffix(Suffix(ERROR))
_AT_HOME: Final = (Kind.END_CALL, Kind.CONFIRM, Kind.REDIRECT)
"""Kinds that a session writes only to the home of a dialog."""
