"""What a partition answers to records that it does not accept, and what it keeps of others' answers."""

from __future__ import annotations

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.identifiers import Address
from konverse.schemas.records import (
    NO_SEQUENCE,
    REFUSED,
    Bounce,
    BounceReason,
    End,
    Envelope,
    Kind,
    Notice,
    Role,
    Suffix,
    WriterClosed,
)

from .endpoint import Record
from .outbox import Run
from .partition import Partition


def refuse_closed(state: Partition, envelope: Envelope, record: Record, closing: WriterClosed) -> None:
    """A record of a closed writer is answered once and never accepted (protocol.md section 5)."""
    if envelope.kind is Kind.MESSAGE:
        bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
        return
    if envelope.kind is Kind.BEGIN and envelope.suffix.begin is not None:
        begin = envelope.suffix.begin
        stream = state.stream_to(begin.target)
        suffix = Suffix(END_DIALOG, detail=End(envelope.writer, begin.home))
        prefix = stream.head(Kind.END, Role.INITIATOR, REFUSED) + envelope.conversation
        stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(suffix), [None]))
    home = home_of(envelope, state)
    if home is not None:
        answer(state, home, Kind.WRITER_CLOSED, closing)


def answer(state: Partition, home: Address | None, kind: Kind, said: Notice | WriterClosed) -> None:
    """Tell the home of a session something about a writer."""
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    prefix = stream.head(kind, Role.TARGET) + said.writer
    stream.push(Run(prefix, said.writer, NO_SEQUENCE, encode_suffix(Suffix(detail=said)), [None]))


def bounce(state: Partition, envelope: Envelope, record: Record, reason: BounceReason) -> None:
    """Carry a message back to the mailbox of its writer, at the home that the record names."""
    state.statistics.bounced += 1
    home = home_of(envelope, state)
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    detail = Bounce(envelope.suffix.origin or envelope.writer, envelope.counter, state.address, reason)
    suffix = encode_suffix(Suffix(envelope.suffix.message_type, detail=detail))
    prefix = stream.head(Kind.BOUNCE, other(envelope.role)) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, suffix, [record[0]]))


def hear_bounce(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """BOUNCE: a record that came back goes to the mailbox of its writer."""
    detail = envelope.suffix.detail
    if isinstance(detail, Bounce):
        state.keep_bounce(detail, envelope.suffix.message_type)


def hear_answer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """NOTICE, WRITER_CLOSED: what a partition says of a session's writer is kept for the session."""
    detail = envelope.suffix.detail
    if isinstance(detail, Notice | WriterClosed):
        state.keep_answer(detail)


def home_of(envelope: Envelope, state: Partition) -> Address | None:
    """Where its sender reads answers; None when the record does not say."""
    suffix = envelope.suffix
    if envelope.kind is Kind.END_CALL:
        return state.address
    return suffix.home or (suffix.begin.home if suffix.begin else None)


def other(role: Role) -> Role:
    """The other side of a conversation."""
    return Role.TARGET if role is Role.INITIATOR else Role.INITIATOR
