"""Rows of sys.transmission_queue from the outboxes of partitions: outputs not known to have arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from konverse.bridge.client.outgoing import APPLICATION_KINDS, Names, Outgoing
from konverse.dialog.state.outbox import Run, Stream
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import CONVERSATION_AT, decode_suffix
from konverse.schemas.wire.records import FIRST, NO_SEQUENCE, Kind, Suffix

from .partitions import Folded


def outputs(folded: Folded, no_owner_reason: str, topics: Collection[str]) -> Iterator[Outgoing]:
    """Unacknowledged outputs of applications in a partition whose destination or home is one of `topics`.

    `no_owner_reason`: why the partition sends no outputs (`StateReader.no_owner_reason`); empty if it sends them.
    """
    state, _, committed, _ = folded.ahead
    begun = _begun(state)
    for stream in state.streams.values():
        counter = stream.acked
        journaled = committed.get(stream.address, 0)
        for run in stream.runs:
            kind, role = Kind(run.prefix[0] >> 1), Role(run.prefix[2] >> 1)
            suffix = decode_suffix(run.suffix) if kind in APPLICATION_KINDS else Suffix()
            ours = folded.queue.topic in topics or _is_ours(stream, suffix, topics)
            if kind in APPLICATION_KINDS and ours and _is_said(state, kind, role, run):
                names = _names(state, role, run) or begun.get(run.prefix[CONVERSATION_AT:])
                for place, body in enumerate(run.bodies):
                    sequence = run.sequence if run.sequence == NO_SEQUENCE else run.sequence + place
                    status = no_owner_reason or _status(folded, stream, counter + place, journaled)
                    conversation = run.prefix[CONVERSATION_AT:]
                    yield Outgoing(conversation, role, kind, suffix.message_type, sequence, body, names, status)
            counter += len(run.bodies)


def _is_ours(stream: Stream, suffix: Suffix, topics: Collection[str]) -> bool:
    """Whether an output of the transmission queue, which all databases share, was sent from this database."""
    home = suffix.begin.home if suffix.begin is not None else suffix.home
    return (stream.address if home is None else home).topic in topics


def _is_said(state: Partition, kind: Kind, role: Role, run: Run) -> bool:
    """Whether an application caused the output: an END of a forgotten side only answers the peer's END (108)."""
    return kind in (Kind.MESSAGE, Kind.END_CALL) or state.endpoint(role, run.prefix[CONVERSATION_AT:]) is not None


def _begun(state: Partition) -> dict[bytes, Names]:
    """Names of conversations whose BEGIN is in the outbox too."""
    runs = (run for stream in state.streams.values() for run in stream.runs)
    suffixes = {run.prefix[CONVERSATION_AT:]: decode_suffix(run.suffix) for run in runs if _begins(run)}
    return {conversation: Names.of(each.begin) for conversation, each in suffixes.items() if each.begin is not None}


def _begins(run: Run) -> bool:
    kind, flags = Kind(run.prefix[0] >> 1), run.prefix[1]
    return kind is Kind.BEGIN or (kind is Kind.MESSAGE and bool(flags & FIRST))


def _names(state: Partition, role: Role, run: Run) -> Names | None:
    endpoint = state.endpoint(role, run.prefix[CONVERSATION_AT:])
    return None if endpoint is None else Names.at(endpoint)


def _status(folded: Folded, stream: Stream, counter: int, journaled: int) -> str:
    """What holds up an output of a partition that has an owner; empty when nothing does."""
    if counter >= journaled:
        return f"the owner of {folded.queue.name}/{folded.partition} has not committed it yet"
    if counter >= stream.open_to:
        gate = stream.gates[0]
        return f"it waits for earlier records to {gate.to.topic}/{gate.to.partition}"
    return ""
