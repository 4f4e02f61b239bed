"""What a partition answers to records that it does not accept, and what it keeps of others' answers."""

from __future__ import annotations

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.identifiers import Address
from konverse.schemas.records import NO_SEQUENCE, Bounce, BounceReason, End, Envelope, Kind, Role, Suffix

from .endpoint import FarStamp, Record
from .outbox import Run
from .partition import Partition


def refuse_closed(state: Partition, envelope: Envelope, record: Record) -> None:
    """A record of a closed writer is answered once and never accepted."""
    if envelope.kind is Kind.MESSAGE:
        bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    elif envelope.kind is Kind.BEGIN:
        refuse_begin(state, envelope)


def refuse_begin(state: Partition, envelope: Envelope) -> None:
    """The target learns that the conversation was not begun."""
    begin = envelope.suffix.begin
    if begin is not None:
        stream = state.stream_to(begin.target)
        suffix = Suffix(END_DIALOG, detail=End(envelope.writer, begin.home))
        prefix = stream.head(Kind.END, Role.INITIATOR) + envelope.conversation
        stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(suffix), [None]))


def bounce(state: Partition, envelope: Envelope, record: Record, reason: BounceReason) -> None:
    """Carry a message back to the mailbox of its writer, at the home that the record names."""
    state.statistics.bounced += 1
    home = home_of(envelope)
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    stamp = record[1]
    at = stamp.origin.at if isinstance(stamp, FarStamp) else state.address  # where its writer counts
    detail = Bounce(envelope.suffix.origin or envelope.writer, envelope.counter, at, reason)
    suffix = encode_suffix(Suffix(envelope.suffix.message_type, detail=detail))
    prefix = stream.head(Kind.BOUNCE, other(envelope.role)) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, suffix, [record[0]]))


def hear_bounce(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """BOUNCE: a record that came back goes to the mailbox of its writer."""
    detail = envelope.suffix.detail
    if isinstance(detail, Bounce):
        state.keep_bounce(detail, envelope.suffix.message_type)


def hear_close_writer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CLOSE_WRITER: the conversation field names the writer that sends nothing more."""
    state.close_writer(envelope.conversation)


def home_of(envelope: Envelope) -> Address | None:
    """Where its sender reads answers; None when the record does not say."""
    suffix = envelope.suffix
    return suffix.home or (suffix.begin.home if suffix.begin else None)


def other(role: Role) -> Role:
    """The other side of a conversation."""
    return Role.TARGET if role is Role.INITIATOR else Role.INITIATOR
