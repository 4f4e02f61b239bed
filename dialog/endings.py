"""How conversations end: by a call of their own side, by the peer, before they began (protocol.md section 6)."""

from __future__ import annotations

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.envelope import encode_suffix
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.records import NO_SEQUENCE, End, Envelope, Kind, Role, Suffix

from .answers import other
from .endpoint import NOTHING, Endpoint, Record
from .messages import enqueue
from .outbox import Run, Stream
from .partition import Partition
from .states import Event, State, next_state


def hear_end_call(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END CONVERSATION of a session, at home; a body is the Error document of WITH ERROR."""
    endpoint = state.endpoint(envelope.role, envelope.conversation)
    if endpoint is not None and endpoint.state is not State.DISCONNECTED_OUTBOUND:
        end_endpoint(state, endpoint, record[0] or None)


def end_endpoint(state: Partition, endpoint: Endpoint, error_body: bytes | None) -> None:
    """This side ends: what it did not read is discarded (behaviour 109), the peer is told, in sequence."""
    state.touch(endpoint)
    state.statistics.discarded += len(endpoint.queue)
    state.unread -= len(endpoint.queue)
    state.endings += 1
    endpoint.queue = NOTHING
    endpoint.error = None
    state.shut(endpoint)
    home = state.address if endpoint.role is Role.INITIATOR else endpoint.stream.address
    received = tuple((lane.writer.id, lane.last) for lane in endpoint.lanes()[:END_WRITERS_MAX])
    _push_end(endpoint.stream, endpoint, End(endpoint.opener, home, received), error_body)
    endpoint.state = next_state(endpoint.state, Event.END)
    if endpoint.state is State.CLOSED:
        state.forget(endpoint)


def _push_end(stream: Stream, endpoint: Endpoint, detail: End, error_body: bytes | None) -> None:
    kind = Kind.END if error_body is None else Kind.ERROR
    suffix = Suffix(END_DIALOG if error_body is None else ERROR, detail=detail)
    stream.push(
        Run(
            stream.head(kind, endpoint.role) + endpoint.conversation,
            endpoint.key or endpoint.conversation,
            endpoint.sent,
            encode_suffix(suffix),
            [error_body],
        )
    )


def hear_end(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
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
    failed = envelope.kind is Kind.ERROR
    if endpoint.state in (State.DISCONNECTED_INBOUND, State.ERROR):
        state.statistics.undeliverable += 1
        return
    state.touch(endpoint)
    endpoint.state = next_state(endpoint.state, Event.PEER_FAILED if failed else Event.PEER_ENDED)
    state.shut(endpoint)
    if endpoint.state is State.CLOSED:
        state.forget(endpoint)
        return
    entry = (offset, envelope.suffix.message_type, *record)
    if failed:
        endpoint.error = entry  # overtakes what is unread (behaviour 115)
        if not endpoint.queue:
            state.ready.append(endpoint)
    else:
        endpoint.received += 1
        enqueue(state, endpoint, entry)


def _end_of_unknown(state: Partition, role: Role, envelope: Envelope, detail: End) -> None:
    """END for a target that never was: answer END, and refuse the FIRST that may still come."""
    if role is not Role.TARGET:
        state.statistics.undeliverable += 1
        return
    opener = state.writers.get(detail.opener)
    if opener is None or opener.closed_at is None:
        state.remember_tombstone(envelope.conversation, detail.opener)
    answer_end(state, envelope.conversation, detail)


def answer_end(state: Partition, conversation: bytes, detail: End) -> None:
    """END for a target that does not live, so that the initiator can be forgotten."""
    stream = state.stream_to(detail.home)
    answer = Suffix(END_DIALOG, detail=End(detail.opener, detail.home))
    prefix = stream.head(Kind.END, Role.TARGET) + conversation
    stream.push(Run(prefix, conversation, NO_SEQUENCE, encode_suffix(answer), [None]))
