"""What sessions still say of a conversation that is over, when its id was begun anew (protocol.md 9e).

A session that knows nothing of the end goes on to send, sets timers and ends. On an id that its caller has chosen it
says which conversation it means: the one that was begun by such and such a writer. What it says comes to nothing, as if
nobody had begun the id anew.
"""

from __future__ import annotations

from typing import Final

from konverse.schemas.records import FIRST, NAMED, BounceReason, Envelope, Kind, Opened

from .answers import bounce, opener_of, other
from .endpoint import Record
from .finishing import answer_fin
from .partition import Partition

_AT_HOME: Final = (Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER, Kind.REDIRECT)
_AT_TARGET: Final = (Kind.MESSAGE, Kind.FIN)


def refuse_former(state: Partition, envelope: Envelope, record: Record) -> bool:
    """Whether it was said of a former conversation with this id and was answered; notes who takes part in this one."""
    kind = envelope.kind
    if kind in _AT_HOME:
        key = envelope.role, envelope.conversation
    elif kind in _AT_TARGET:
        key = other(envelope.role), envelope.conversation
    else:
        return False
    if kind is Kind.BEGIN or (kind is Kind.MESSAGE and envelope.flags & FIRST):
        if envelope.flags & NAMED:
            state.named.join(key, opener_of(envelope))
        return False
    former = state.named.former.get(key)
    if former is None or not _names_one_of(former, envelope):
        return False
    if kind is Kind.MESSAGE:
        bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
    elif kind is Kind.FIN:
        answer_fin(state, envelope, ())
    else:
        state.statistics.undeliverable += 1
    return True


def _names_one_of(openers: tuple[bytes, ...], envelope: Envelope) -> bool:
    """Whether it says that it belongs to what one of them has begun. Where another detail stands `origin` says so."""
    detail = envelope.suffix.detail
    if isinstance(detail, Opened):
        return detail.opener in openers
    return envelope.kind in _AT_HOME and envelope.suffix.origin in openers
