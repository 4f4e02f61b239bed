"""How conversations end: by their own side, by the peer, before they began, or from above (protocol.md section 6).

A side ends by END CONVERSATION, plain or WITH ERROR, and tells its peer by END or ERROR in sequence. The peer's END is
judged by its place in this log alone. From above come END WITH CLEANUP, which drops an endpoint without telling the
peer, and FAIL, by which the broker gives a conversation up on both sides.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import NOTHING, Endpoint, Entry, Record, bytes_of
from konverse.dialog.state.named import How, Over
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import SENDING, Event, State, next_state
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.system_messages import END_DIALOG, ERROR, error_body
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import Cleanup, Fail, Withdraw
from konverse.schemas.wire.records import (
    ALL_SENT,
    FOLLOWED,
    NAMED,
    NO_SEQUENCE,
    REFUSED,
    End,
    Envelope,
    Kind,
    Suffix,
)

from .replies import answer_no_peer, other
from .writers import may_open

_CALL_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
_HOW: Final = {State.DISCONNECTED_INBOUND: How.BEHIND_PEER, State.ERROR: How.BEHIND_ERROR}


def on_end_call(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END CONVERSATION of a session, at its home; a body is the Error document of WITH ERROR."""
    endpoint = state.endpoint(envelope.role, envelope.conversation)
    if endpoint is not None and endpoint.committed is not State.DISCONNECTED_OUTBOUND:
        # M92 holds for its own END_CALL alone: an heir, an owner and a transaction are other writers
        end_endpoint(state, endpoint, record[0] or None, ALL_SENT * (envelope.writer == endpoint.opener))


def call_end(state: Partition, last: Envelope) -> None:
    """Ask home to end the initiator's side behind its last message, which is accepted here (flag LAST of a batch row).

    Home answers with END, which arrives here behind every message that was accepted together with that one.
    """
    home = last.suffix.home if last.suffix.begin is None else last.suffix.begin.home
    if last.role is not Role.INITIATOR or home is None:
        return
    stream = state.stream_to(home)
    prefix = stream.head(Kind.END_CALL, Role.INITIATOR) + last.conversation
    stream.push(Run(prefix, last.conversation, NO_SEQUENCE, _CALL_SUFFIX, [None]))


def end_endpoint(state: Partition, endpoint: Endpoint, error_body: bytes | None, flags: int = 0) -> None:
    """End this side: discard what it has not read (behaviour 109) and tell the peer, in sequence."""
    discard(state, endpoint)
    push_end(state, endpoint, error_body, flags)
    how = _HOW.get(endpoint.committed, How.ENDED if error_body is None else How.FAILED)
    state.named.end((endpoint.role, endpoint.conversation), how, state.now_ms)
    endpoint.committed = next_state(endpoint.committed, Event.END)
    if endpoint.committed is State.CLOSED:
        state.forget(endpoint)


def discard(state: Partition, endpoint: Endpoint) -> None:
    """Drop everything that waits at an endpoint that ends, its timer too; its lifetime stays."""
    state.touch(endpoint)
    state.statistics.discarded += len(endpoint.queue)
    state.unread -= len(endpoint.queue)
    state.unread_bytes -= bytes_of(endpoint.queue)
    state.endings += 1
    endpoint.queue = NOTHING
    endpoint.urgent = ()
    endpoint.clock = None if endpoint.clock is None else endpoint.clock.lifetime
    state.shut(endpoint)


def push_end(state: Partition, endpoint: Endpoint, error_body: bytes | None, flags: int) -> None:
    """Send END, or ERROR with `error_body`, in sequence; it names how far each writer was received."""
    here, stream = state.address, endpoint.stream
    named = endpoint.role is Role.INITIATOR and (endpoint.role, endpoint.conversation) in state.named.living
    received = tuple((lane.writer.id, lane.last) for lane in endpoint.lanes()[:END_WRITERS_MAX])
    detail = End(endpoint.opener, here if endpoint.role is Role.INITIATOR else stream.address, received)
    kind = Kind.END if error_body is None else Kind.ERROR
    home = None if endpoint.role is Role.INITIATOR else here
    suffix = Suffix(END_DIALOG if error_body is None else ERROR, home=home, detail=detail)
    stream.push(
        Run(
            stream.head(kind, endpoint.role, flags | NAMED * named) + endpoint.conversation,
            endpoint.key or endpoint.conversation,
            endpoint.sent,
            encode_suffix(suffix),
            [error_body],
        )
    )


