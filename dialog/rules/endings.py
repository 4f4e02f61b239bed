"""How one side of a conversation ends: by itself, by its peer, before it began, or by force (protocol.md section 6).

A side ends by END CONVERSATION, plain or WITH ERROR, and notifies its peer by END or ERROR, in sequence. The peer's END
is judged by its place in this log alone. By force means END WITH CLEANUP, which drops an endpoint without notifying the
peer, and FAIL, by which an owner fails a conversation on both sides.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import NOTHING, Endpoint, Entry, Record, bytes_of
from konverse.dialog.state.named import How, Over
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import RECEIVING, SENDING, TRANSITIONS, Event, State, next_state
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.system_messages import END_DIALOG, ERROR, NO_PEER_BODY, error_body
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.operations import Cleanup, Fail, Withdraw
from konverse.schemas.wire.records import NAMED, NO_SEQUENCE, REFUSED, End, Envelope, Kind, Suffix

from .heirs import may_open
from .replies import answer_no_peer, follows_missed_replies, other

_CALL_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
_HOW: Final = {State.DISCONNECTED_INBOUND: How.AFTER_PEER, State.ERROR: How.AFTER_ERROR}


def on_end_call(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END CONVERSATION of a session, at its home; a body is the Error document of WITH ERROR."""
    endpoint = state.endpoint(envelope.role, envelope.conversation)
    if endpoint is not None and endpoint.committed is not State.DISCONNECTED_OUTBOUND:
        end_endpoint(state, endpoint, record[0] or None)


def call_end(state: Partition, last: Envelope) -> None:
    """Ask home to end the initiator's side after its last message, which is accepted here (flag LAST of a batch row).

    Home then sends END, which arrives here after every message that was accepted together with that one.
    """
    home = last.suffix.home if last.suffix.begin is None else last.suffix.begin.home
    if last.role is not Role.INITIATOR or home is None:
        return
    stream = state.stream_to(home)
    prefix = stream.head(Kind.END_CALL, Role.INITIATOR) + last.conversation
    stream.push(Run(prefix, last.conversation, NO_SEQUENCE, _CALL_SUFFIX, [None]))


def end_endpoint(state: Partition, endpoint: Endpoint, error_body: bytes | None) -> None:
    """End this side: discard its unread messages (behaviour 109) and notify the peer, in sequence."""
    discard(state, endpoint)
    push_end(state, endpoint, error_body)
    how = _HOW.get(endpoint.committed, How.ENDED if error_body is None else How.FAILED)
    state.named.end((endpoint.role, endpoint.conversation), how, state.now_ms)
    endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.END)
    if endpoint.committed is State.CLOSED:
        state.forget(endpoint)


def discard(state: Partition, endpoint: Endpoint) -> None:
    """Drop everything that waits at an endpoint that ends, and its timer; its lifetime stays."""
    state.touch(endpoint)
    state.statistics.discarded += len(endpoint.queue)
    state.unread -= len(endpoint.queue)
    state.unread_bytes -= bytes_of(endpoint.queue)
    state.endings += 1
    endpoint.queue = NOTHING
    endpoint.urgent = ()
    endpoint.clock = None if endpoint.clock is None else endpoint.clock.lifetime
    state.shut(endpoint)


def push_end(state: Partition, endpoint: Endpoint, error_body: bytes | None) -> None:
    """Send END, or ERROR with `error_body`, in sequence; it names the last counter received from each writer."""
    here, stream = state.address, endpoint.stream
    named = endpoint.role is Role.INITIATOR and state.is_named(endpoint)
    received = tuple((lane.writer.id, lane.last) for lane in endpoint.lanes()[:END_WRITERS_MAX])
    detail = End(endpoint.opener, here if endpoint.role is Role.INITIATOR else stream.address, received)
    kind = Kind.END if error_body is None else Kind.ERROR
    home = None if endpoint.role is Role.INITIATOR else here
    suffix = Suffix(END_DIALOG if error_body is None else ERROR, home=home, detail=detail)
    stream.push(
        Run(
            stream.head(kind, endpoint.role, NAMED * named) + endpoint.conversation,
            endpoint.key or endpoint.conversation,
            endpoint.sent,
            encode_suffix(suffix),
            [error_body],
        )
    )


def fail(state: Partition, endpoint: Endpoint, offset: int, body: bytes) -> None:
    """Fail a conversation on both sides: each gets an Error; messages accepted before can still be received."""
    push_end(state, endpoint, body)
    expect_first_of_home(state, endpoint)
    peer_ends(state, endpoint, (offset, ERROR, body, state.now_ms), failed=True)


def expect_first_of_home(state: Partition, endpoint: Endpoint) -> None:
    """Let a target that ends by itself refuse the FIRST that its home may still send (M289)."""
    if endpoint.role is Role.TARGET:
        refuse_first_of_home(state, endpoint.conversation)


def refuse_first_of_home(state: Partition, conversation: bytes) -> None:
    """Refuse the FIRST of home for a target that is gone. A tombstone against the session's FIRST is kept instead."""
    if conversation not in state.tombstones:
        state.remember_tombstone(conversation, conversation)


def forget_first_of_home(state: Partition, conversation: bytes) -> bool:
    """Expect no FIRST of home: it has come, or never will. Returns whether `expect_first_of_home` had expected one."""
    expected = state.tombstones.get(conversation) == conversation
    if expected:
        del state.tombstones[conversation]
    return expected


