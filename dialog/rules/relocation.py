"""Relocation: an endpoint moves to another partition, and its later records follow (protocol.md section 7.3).

A place is a partition in which the endpoint lives or has lived. Three rules. The state leaves after everything that the
endpoint has sent to its peer, so that outputs from the next place arrive after these. Senders keep the endpoint's first
address: the log there still orders all records for the endpoint, and each place forwards them in that order. And a
place removes its stub only when the last place has forgotten the endpoint.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import (
    NOTHING_EXPECTED,
    Clock,
    Endpoint,
    Entry,
    FarStamp,
    Finished,
    HeaderPrediction,
    Record,
    Stamp,
    bytes_of,
)
from konverse.dialog.state.named import How, Over
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.relocations import Arrival, Stub, tell_closed
from konverse.dialog.state.transitions import State
from konverse.dialog.state.writer import Writer
from konverse.schemas.errors import WAY_ON, MalformedRecord, PartitionHalted
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BODY_BYTES_MAX, INSTALL_BYTES_MAX, USER_HEADERS_BYTES_MAX
from konverse.schemas.system_messages import BEGUN_TWICE_BODY, ERROR
from konverse.schemas.wire.envelope import decode_accepted, encode_suffix
from konverse.schemas.wire.moved import Moved, MovedFinish, MovedMessage, decode_moved, encode_moved, pieces_of
from konverse.schemas.wire.operations import Relocate
from konverse.schemas.wire.records import (
    NAMED,
    NO_SEQUENCE,
    BounceReason,
    Closed,
    End,
    Envelope,
    Forwarded,
    Kind,
    Origin,
    Suffix,
)

from .endings import answer_end, forget_first_of_home, peer_ends, refuse_first_of_home
from .groups import set_level
from .half_close import answer_fin
from .replies import answer_cleaned, answer_lost, answer_no_peer, bounce, other, refuse_begin, refuse_over, say_no_peer

INSTALL_PIECES_MAX: Final = INSTALL_BYTES_MAX // BODY_BYTES_MAX

_OWN_SIDE: Final = {Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER}
"""Kinds whose records name the side that they are meant for."""

_FAR_SIDE: Final = {Kind.MESSAGE, Kind.END, Kind.ERROR, Kind.NO_PEER, Kind.FIN, Kind.FIN_ANSWER}
"""Kinds whose records come from the peer. The other kinds are for writers or the partition, which do not move."""


def role_of(envelope: Envelope) -> Role | None:
    """The side of the conversation that a record is meant for; None when it is meant for no endpoint."""
    if envelope.kind in _FAR_SIDE:
        return other(envelope.role)
    return envelope.role if envelope.kind in _OWN_SIDE else None


# ------------------------------------------------------------------------------------------------------------ leaving


def relocate(state: Partition, operation: Relocate) -> None:
    """RELOCATE: the endpoint's state leaves, after everything sent to its peer so far; a stub stays."""
    moves, index = state.moves, operation.endpoint
    endpoint, generation = state.at(index, "moves"), moves.generation_of(index)
    pieces = pieces_of(encode_moved(moved_of(state, endpoint)))
    if (generation, len(pieces)) != operation[2:]:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} moves endpoint {index}, which is not "
            f"as the commit says: the journal or the data log was changed. {WAY_ON}"
        )
    stream = state.stream_to(operation.to)
    state.hold(stream, behind=endpoint.stream)
    prefix = stream.head(Kind.INSTALL, endpoint.role) + endpoint.conversation
    key = endpoint.key or endpoint.conversation
    for number, piece in enumerate(pieces):
        suffix = encode_suffix(Suffix(fragment=(number, len(pieces))))
        stream.push(Run(prefix, key, NO_SEQUENCE, suffix, [piece]))
    arrival = moves.arrivals.pop(index, None)  # else `forget` would report the end to the previous place
    previous = None if arrival is None else arrival.previous
    opened = endpoint.committed is not State.STARTED_OUTBOUND
    moves.leave((endpoint.role, endpoint.conversation), generation, Stub(operation.to, previous, endpoint.key, opened))
    state.touch(endpoint)
    state.unread -= len(endpoint.queue)
    state.unread_bytes -= bytes_of(endpoint.queue)
    state.forget(endpoint)


def first_place(state: Partition, endpoint: Endpoint) -> Address:
    """Where the endpoint began. Its peer and its session write there, and its session reads its mailbox there."""
    arrival = state.moves.arrivals.get(endpoint.index)
    return state.address if arrival is None else arrival.first


def _group_of(endpoint: Endpoint) -> bytes | None:
    """Group of an endpoint that moves; None for a target in its own group."""
    own = own_group(endpoint.role, endpoint.conversation)
    return endpoint.group_id if endpoint.role is Role.INITIATOR or endpoint.group_id != own else None