def fail(state: Partition, endpoint: Endpoint, offset: int, body: bytes) -> None:
    """Fail a conversation on both sides: each gets an Error; messages accepted before can still be received.

    This side lives on until its application ends it, and sends END then.
    """
    push_end(state, endpoint, body, FOLLOWED)
    peer_ends(state, endpoint, (offset, ERROR, body, state.now_ms), failed=True)


def on_end(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END or ERROR of the peer: judged by its place in this log alone (invariant I9)."""
    role = other(envelope.role)
    endpoint = state.endpoint(role, envelope.conversation)
    detail = envelope.suffix.detail
    if not isinstance(detail, End):
        state.statistics.malformed += 1
        return
    if endpoint is not None and _answers_former_end(state, endpoint, envelope, detail):
        state.statistics.undeliverable += 1
        return
    if not envelope.flags & (REFUSED | FOLLOWED):  # about a BEGIN, not this conversation; or not the last word
        state.named.hear((role, envelope.conversation))
    if endpoint is None:
        _end_of_unknown(state, role, envelope, detail)
        return
    if envelope.flags & REFUSED and endpoint.opener != detail.opener:
        return  # somebody else opened it, and was not refused
    failed = envelope.kind is Kind.ERROR
    message_type = ERROR if failed else envelope.suffix.message_type
    peer_ends(state, endpoint, (offset, message_type, *record), failed=failed)


def _answers_former_end(state: Partition, endpoint: Endpoint, envelope: Envelope, detail: End) -> bool:
    """Whether an END answers the END of a former conversation with the id of this one.

    Only the answer of a target has no number. It names the opener of the END that it answers, and this side awaits an
    answer only when it has ended.
    """
    if (envelope.kind, envelope.role, envelope.sequence) != (Kind.END, Role.TARGET, NO_SEQUENCE):
        return False
    # a side that moved before its first message left has its owner as opener (`relocation.on_install`)
    of_this_one = endpoint.opener == detail.opener or endpoint.index in state.moves.arrivals
    awaited = endpoint.committed is State.DISCONNECTED_OUTBOUND and of_this_one
    return not (awaited or envelope.flags & REFUSED)


def on_no_peer(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """NO_PEER: the peer does not live there; an Error, and the peer's end, for this side. It is never answered.

    Two kinds of NO_PEER are about a former conversation with the id and have no effect: the answer to an END, for a
    side that has not ended, and the answer to a message, for a target that has sent no message.
    """
    role = other(envelope.role)
    endpoint = state.endpoint(role, envelope.conversation)
    if endpoint is None:
        meant = False
    elif envelope.flags & FOLLOWED:
        meant = role is Role.INITIATOR or endpoint.sent > 0
    else:
        meant = endpoint.committed is State.DISCONNECTED_OUTBOUND
    if not envelope.flags & FOLLOWED and (meant or endpoint is None):
        state.named.hear((role, envelope.conversation))
    if endpoint is None or not meant:
        state.statistics.undeliverable += 1
        return
    peer_ends(state, endpoint, (offset, ERROR, *record), failed=True)


def peer_ends(state: Partition, endpoint: Endpoint, entry: Entry, *, failed: bool) -> None:
    """Apply the peer's end; only the first one counts."""
    if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
        state.statistics.undeliverable += 1
        return
    state.touch(endpoint)
    endpoint.committed = next_state(endpoint.committed, Event.PEER_FAILED if failed else Event.PEER_ENDED)
    state.shut(endpoint)
    state.tell_end(endpoint)
    if endpoint.committed is State.CLOSED:
        state.forget(endpoint)
        return
    if failed:
        _put_error(state, endpoint, entry)
    else:
        endpoint.received += 1
        state.enqueue(endpoint, entry)


def outlive(state: Partition, endpoint: Endpoint, entry: Entry) -> None:
    """Fail this side because its lifetime is over, also when its peer has ended (behaviour 123)."""
    if endpoint.committed is State.DISCONNECTED_INBOUND:
        state.touch(endpoint)
        endpoint.committed = next_state(endpoint.committed, Event.PEER_FAILED)
        _put_error(state, endpoint, entry)
    else:
        peer_ends(state, endpoint, entry, failed=True)


def _put_error(state: Partition, endpoint: Endpoint, entry: Entry) -> None:
    """Queue an Error in front of unread messages (behaviour 115)."""
    endpoint.urgent = (*endpoint.urgent, entry)
    if not endpoint.queue:
        state.ready.append(endpoint)


def _end_of_unknown(state: Partition, role: Role, envelope: Envelope, detail: End) -> None:
    """END or ERROR for a side that does not live here. A target's is answered by END, and its FIRST will be refused.

    An ERROR with FOLLOWED is not answered, because its sender's END will be: each conversation gets one answer, and
    that is the last word of the target.
    """
    if role is not Role.TARGET:
        if envelope.sequence == NO_SEQUENCE:  # such an answer: nobody waits for ours
            state.statistics.undeliverable += 1
        else:
            answer_no_peer(state, envelope)
        return
    state.cleaned.pop(envelope.conversation, None)  # the initiator has ended, and need not be told
    if envelope.flags & NAMED:
        state.named.remember((role, envelope.conversation), Over(How.NEVER_BEGUN, state.now_ms))
        if not envelope.flags & FOLLOWED:
            state.named.hear((role, envelope.conversation))
    if envelope.kind is Kind.ERROR and envelope.flags & REFUSED:
        return  # its BEGIN named an ended id: `over` remembers it, and no one waits for an answer
    if envelope.flags & ALL_SENT:
        if state.tombstones.get(envelope.conversation) == detail.opener:
            del state.tombstones[envelope.conversation]
    elif may_open(state, detail.opener):
        state.remember_tombstone(envelope.conversation, detail.opener)
    if not envelope.flags & FOLLOWED:
        answer_end(state, envelope, detail)


def answer_end(state: Partition, envelope: Envelope, detail: End) -> None:
    """Answer END for a target that does not live here, so that the initiator can be forgotten."""
    stream = state.stream_to(detail.home)
    answer = Suffix(END_DIALOG, detail=End(detail.opener, detail.home))
    prefix = stream.head(Kind.END, Role.TARGET, envelope.flags & REFUSED) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(answer), [None]))


