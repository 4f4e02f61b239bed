"""Delayed conversations in the second fold (protocol.md section 9l).

Records of a delayed side are kept as they came. `moves.relocate` sends them after the side, and the end of the side has
them judged behind it (`SecondState.let_go`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.bridge.verifier.records import LogRecord, Record
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.records import FIRST, BounceReason, Envelope, Kind

from .answers import bounce
from .loss import misses
from .moves import meant_for

if TYPE_CHECKING:
    from .state import SecondState


def wait(state: SecondState, envelope: Envelope, record: LogRecord) -> str | None:
    """Let a record wait for the place of its side; None when its side is not delayed."""
    key = meant_for(envelope)
    side = None if key is None else state.living.get(key)
    if side is None or side.delayed is None or side.key[0] != Role.TARGET:
        return None
    if envelope.kind is Kind.MESSAGE and misses(state, side, envelope, record):
        return bounce(state, envelope, record, BounceReason.ENDED)
    state.tally["delayed"] += 1
    side.delayed.append((envelope, record))
    return "delayed"


def behind_the_end(envelope: Envelope, record: LogRecord) -> tuple[Envelope, LogRecord]:
    """A record that waited at a side which has ended meanwhile: it makes no target any more."""
    envelope = envelope._replace(flags=envelope.flags & ~FIRST)
    header = encode_envelope(envelope)
    return envelope, Record(*(record.offset, header, record.body, record.timestamp_ms, record.order, record.body_bytes))
