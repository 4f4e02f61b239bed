"""Builds partitions with many open conversations in memory, in small steps."""

from __future__ import annotations

from konverse.dialog.fold.apply import apply
from konverse.dialog.fold.ingest import ingest
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.identifiers import Address, LogIdentity, Role
from konverse.schemas.wire.envelope import encode, encode_suffix, head
from konverse.schemas.wire.journal import SYSTEM_BITS, Commit, CommitOperations
from konverse.schemas.wire.records import FIRST, Begin, Kind, Suffix

STEP = 500
BODY = bytes(100)


def open_conversations(identity: LogIdentity, count: int) -> Partition:
    """A partition with `count` live conversations. Each has received two messages, and both were consumed."""
    state = Partition(identity)
    home = Address("konverse.bench.Shop", 0, bytes(4))
    writer = bytes([1]) * 16
    heads = [head(Kind.MESSAGE, flags, Role.INITIATOR, state.address.tag, writer) for flags in (FIRST, 0)]
    counter = 0
    for number, start in enumerate(range(0, count, STEP), 1):
        headers: list[bytes | None] = []
        for place in range(start, min(start + STEP, count)):
            conversation = place.to_bytes(16, "big")
            begin = Begin("//shop", "//orders", "//order", home, state.address, conversation)
            headers.append(
                encode(heads[0] + conversation, counter, 0, encode_suffix(Suffix("//order/line", begin=begin)))
            )
            headers.append(
                encode(heads[1] + conversation, counter + 1, 1, encode_suffix(Suffix("//order/line", home=home)))
            )
            counter += 2
        size = len(headers)
        ingest(
            state,
            RecordColumns(range(counter - size, counter), headers, [BODY] * size, [0] * size, counter, counter - size),
        )
        operations = CommitOperations()
        while state.ready:
            endpoint = state.ready.popleft()
            operations.receive_endpoints.append(endpoint.index)
            operations.receive_positions.append(endpoint.received << SYSTEM_BITS)
        apply(state, Commit(1, b"", number, b"", counter, operations))
        for endpoint in state.changed:
            endpoint.changed = False
        state.changed = []
    if len(state.live()) != count or state.unread:
        raise RuntimeError(f"{len(state.live())} of {count} conversations are open, {state.unread} messages unread")
    return state