def clean_up(state: Partition, operation: Cleanup) -> None:
    """CLEANUP: drop the endpoint, its unread messages, and those of its outputs that may not have arrived (120).

    If the peer has ended, it waits for the END of this side to be forgotten; it gets END and nothing else.
    """
    endpoint = state.at(operation.endpoint, "ends")
    if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
        end_endpoint(state, endpoint, None)
        return
    discard(state, endpoint)
    endpoint.stream.take_back(endpoint.role, endpoint.conversation)
    if endpoint.role is Role.TARGET:
        state.remember_cleaned(endpoint.conversation, endpoint.stream.address)
    state.named.end((endpoint.role, endpoint.conversation), How.CLEANED_UP, state.now_ms)
    endpoint.committed = State.CLOSED
    state.forget(endpoint)


def withdraw(state: Partition, operation: Withdraw) -> None:
    """WITHDRAW: of a side that ended WITH ERROR only the Error leaves (behaviour 111).

    If the peer had ended before, the side is forgotten already and nothing is left to withdraw.
    """
    endpoint = state.find(operation.endpoint)
    if endpoint is not None and endpoint.committed is State.DISCONNECTED_OUTBOUND:
        endpoint.stream.take_back(endpoint.role, endpoint.conversation, ends=False)


def give_up(state: Partition, operation: Fail) -> None:
    """FAIL: an open conversation fails on both sides; messages accepted before can still be received."""
    endpoint = state.at(operation.endpoint, "ends")
    if endpoint.committed in SENDING:
        fail(state, endpoint, state.ingest_to, error_body(operation.code, operation.description))