def moved_of(state: Partition, endpoint: Endpoint) -> Moved:
    """Complete state of an endpoint, for its next place."""
    clock = endpoint.clock or NOTHING_EXPECTED
    return Moved(
        state.moves.generation_of(endpoint.index) + 1,
        state.address,
        first_place(state, endpoint),
        state.is_named(endpoint),
        endpoint.committed,
        endpoint.service,
        endpoint.far_service,
        endpoint.contract,
        endpoint.stream.address,
        endpoint.opener,
        endpoint.key,
        _group_of(endpoint),
        state.beginning.get(endpoint.index),
        endpoint.received,
        endpoint.consumed,
        endpoint.sent,
        [(lane.writer.id, lane.last) for lane in endpoint.lanes()],
        [_moved_message(state, entry) for entry in endpoint.queue],
        [_moved_message(state, entry) for entry in endpoint.urgent],
        None if endpoint.finished is None else MovedFinish(*endpoint.finished),
        *clock.times,
        clock.end_of_stream,
        endpoint.level,
    )


def _moved_message(state: Partition, entry: Entry) -> MovedMessage:
    offset, message_type, body, stamp = entry
    return MovedMessage(message_type, body, *_far(state, offset, stamp))


def _far(state: Partition, offset: int, stamp: Stamp) -> FarStamp:
    """The stamp with the place at which the record was first written."""
    if isinstance(stamp, FarStamp):
        return stamp
    identity = state.identity
    origin = Origin(identity.data_topic, identity.partition, identity.incarnation, offset)
    return FarStamp(stamp, [], origin) if isinstance(stamp, int) else FarStamp(*stamp, origin)


# ----------------------------------------------------------------------------------------------------------- arriving