def on_end(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END or ERROR of the peer: judged by its place in this log alone (invariant I9)."""
    role = other(envelope.role)
    endpoint = state.endpoint(role, envelope.conversation)
    detail = envelope.suffix.detail
    if not isinstance(detail, End):
        state.statistics.malformed += 1
        return
    if endpoint is None:
        _end_of_unknown(state, role, envelope, detail)
        return
    if envelope.flags & REFUSED and endpoint.opener != detail.opener:
        return  # another writer opened it, and was not refused
    if _is_of_a_loss(envelope):
        if endpoint.index in state.beginning and endpoint.committed is not State.DISCONNECTED_OUTBOUND:
            return  # the peer has not received the conversation's first record yet
        expect_first_of_home(state, endpoint)
    elif role is Role.TARGET:
        forget_first_of_home(state, envelope.conversation)
    if envelope.kind is Kind.END and endpoint.committed in RECEIVING and follows_missed_replies(endpoint, envelope):
        record = (NO_PEER_BODY, record[1])
        failed = True
    else:
        failed = envelope.kind is Kind.ERROR
    message_type = ERROR if failed else envelope.suffix.message_type
    peer_ends(state, endpoint, (offset, message_type, *record), failed=failed)


def _is_of_a_loss(envelope: Envelope) -> bool:
    """Whether a place that the endpoint has left wrote this ERROR because of a LOST there. The peer has not ended."""
    detail = envelope.suffix.detail
    unnumbered = envelope.kind is Kind.ERROR and envelope.sequence == NO_SEQUENCE
    return unnumbered and isinstance(detail, End) and detail.opener == envelope.writer


def on_no_peer(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """NO_PEER: the peer has no endpoint. For this side that is an Error and the peer's end. It is never answered."""
    endpoint = state.endpoint(other(envelope.role), envelope.conversation)
    if endpoint is None:
        state.statistics.undeliverable += 1
        return
    peer_ends(state, endpoint, (offset, ERROR, *record), failed=True)


def peer_ends(state: Partition, endpoint: Endpoint, entry: Entry, *, failed: bool) -> None:
    """Apply the peer's end; only the first one has an effect."""
    if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
        state.statistics.undeliverable += 1
        return
    state.touch(endpoint)
    endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.PEER_FAILED if failed else Event.PEER_ENDED)
    state.shut(endpoint)
    state.report_end(endpoint)
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
        endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.PEER_FAILED)
        _put_error(state, endpoint, entry)
    else:
        if endpoint.committed is not State.ERROR:
            expect_first_of_home(state, endpoint)
        peer_ends(state, endpoint, entry, failed=True)


def _put_error(state: Partition, endpoint: Endpoint, entry: Entry) -> None:
    """Queue an Error in front of unread messages (behaviour 115)."""
    endpoint.urgent = (*endpoint.urgent, entry)
    if not endpoint.queue:
        state.ready.append(endpoint)


def _end_of_unknown(state: Partition, role: Role, envelope: Envelope, detail: End) -> None:
    """END or ERROR for a side without an endpoint. For a target the answer is END, and a later FIRST is refused."""
    if role is not Role.TARGET:
        if envelope.sequence == NO_SEQUENCE:  # it is itself such an answer, and gets none
            state.statistics.undeliverable += 1
        else:
            answer_no_peer(state, envelope)
        return
    state.cleaned.pop(envelope.conversation, None)  # the initiator has ended, and need not be notified
    forget_first_of_home(state, envelope.conversation)
    if envelope.flags & NAMED:
        state.named.remember((role, envelope.conversation), Over(How.NEVER_BEGUN, state.now_ms))
    if envelope.kind is Kind.ERROR and envelope.flags & REFUSED:
        return  # its BEGIN named an ended id, which `named.over` remembers; no answer is awaited
    if may_open(state, detail.opener):
        state.remember_tombstone(envelope.conversation, detail.opener)
    answer_end(state, envelope, detail)


def answer_end(state: Partition, envelope: Envelope, detail: End) -> None:
    """Answer END for a target without an endpoint, so that the initiator can be forgotten."""
    stream = state.stream_to(detail.home)
    answer = Suffix(END_DIALOG, detail=End(detail.opener, detail.home))
    prefix = stream.head(Kind.END, Role.TARGET, envelope.flags & REFUSED) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(answer), [None]))


def clean_up(state: Partition, operation: Cleanup) -> None:
    """CLEANUP: drop the endpoint, its unread messages, and those of its outputs that may not have arrived (120).

    A peer that has ended can be forgotten only after the END of this side: it gets END and nothing else.
    """
    endpoint = state.at(operation.endpoint, "ends")
    if endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR):
        end_endpoint(state, endpoint, None)
        return
    discard(state, endpoint)
    endpoint.stream.take_back(endpoint.role, endpoint.conversation)
    if endpoint.role is Role.TARGET:
        state.remember_cleaned(endpoint.conversation, endpoint.stream.address)
    expect_first_of_home(state, endpoint)
    state.named.end((endpoint.role, endpoint.conversation), How.CLEANED_UP, state.now_ms)
    endpoint.committed = State.CLOSED
    state.report_end(endpoint)
    state.forget(endpoint)


def withdraw(state: Partition, operation: Withdraw) -> None:
    """WITHDRAW: a side that ended WITH ERROR sends only the Error, and withdraws its other outputs (behaviour 111).

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
