"""Bounced messages at their home: kept, confirmed, redirected (protocol.md section 3); and GIVE_BACK (section 7.11).

Two rules. A message leaves the mailbox once: by decision of its session or, when that session is closed here, of any
session. And REDIRECT moves the message: one step of the fold takes it out of the mailbox and puts it into the outbox.
So it is in exactly one of the two, whichever process crashes and whatever is sent again.

GIVE_BACK is for a router that redirects a conversation: the router receives none of the messages. In one step the
target sends a note that names their recipient, and then the messages, in order, to the mailbox at their home, and ends.
Messages that arrive later bounce after these, as on every returning dialog.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Endpoint, Record
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, TRANSITIONS, Event, State, next_state
from konverse.schemas.errors import WAY_ON, PartitionHalted
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import GiveBack
from konverse.schemas.wire.records import (
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
from .heirs import is_behind

_KEPT: Final = RETURNING | NAMED
"""Flags of a REDIRECT that the redirected message keeps."""


def on_bounce(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BOUNCE: puts a message into the mailbox of its session. Messages dropped from a full mailbox are counted."""
    suffix = envelope.suffix
    if isinstance(suffix.detail, Bounce):
        session, conversation = suffix.origin or suffix.detail.writer, envelope.conversation
        endpoint = state.endpoint(Role.INITIATOR, conversation)
        key = endpoint.key if endpoint is not None else _key_of_stub(state, conversation)
        what = conversation, envelope.sequence, suffix.message_type, record[0], key
        bounced = Bounced(session, suffix.detail, *what)
        state.statistics.undeliverable += state.mailbox.keep(bounced)
        if state.on_answer is not None:
            state.on_answer(bounced)


def _key_of_stub(state: Partition, conversation: bytes) -> bytes | None:
    """Key of a conversation whose initiator has moved away; its mailbox stays here."""
    chain = state.moves.stubs.get((Role.INITIATOR, conversation), {})
    return next((stub.key for stub in chain.values()), None)


def on_confirm(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CONFIRM: removes a bounced message from the mailbox, because its session does not need it any more."""
    bounced = _asked_for(state, envelope)
    if bounced is not None:
        state.mailbox.take(bounced.id)


def on_redirect(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """REDIRECT: sends the message on another conversation that has its home here and may still send.

    The flag FIRST says that the session has sent nothing on that conversation, and will send nothing before it knows
    that this REDIRECT was carried out. Mailboxes do not move, so a conversation that has moved here cannot take a
    message out of one.
    """
    bounced = _asked_for(state, envelope)
    endpoint = state.endpoint(Role.INITIATOR, envelope.conversation)
    if bounced is None or endpoint is None or endpoint.committed not in SENDING or not bounced.message_type:
        return  # without a type it is a transaction that came back, not a message
    if endpoint.index in state.moves.arrivals:
        return
    state.mailbox.take(bounced.id)
    _send(state, endpoint, envelope, bounced)


def _asked_for(state: Partition, envelope: Envelope) -> Bounced | None:
    """The bounce that a record names; None when it is gone, or the record's writer may not decide about it."""
    detail = envelope.suffix.detail
    bounced = state.mailbox.entries.get(detail) if isinstance(detail, BounceId) else None
    if bounced is None or bounced.session == envelope.writer:
        return bounced
    writer = state.writers.get(bounced.session)
    return bounced if writer is not None and writer.closed_at is not None else None


def _send(state: Partition, endpoint: Endpoint, envelope: Envelope, bounced: Bounced) -> None:
    """Send a redirected message. It names the requesting session as origin: a bounce goes to that session."""
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
    endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.SENT)
    prefix = stream.head(Kind.MESSAGE, Role.INITIATOR, flags) + conversation
    key = endpoint.key or conversation
    stream.push(Run(prefix, key, endpoint.sent, encode_suffix(suffix), [bounced.body]))
    if endpoint.sent != NO_SEQUENCE:
        endpoint.sent += 1


def give_back(state: Partition, operation: GiveBack) -> None:
    """GIVE_BACK: send the note, the unreceived messages and END to the home of the conversation."""
    index = operation.endpoint
    endpoint = state.at(index, "gives back messages of")
    if endpoint.role is not Role.TARGET:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} gives back messages of endpoint "
            f"{index}, which is not a target: the journal was changed. {WAY_ON}"
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
    """Send one BOUNCE of a GIVE_BACK.

    A usual bounce is identified by writer and counter of its record; this one by its conversation and `number`.
    """
    message_type, body, sequence = message
    state.statistics.bounced += 1
    stream, conversation = endpoint.stream, endpoint.conversation
    detail = Bounce(conversation, number, state.address, reason)
    suffix = encode_suffix(Suffix(message_type, origin=endpoint.opener, detail=detail))
    prefix = stream.head(Kind.BOUNCE, Role.TARGET) + conversation
    stream.push(Run(prefix, conversation, sequence, suffix, [body]))
