"""Delayed conversations: their records wait in a link queue until the target has a place (protocol.md section 9l).

A link queue stands for a service that routing does not find. The first record makes the target's endpoint there, as in
any queue: tombstones, closed writers and ended ids are judged once, in this log. No later record of the endpoint is
judged before it has a place, because only the catalog of that place knows its contract. RELOCATE sends the endpoint
there empty, and the records after it.
"""

from __future__ import annotations

from konverse.dialog.state.delayed import DelayedRecord, RouteWanted
from konverse.dialog.state.endpoint import Endpoint, Record
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import BounceReason, Envelope, Kind

from .loss import misses
from .relocation import role_of
from .replies import bounce


def delay(state: Partition, endpoint: Endpoint, first: Envelope) -> None:
    """Delay the target that a FIRST has just made in a link queue."""
    assert first.suffix.begin is not None
    state.delayed.begin(endpoint, RouteWanted.by(first.suffix.begin))


def waits(state: Partition, offset: int, header: bytes, envelope: Envelope, record: Record) -> bool:
    """Keep a record that is for a delayed endpoint; False when it is for none."""
    if role_of(envelope) is not Role.TARGET:
        return False
    endpoint = state.endpoint(Role.TARGET, envelope.conversation)
    if endpoint is None or endpoint not in state.delayed:
        return False
    if envelope.kind is Kind.MESSAGE:
        if misses(state, endpoint, envelope, record):
            bounce(state, envelope, record, BounceReason.ENDED)
            return True
        state.touch(endpoint)
        endpoint.received += 1
    state.delayed.keep(endpoint, DelayedRecord(offset, header, *record))
    return True
