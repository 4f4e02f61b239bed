"""Commits into state: what handlers decided (protocol.md section 3, `apply`).

The order inside a commit is fixed: acknowledgements, begins, receives, sends, ends. A live owner stages what handlers
do and changes nothing; it applies its own commit by the very function that replays everybody's.
"""

from __future__ import annotations

from konverse.schemas.envelope import encode_suffix
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.journal import SYSTEM_BITS, TOOK_ERROR, Commit, Operations
from konverse.schemas.records import FIRST, NO_SEQUENCE, Kind, Suffix
from konverse.schemas.system_messages import error_body
from konverse.schemas.varint import LOW_MASK, SMALL, varint

from .endpoint import NOTHING, Endpoint
from .ingest import create_initiator, end_endpoint
from .outbox import Output
from .partition import Partition
from .states import Event, State, next_state


def apply(state: Partition, commit: Commit) -> None:
    """Change the state as the commit says. Its data must have been ingested, and nothing behind it."""
    assert state.ingest_to == commit.ingest_to, f"ingested to {state.ingest_to}, the commit says {commit.ingest_to}"
    for address, counter in commit.output_acks:
        state.stream_to(address).acknowledge(counter)
    operations = commit.operations
    for conversation, begin in operations.begins:
        endpoint = create_initiator(state, conversation, begin, state.writer_id)
        state.beginning[endpoint.index] = begin
    _receive(state, operations)
    _send(state, operations)
    for end in operations.ends:
        body = error_body(end.code, end.description) if end.code else None
        end_endpoint(state, _known(state, end.endpoint), body)


def _receive(state: Partition, operations: Operations) -> None:
    table = state.table
    for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
        endpoint = table[index] if index < len(table) else None
        if endpoint is None:
            raise _halted(state, index)
        up_to = position >> SYSTEM_BITS
        count = up_to - endpoint.consumed
        queue = endpoint.queue
        if count == len(queue):
            endpoint.queue = NOTHING
        elif 0 <= count < len(queue):
            del queue[:count]
        else:
            raise _halted(state, index)
        endpoint.consumed = up_to
        state.unread -= count
        if position & TOOK_ERROR:
            endpoint.error = None
        if not endpoint.changed:
            state.touch(endpoint)


def _send(state: Partition, operations: Operations) -> None:
    """Outputs of messages into their streams, a run of one endpoint after the other."""
    endpoints, kinds, bodies = operations.send_endpoints, operations.send_types, operations.send_bodies
    suffixes = [encode_suffix(Suffix(name)) for name in operations.types]
    at, count = 0, len(endpoints)
    while at < count:
        index = endpoints[at]
        endpoint = _known(state, index)
        if endpoint.state is State.STARTED_OUTBOUND:
            name = operations.types[kinds[at]]
            if _send_first(state, endpoint, name, bodies[at]):
                at += 1
                continue
        end = at + 1
        while end < count and endpoints[end] == index:
            end += 1
        _send_run(endpoint, [suffixes[kind] for kind in kinds[at:end]], bodies[at:end])
        state.touch(endpoint)
        at = end


def _send_run(endpoint: Endpoint, suffixes: list[bytes], bodies: list[bytes]) -> None:
    """As `Stream.push` for each, with what repeats looked up once."""
    stream = endpoint.stream
    append, join = stream.entries.append, b"".join
    prefix = stream.heads[endpoint.role] + endpoint.conversation
    key = endpoint.key or endpoint.conversation
    counter, sequence = stream.next, endpoint.sent
    step = 0 if sequence == NO_SEQUENCE else 1
    for suffix, body in zip(suffixes, bodies, strict=True):
        number = SMALL[sequence] if 0 <= sequence <= LOW_MASK else varint(sequence)
        header = join((prefix, stream.low[counter & LOW_MASK], stream.high, number, suffix))
        append((header, key, body))
        counter += 1
        sequence += step
        if not counter & LOW_MASK:
            stream.next = counter
            stream.carry()
    stream.next = counter
    endpoint.sent = sequence


def _send_first(state: Partition, endpoint: Endpoint, message_type: str, body: bytes) -> bool:
    """The first message of a conversation that this owner began; False when a session began it."""
    endpoint.state = next_state(endpoint.state, Event.SENT)
    begin = state.beginning.pop(endpoint.index, None)
    if begin is None:
        return False
    stream = endpoint.stream
    stream.push(
        Output(
            stream.head(Kind.MESSAGE, endpoint.role, FIRST) + endpoint.conversation,
            endpoint.key or endpoint.conversation,
            endpoint.sent,
            encode_suffix(Suffix(message_type, begin=begin)),
            body,
        )
    )
    endpoint.sent += 1
    state.touch(endpoint)
    return True


def _known(state: Partition, index: int) -> Endpoint:
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None:
        raise _halted(state, index)
    return endpoint


def _halted(state: Partition, index: int) -> PartitionHalted:
    return PartitionHalted(
        f"a commit of {state.identity.data_topic}/{state.identity.partition} speaks of endpoint {index} in a way that "
        "its own journal contradicts: the data log was changed or cut. Nothing further is done with this partition"
    )
