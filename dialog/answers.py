"""What a partition answers to records that it does not accept, and what it keeps of others' answers."""

from __future__ import annotations

from typing import Final

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.identifiers import Address
from konverse.schemas.records import NO_SEQUENCE, Bounce, BounceReason, End, Envelope, Kind, Role, Suffix
from konverse.schemas.system_messages import NO_PEER_BODY

from .endpoint import Record
from .outbox import Run
from .partition import Partition


def refuse_closed(state: Partition, envelope: Envelope, record: Record) -> None:
    """A record of a closed writer is answered once and never accepted."""
    if envelope.kind in (Kind.MESSAGE, Kind.TRANSACTION):
        bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    elif envelope.kind is Kind.BEGIN and envelope.suffix.begin is not None:
        begin = envelope.suffix.begin
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
    stream, suffix = state.stream_to(home), envelope.suffix
    detail = Bounce(envelope.writer, envelope.counter, state.address, reason)
    back = encode_suffix(Suffix(suffix.message_type, origin=suffix.origin, detail=detail))
    prefix = stream.head(Kind.BOUNCE, other(envelope.role)) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, envelope.sequence, back, [record[0]]))


def answer_no_peer(state: Partition, envelope: Envelope) -> None:
    """A target talks to an initiator that does not live here: the target is told. Nobody answers that."""
    state.statistics.strays += 1
    to = envelope.suffix.home
    if to is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(to)
    prefix = stream.head(Kind.NO_PEER, Role.INITIATOR) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, _NO_PEER_SUFFIX, [NO_PEER_BODY]))


def hear_close_writer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CLOSE_WRITER: the conversation field names the writer that sends nothing more."""
    state.close_writer(envelope.conversation)


def opener_of(envelope: Envelope) -> bytes:
    """The session that opens a conversation by this BEGIN or FIRST, also when an owner sends it for the session."""
    return envelope.suffix.origin or envelope.writer


def home_of(envelope: Envelope) -> Address | None:
    """Where the session that it comes from reads answers; None when the record does not say, or a target sent it."""
    suffix = envelope.suffix
    if envelope.role is Role.TARGET:
        return None
    return suffix.home or (suffix.begin.home if suffix.begin else None)


def other(role: Role) -> Role:
    """The other side of a conversation."""
    return Role.TARGET if role is Role.INITIATOR else Role.INITIATOR


_NO_PEER_SUFFIX: Final = encode_suffix(Suffix(ERROR))
