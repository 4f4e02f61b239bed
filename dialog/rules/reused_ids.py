"""Conversation ids that were begun anew, and records for the conversation that had the id before (protocol.md 9e, 9g).

A session that does not know that its conversation is over goes on to send, sets timers and ends. On an id that its
caller chose, each of its records names the opener: the writer of the BEGIN. A record that names an opener of a former
conversation has no effect on the new one; it is answered as if the id had not been begun anew.

`refusal` is the answer of a home to BEGIN DIALOG with the id of a conversation that is over.
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
    """Whether a record belongs to a former conversation with this id and was answered; notes openers of this one."""
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
    """Whether a record names one of these openers: in its detail Opened or, where another detail stands, as origin."""
    detail = envelope.suffix.detail
    if isinstance(detail, Opened):
        return detail.opener in openers
    return envelope.kind in _AT_HOME and envelope.suffix.origin in openers


def refusal(home: Partition, conversation: bytes, *, anew: bool) -> ConversationOver | None:
    """Error for a caller that would begin this conversation; None when it may begin, or lives."""
    over = home.named.over.get((Role.INITIATOR, conversation))
    if over is None:
        return None
    known = told(conversation, over)
    if home.endpoint(Role.INITIATOR, conversation) is not None or (anew and conversation not in home.named.heard):
        return ConversationOver(
            f"{known}, and its home has not received the end of the other side: it can be begun anew only after that. "
            "Begin with another id, or try again later"
        )
    return None if anew else ConversationOver(f"{known}. {ANOTHER_ID}")
