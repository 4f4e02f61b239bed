"""What becomes of bounced messages at their home: kept, confirmed, redirected (protocol.md section 3).

Two rules. A message leaves the mailbox once, by the word of its session or, when that is closed here, of whoever says
it. And REDIRECT moves it: the same step of the fold takes it out of the mailbox and puts it into the outbox, so it is
in one of the two, whoever crashes and whatever is sent again.

GIVE_BACK: a target ends, and who sent what it has not received gets that back (protocol.md section 7.11).

A router that redirects a conversation is not the one for which its messages are. So it receives none of them: in one
step they go back to the mailbox at their home, in order, behind a note that says where they belong, and the side ends.
What comes later comes back behind that, as that of every returning dialog does.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Endpoint, Record
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, Event, State, next_state
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import GiveBack
from konverse.schemas.wire.records import (
    ANEW,
    FIRST,
    NAMED,
    NO_SEQUENCE,
    RETURNING,
    Bounce,
    BounceId,
    BounceReason,
    Envelope,
    Kind,
    Opened,
    Suffix,
)

from .endings import end_endpoint
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


def give_back(state: Partition, operation: GiveBack) -> None:
    """The note, what was not received, and the end, to where the mailbox is."""
    index = operation.endpoint
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None or endpoint.role is not Role.TARGET:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} gives back what came to endpoint "
            f"{index}, where no target lives: the journal was changed. Nothing further is done with this partition"
        )
    note, number = (operation.message_type, operation.body, NO_SEQUENCE), endpoint.consumed
    _carry(state, endpoint, number, BounceReason.REDIRECTED, note)
    for sequence, (_, message_type, body, _) in enumerate(endpoint.queue, endpoint.consumed):
        if message_type != END_DIALOG:
            number += 1
            _carry(state, endpoint, number, BounceReason.GIVEN_BACK, (message_type, body, sequence))
    end_endpoint(state, endpoint, None)


def _carry(
    state: Partition, endpoint: Endpoint, number: int, reason: BounceReason, message: tuple[str, bytes | None, int]
) -> None:
    """A bounce is known by the record that came back; one of these by its conversation, and its number behind it."""
    message_type, body, sequence = message
    state.statistics.bounced += 1
    stream, conversation = endpoint.stream, endpoint.conversation
    detail = Bounce(conversation, number, state.address, reason)
    suffix = encode_suffix(Suffix(message_type, origin=endpoint.opener, detail=detail))
    prefix = stream.head(Kind.BOUNCE, Role.TARGET) + conversation
    stream.push(Run(prefix, conversation, sequence, suffix, [body]))
