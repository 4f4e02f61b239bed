"""What sessions still say of a conversation that is over, when its id was begun anew (protocol.md 9e).

A session that knows nothing of the end goes on to send, sets timers and ends. On an id that its caller has chosen it
says which conversation it means: the one that was begun by such and such a writer. What it says comes to nothing, as if
nobody had begun the id anew.

What a home says to BEGIN DIALOG with the id of a conversation that is over (protocol.md section 6).
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Record
from konverse.dialog.state.named import told
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import ConversationOver
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import ANOTHER_ID
from konverse.schemas.wire.records import FIRST, NAMED, BounceReason, Envelope, Kind, Opened

from .half_close import answer_fin
from .replies import bounce, opener_of, other

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


def refusal(home: Partition, conversation: bytes, *, anew: bool) -> ConversationOver | None:
    """The error for a caller that would begin it; None when it may begin, or lives."""
    over = home.named.over.get((Role.INITIATOR, conversation))
    if over is None:
        return None
    known = told(conversation, over)
    if home.endpoint(Role.INITIATOR, conversation) is not None or (anew and conversation not in home.named.heard):
        return ConversationOver(
            f"{known}, and its home did not hear that the other side has ended it: it can be begun anew when it has. "
            "Begin with another id, or try again then"
        )
    return None if anew else ConversationOver(f"{known}. {ANOTHER_ID}")
