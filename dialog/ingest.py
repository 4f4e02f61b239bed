"""Data records into state: who may be heard, and what each kind does (protocol.md section 3, `ingest`).

The usual record is the next one of a known writer on a known conversation and ends like the last one of that lane.
Its bytes are predicted and compared; nothing is parsed. Every other record is decoded and judged in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.envelope import CONVERSATION_AT, PREFIX_BYTES, decode, encode_suffix, shared
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import END_WRITERS_MAX
from konverse.schemas.records import (
    FIRST,
    NO_SEQUENCE,
    Begin,
    Bounce,
    BounceReason,
    End,
    Envelope,
    Kind,
    Role,
    Suffix,
)
from konverse.schemas.varint import LOW_MASK

from .endpoint import NOTHING, Endpoint, Entry, Lane, Record, Stamp, Writer
from .outbox import Run, Stream
from .partition import Partition
from .states import RECEIVING, Event, State, next_state


class Columns(NamedTuple):
    """Consecutive records of a data log. `headers` holds our header, or None for a record without one."""

    offsets: Sequence[int]
    headers: Sequence[bytes | None]
    bodies: Sequence[bytes | None]
    stamps: Sequence[Stamp]
    next_offset: int
    """Where the log goes on: behind the last record, and behind transaction markers."""

    def before(self, offset: int) -> tuple[Columns, Columns]:
        """Cut in two: what stands before `offset`, and the rest."""
        cut = 0
        while cut < len(self.offsets) and self.offsets[cut] < offset:
            cut += 1
        return self._part(slice(0, cut), min(offset, self.next_offset)), self._part(slice(cut, None), self.next_offset)

    def _part(self, rows: slice, next_offset: int) -> Columns:
        return Columns(self.offsets[rows], self.headers[rows], self.bodies[rows], self.stamps[rows], next_offset)


def ingest(state: Partition, columns: Columns) -> None:
    """Take records in log order, each writer's counters once and in order (invariants I4, I5)."""
    lanes = state.lanes
    accepted = 0
    rows: Iterable[tuple[int, bytes | None, bytes | None, Stamp]] = zip(*columns[:4], strict=True)
    for offset, header, body, stamp in rows:
        lane = lanes.get(header[:PREFIX_BYTES]) if header else None
        if lane is not None:
            writer = lane.writer
            endpoint = lane.endpoint
            counter = writer.next
            sequence = endpoint.received
            predicted = writer.low[counter & LOW_MASK] + writer.high + lane.low[sequence & LOW_MASK] + lane.tail
            if header[PREFIX_BYTES:] == predicted and writer.closed_at is None:  # type: ignore[index]  # lanes have headers
                if not endpoint.changed:
                    state.touch(endpoint)
                lane.last = counter
                writer.next = counter = counter + 1
                if not counter & LOW_MASK:
                    writer.carry()
                endpoint.received = sequence = sequence + 1
                if not sequence & LOW_MASK:
                    endpoint.carry()
                if endpoint.queue:
                    endpoint.queue.append((offset, lane.message_type, body, stamp))
                else:
                    endpoint.queue = [(offset, lane.message_type, body, stamp)]
                    state.ready.append(endpoint)
                accepted += 1
                continue
        _judge(state, offset, header, (body, stamp))
    state.statistics.accepted += accepted
    state.unread += accepted
    state.ingest_to = max(state.ingest_to, columns.next_offset)


def _judge(state: Partition, offset: int, header: bytes | None, record: Record) -> None:
    """One record in full."""
    statistics = state.statistics
    if header is None:
        statistics.foreign += 1
        return
    try:
        envelope = decode(header)
    except MalformedRecord:
        statistics.malformed += 1
        return
    if envelope.tag != state.address.tag:
        statistics.foreign += 1
        return
    writer = state.writers.get(envelope.writer)
    expected = writer.next if writer is not None else 0
    if envelope.counter != expected:
        if envelope.counter < expected:
            statistics.duplicates += 1
        else:
            statistics.gaps += 1
        return
    if writer is None:
        writer = state.writers[envelope.writer] = Writer(envelope.writer)
    writer.advance()
    if writer.closed_at is not None:
        _refuse_closed(state, envelope, record)
        return
    handler = _HANDLERS.get(envelope.kind)
    if handler is None:  # a kind of a later version: authentic, of no effect here
        statistics.undeliverable += 1
        return
    handler(state, offset, header, envelope, record)


