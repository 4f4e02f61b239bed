"""What becomes of bounced messages at their home: kept, confirmed, redirected (protocol.md section 3).

Two rules. A message leaves the mailbox once, by the word of its session or, when that is closed here, of whoever says
it. And REDIRECT moves it: the same step of the fold takes it out of the mailbox and puts it into the outbox, so it is
in one of the two, whoever crashes and whatever is sent again.
"""

from __future__ import annotations

from typing import Final

from konverse.schemas.envelope import encode_suffix
from konverse.schemas.records import (
    ANEW,
    FIRST,
    NAMED,
    NO_SEQUENCE,
    RETURNING,
    Bounce,
    BounceId,
    Envelope,
    Kind,
    Opened,
    Role,
    Suffix,
)

from .endpoint import Endpoint, Record
from .mailbox import Bounced
from .outbox import Run
from .partition import Partition
from .states import SENDING, Event, State, next_state
from .writers import is_behind

_KEPT: Final = RETURNING | NAMED | ANEW
"""Flags of a REDIRECT that the message gets."""


def hear_bounce(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BOUNCE: a message that came back goes to the mailbox of its session. When it is full, what goes is counted."""
    suffix = envelope.suffix
    if isinstance(suffix.detail, Bounce):
        session, conversation = suffix.origin or suffix.detail.writer, envelope.conversation
        endpoint = state.endpoint(Role.INITIATOR, conversation)
        key = endpoint.key if endpoint is not None else None
        what = conversation, envelope.sequence, suffix.message_type, record[0], key
        bounced = Bounced(session, suffix.detail, *what)
        state.statistics.undeliverable += state.mailbox.keep(bounced)
        if state.on_answer is not None:
            state.on_answer(bounced)


def hear_confirm(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CONFIRM: the session knows of its bounce, and nothing more is to be done about it."""
    bounced = _asked_for(state, envelope)
    if bounced is not None:
        state.mailbox.take(bounced.id)


def hear_redirect(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """REDIRECT: the message goes out on another conversation that has its home here, if that one still talks.

    With FIRST the session says that it has sent nothing on that conversation, and will not before it knows of this.
    Mailboxes do not move, so a conversation that has moved can take nothing out of one.
    """
    bounced = _asked_for(state, envelope)
    endpoint = state.endpoint(Role.INITIATOR, envelope.conversation)
    if bounced is None or endpoint is None or endpoint.committed not in SENDING or not bounced.message_type:
        return  # a transaction that came back is no message
    if endpoint.index in state.moves.arrivals:
        return
    state.mailbox.take(bounced.id)
    _send(state, endpoint, envelope, bounced)


def _asked_for(state: Partition, envelope: Envelope) -> Bounced | None:
    """The bounce that is named, when whoever names it may decide about it."""
    detail = envelope.suffix.detail
    bounced = state.mailbox.entries.get(detail) if isinstance(detail, BounceId) else None
    if bounced is None or bounced.session == envelope.writer:
        return bounced
    writer = state.writers.get(bounced.session)
    return bounced if writer is not None and writer.closed_at is not None else None


def _send(state: Partition, endpoint: Endpoint, envelope: Envelope, bounced: Bounced) -> None:
    """The message into the outbox. It names the session that asks, to which it comes back once more if it has to."""
    state.touch(endpoint)
    begin = state.beginning.pop(endpoint.index, None)
    opener = state.writers.get(endpoint.opener)
    opens = endpoint.opener == envelope.writer or (opener is not None and is_behind(state, opener, envelope.writer))
    if begin is None and endpoint.committed is State.STARTED_OUTBOUND and opens and envelope.flags & FIRST:
        begin = envelope.suffix.begin
    stream, conversation, flags = endpoint.stream, endpoint.conversation, envelope.flags & _KEPT
    suffix = Suffix(bounced.message_type, home=state.address, origin=envelope.writer)
    if begin is not None:
        begin = begin._replace(home=state.address, target=stream.address)
        opened = Opened(endpoint.opener) if endpoint.opener != envelope.writer else None
        suffix = suffix._replace(home=None, begin=begin, detail=opened)
        flags |= FIRST
    endpoint.committed = next_state(endpoint.committed, Event.SENT)
    prefix = stream.head(Kind.MESSAGE, Role.INITIATOR, flags) + conversation
    key = endpoint.key or conversation
    stream.push(Run(prefix, key, endpoint.sent, encode_suffix(suffix), [bounced.body]))
    if endpoint.sent != NO_SEQUENCE:
        endpoint.sent += 1