def on_install(state: Partition, offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """INSTALL: a piece of an endpoint's state; the last piece makes the endpoint live here."""
    installing, writer = state.moves.installing, envelope.writer
    number, count = envelope.suffix.fragment or (0, 0)
    pieces = installing.pop(writer, [])
    if number != len(pieces) or not number < count <= INSTALL_PIECES_MAX:
        state.statistics.malformed += 1
        return
    pieces.append(record[0] or b"")
    if number + 1 < count:
        installing[writer] = pieces
        return
    try:
        moved = decode_moved(b"".join(pieces))
        code = State(moved.state)
    except (MalformedRecord, ValueError):
        state.statistics.malformed += 1
        return
    if code in (State.STARTED_INBOUND, State.CLOSED):  # no endpoint stays in these states
        state.statistics.malformed += 1
        return
    living = state.endpoint(envelope.role, envelope.conversation)
    if living is not None:
        _fail_both(state, offset, living, moved)
        return
    _install(state, offset, envelope, moved, code)


def _fail_both(state: Partition, offset: int, living: Endpoint, moved: Moved) -> None:
    """Fail a side that arrives and the one that was begun here under its id meanwhile, and tell their peers (M290)."""
    role, conversation = living.role, living.conversation
    state.statistics.discarded += len(moved.waiting)
    for peer in dict.fromkeys((moved.peer, living.stream.address)):
        say_no_peer(state, peer, role, conversation, BEGUN_TWICE_BODY)
    closed = Closed(moved.generation - 1, awaits_home=role is Role.TARGET)
    tell_closed(state.stream_to(moved.previous), role, conversation, closed)
    peer_ends(state, living, (offset, ERROR, BEGUN_TWICE_BODY, state.now_ms), failed=True)


def _install(state: Partition, offset: int, envelope: Envelope, moved: Moved, code: State) -> None:
    terms = state.terms_of(moved.service, moved.far_service, moved.contract)
    endpoint = Endpoint(envelope.conversation, envelope.role, code, terms, state.stream_to(moved.peer))
    endpoint.opener, endpoint.key = moved.opener, moved.key
    endpoint.received, endpoint.consumed, endpoint.sent = moved.received, moved.consumed, moved.sent
    for writer, last in dict(reversed(moved.voices)).items():
        endpoint.lane = lane = HeaderPrediction(b"", Writer(writer), endpoint)
        lane.last = last
    if moved.finished is not None:
        endpoint.finished = Finished(*moved.finished)
    set_level(state, endpoint, moved.level)
    state.add(endpoint, moved.group)
    state.moves.arrivals[endpoint.index] = Arrival(moved.generation, moved.previous, moved.first, moved.named)
    if moved.begin is not None:  # the first message will leave from here
        state.beginning[endpoint.index] = moved.begin
        endpoint.opener = state.writer_id
    if moved.waiting:
        endpoint.queue = [_entry(offset, message) for message in moved.waiting]
        state.unread += len(endpoint.queue)
        state.unread_bytes += bytes_of(endpoint.queue)
    endpoint.urgent = tuple(_entry(offset, message) for message in moved.urgent)
    state.clocks.set(endpoint, Clock(moved.timer_ms, moved.expires_ms, end_of_stream=moved.end_of_stream))
    if endpoint.waits:
        state.ready.append(endpoint)
    state.report_end(endpoint)


def _entry(offset: int, message: MovedMessage) -> Entry:
    return offset, message.type, message.body, FarStamp(*message[2:])


# --------------------------------------------------------------------------------------------------------- forwarding


def forwarded(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> bool:
    """Forward a record whose endpoint has moved away; False when it has not.

    The record's sender knows the place but not the generation, so the record starts with the oldest stub.
    """
    role = role_of(envelope)
    chain = None if role is None else state.moves.stubs.get((role, envelope.conversation))
    if not chain:
        return False
    hop, stub = next(iter(chain.items()))
    timestamp_ms, headers, origin = _far(state, offset, record[1])
    size = sum(len(name.encode()) + len(value or b"") for name, value in headers)
    kept = tuple(headers) if size + 12 * len(headers) <= USER_HEADERS_BYTES_MAX else ()
    _send_on(state, stub, envelope, Forwarded(hop + 1, origin, timestamp_ms, kept, header), record[0])
    return True


def _send_on(state: Partition, stub: Stub, envelope: Envelope, detail: Forwarded, body: bytes | None) -> None:
    state.statistics.forwarded += 1
    stream = state.stream_to(stub.to)
    prefix = stream.head(Kind.FORWARD, envelope.role) + envelope.conversation
    suffix = encode_suffix(Suffix(detail=detail))
    stream.push(Run(prefix, stub.key or envelope.conversation, NO_SEQUENCE, suffix, [body]))


def unwrap(state: Partition, envelope: Envelope, record: Record) -> tuple[bytes, Envelope, Record] | None:
    """The record inside a FORWARD, if its endpoint lives here; else forwards or answers it and returns None."""
    detail = envelope.suffix.detail
    original = _original(detail)
    role = None if original is None else role_of(original)
    if original is None or role is None or not isinstance(detail, Forwarded):
        state.statistics.malformed += 1
        return None
    stub = state.moves.stubs.get((role, original.conversation), {}).get(detail.hop)
    if stub is not None:
        _send_on(state, stub, original, detail._replace(hop=detail.hop + 1), record[0])
        return None
    there: Record = (record[0], FarStamp(detail.timestamp_ms, list(detail.headers), detail.origin))
    endpoint = state.endpoint(role, original.conversation)
    if endpoint is None or state.moves.generation_of(endpoint.index) != detail.hop:
        _of_nobody(state, role, original, there)
        return None
    return detail.header, original, there


def _original(detail: object) -> Envelope | None:
    try:
        return decode_accepted(detail.header) if isinstance(detail, Forwarded) else None
    except MalformedRecord:
        return None


def _of_nobody(state: Partition, role: Role, envelope: Envelope, record: Record) -> None:
    """Answer a forwarded record whose endpoint is gone. Only a record at a first address can begin a conversation."""
    kind, detail = envelope.kind, envelope.suffix.detail
    if kind is Kind.FIN:
        answer_fin(state, envelope, ())
    elif kind is Kind.BEGIN and envelope.flags & NAMED:
        refuse_over(state, envelope, Over(How.MOVED, state.now_ms))
    elif kind is Kind.BEGIN:
        refuse_begin(state, envelope)
    elif kind is Kind.MESSAGE and role is Role.TARGET:
        bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
        if not answer_cleaned(state, envelope.conversation):
            answer_lost(state, envelope)  # the INSTALL may have been in the lost data
    elif isinstance(detail, End) and role is Role.TARGET:
        answer_end(state, envelope, detail)
    elif kind is Kind.MESSAGE or (isinstance(detail, End) and envelope.sequence != NO_SEQUENCE):
        answer_no_peer(state, envelope)
    else:
        state.statistics.undeliverable += 1


def on_closed(state: Partition, _offset: int, _header: bytes, envelope: Envelope, _record: Record) -> None:
    """CLOSED: the conversation is over at the next place; removes the stub and notifies the previous place."""
    detail = envelope.suffix.detail
    if not isinstance(detail, Closed):
        state.statistics.malformed += 1
        return
    stub = state.moves.close((envelope.role, envelope.conversation), detail.generation)
    if stub is None:
        state.statistics.undeliverable += 1
        return
    key = envelope.role, envelope.conversation
    if envelope.role is Role.TARGET and forget_first_of_home(
        state, envelope.conversation
    ):  # it failed here, then moved
        detail = detail._replace(awaits_home=True)
    if key not in state.moves.stubs and state.endpoint(*key) is None:
        state.named.end(key, How.MOVED, state.now_ms)
        if detail.awaits_home and stub.previous is None:
            refuse_first_of_home(state, envelope.conversation)
        if detail.cleaned is not None:
            state.remember_cleaned(envelope.conversation, detail.cleaned)
    if stub.previous is not None:
        before = detail._replace(generation=detail.generation - 1)
        tell_closed(state.stream_to(stub.previous), envelope.role, envelope.conversation, before)