# ------------------------------------------------------------------------------------------------------- messages


def _message(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> None:
    role = _other(envelope.role)
    endpoint = state.endpoint(role, envelope.conversation)
    begin = envelope.suffix.begin
    if endpoint is None:
        if not envelope.flags & FIRST or begin is None or role is not Role.TARGET:
            _bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
            return
        if state.tombstones.get(envelope.conversation) == envelope.writer:
            del state.tombstones[envelope.conversation]
            _bounce(state, envelope, record, BounceReason.ENDED)
            return
        endpoint = _create_target(state, envelope, begin)
    if endpoint.state not in RECEIVING:
        if endpoint.state is State.DISCONNECTED_OUTBOUND:
            state.statistics.discarded += 1
        else:
            _bounce(state, envelope, record, BounceReason.ENDED)
        return
    _accept(state, endpoint, header, envelope)
    _enqueue(state, endpoint, (offset, envelope.suffix.message_type, *record))


def _create_target(state: Partition, envelope: Envelope, begin: Begin) -> Endpoint:
    terms = state.terms_of(begin.to_service, begin.from_service, begin.contract)
    endpoint = Endpoint(envelope.conversation, Role.TARGET, State.CONVERSING, terms, state.stream_to(begin.home))
    endpoint.opener = state.writers[envelope.writer].id
    endpoint.key = begin.key
    state.add(endpoint)
    return endpoint


def _accept(state: Partition, endpoint: Endpoint, header: bytes, envelope: Envelope) -> None:
    """Count the record on its lane; check its number against the derived one."""
    state.touch(endpoint)
    numbered = envelope.sequence != NO_SEQUENCE
    if numbered and envelope.sequence != endpoint.received:
        state.statistics.misnumbered += 1
    prefix = header[:PREFIX_BYTES]
    writer = state.writers[envelope.writer]
    lane = next((known for known in endpoint.lanes() if known.writer is writer), None)
    if lane is None:
        lane = endpoint.lane = Lane(prefix, writer, endpoint)
    elif lane.prefix != prefix:
        state.lanes.pop(lane.prefix, None)
        lane.prefix = prefix
    if not envelope.flags & FIRST:  # FIRST comes once; predicting it again is in vain
        state.lanes[prefix] = lane
    lane.last = envelope.counter
    endpoint.state = next_state(endpoint.state, Event.RECEIVED)
    endpoint.received += 1
    if not endpoint.received & LOW_MASK:
        endpoint.carry()
    state.statistics.accepted += 1
    suffix = shared(header[len(header) - _suffix_length(header) :])
    lane.expect(envelope.suffix.message_type, suffix, numbered=numbered)


def _suffix_length(header: bytes) -> int:
    at = PREFIX_BYTES
    for _ in range(2):
        while header[at] & 0x80:
            at += 1
        at += 1
    return len(header) - at


def _enqueue(state: Partition, endpoint: Endpoint, entry: Entry) -> None:
    if endpoint.queue:
        endpoint.queue.append(entry)
    else:
        endpoint.queue = [entry]
        state.ready.append(endpoint)
    state.unread += 1


# -------------------------------------------------------------------------------------------------------- control


def _begin(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """BEGIN of a session at the dialog's home: the initiator's endpoint."""
    begin = envelope.suffix.begin
    if begin is None or state.endpoint(Role.INITIATOR, envelope.conversation) is not None:
        return  # a second BEGIN of a living conversation changes nothing
    endpoint = create_initiator(state, envelope.conversation, begin, envelope.writer)
    endpoint.sent = NO_SEQUENCE


def create_initiator(state: Partition, conversation: bytes, begin: Begin, opener: bytes) -> Endpoint:
    """The initiator's endpoint of a conversation that begins here."""
    terms = state.terms_of(begin.from_service, begin.to_service, begin.contract)
    endpoint = Endpoint(conversation, Role.INITIATOR, State.STARTED_OUTBOUND, terms, state.stream_to(begin.target))
    endpoint.opener = opener
    endpoint.key = begin.key
    state.add(endpoint, begin.group)
    return endpoint


def _end_call(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
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


def _peer_end(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """END or ERROR of the peer: judged by its place in this log alone (invariant I9)."""
    role = _other(envelope.role)
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
        _enqueue(state, endpoint, entry)


def _end_of_unknown(state: Partition, role: Role, envelope: Envelope, detail: End) -> None:
    """END for a target that never was: answer END, and refuse the FIRST that may still come."""
    if role is not Role.TARGET:
        state.statistics.undeliverable += 1
        return
    opener = state.writers.get(detail.opener)
    if opener is None or opener.closed_at is None:
        state.remember_tombstone(envelope.conversation, detail.opener)
    stream = state.stream_to(detail.home)
    answer = Suffix(END_DIALOG, detail=End(detail.opener, detail.home))
    prefix = stream.head(Kind.END, Role.TARGET) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(answer), [None]))


def _bounced(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    detail = envelope.suffix.detail
    if isinstance(detail, Bounce):
        state.keep_bounce(detail, envelope.suffix.message_type)


def _close_writer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CLOSE_WRITER: the conversation field names the writer that sends nothing more."""
    state.close_writer(envelope.conversation)


# -------------------------------------------------------------------------------------------------------- answers


def _refuse_closed(state: Partition, envelope: Envelope, record: Record) -> None:
    """A record of a closed writer is answered once and never accepted."""
    if envelope.kind is Kind.MESSAGE:
        _bounce(state, envelope, record, BounceReason.WRITER_CLOSED)
    elif envelope.kind is Kind.BEGIN and envelope.suffix.begin is not None:
        begin = envelope.suffix.begin
        stream = state.stream_to(begin.target)
        suffix = Suffix(END_DIALOG, detail=End(envelope.writer, begin.home))
        prefix = stream.head(Kind.END, Role.INITIATOR) + envelope.conversation
        stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, encode_suffix(suffix), [None]))


def _bounce(state: Partition, envelope: Envelope, record: Record, reason: BounceReason) -> None:
    """Carry a message back to the mailbox of its writer, at the home that the record names."""
    state.statistics.bounced += 1
    home = _home_of(envelope)
    if home is None:
        state.statistics.undeliverable += 1
        return
    stream = state.stream_to(home)
    detail = Bounce(envelope.suffix.origin or envelope.writer, envelope.counter, state.address, reason)
    suffix = encode_suffix(Suffix(envelope.suffix.message_type, detail=detail))
    prefix = stream.head(Kind.BOUNCE, _other(envelope.role)) + envelope.conversation
    stream.push(Run(prefix, envelope.conversation, NO_SEQUENCE, suffix, [record[0]]))


def _home_of(envelope: Envelope) -> Address | None:
    suffix = envelope.suffix
    return suffix.home or (suffix.begin.home if suffix.begin else None)


def _other(role: Role) -> Role:
    return Role.TARGET if role is Role.INITIATOR else Role.INITIATOR


_Handler = Callable[[Partition, int, bytes, Envelope, Record], None]

_HANDLERS: Final[dict[Kind, _Handler]] = {
    Kind.MESSAGE: _message,
    Kind.BEGIN: _begin,
    Kind.END_CALL: _end_call,
    Kind.END: _peer_end,
    Kind.ERROR: _peer_end,
    Kind.BOUNCE: _bounced,
    Kind.CLOSE_WRITER: _close_writer,
}

assert CONVERSATION_AT + 16 == PREFIX_BYTES
