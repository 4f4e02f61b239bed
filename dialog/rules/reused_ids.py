"""Conversation ids that are begun anew, and records for another conversation with the id (protocol.md 9e, 9g).

A session that does not know that its conversation is over, or was never begun, goes on to send, sets timers and ends.
On an id that its caller chose, each of its records names the opener: the writer of the BEGIN. A record that names an
opener of a former conversation, or one whose begin was refused, has no effect on the conversation that lives; it is
answered as if there were none.

`refusal` is the answer of a home to BEGIN DIALOG with the id of a conversation that is over or lives.
"""

from __future__ import annotations

from typing import Final

from konverse.dialog.state.endpoint import Record
from konverse.dialog.state.named import How, Key, in_use, told
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import ConversationOver, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import ANOTHER_ID
from konverse.schemas.wire.records import ANEW, FIRST, NAMED, BounceReason, Envelope, Kind, Opened

from .half_close import answer_fin
from .replies import bounce, opener_of, other

_AT_HOME: Final = (Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER, Kind.REDIRECT)
_AT_TARGET: Final = (Kind.MESSAGE, Kind.FIN)


def refuse_former(state: Partition, envelope: Envelope, record: Record) -> bool:
    """Whether a record belongs to another conversation with this id and was answered; notes openers of this one."""
    kind = envelope.kind
    if kind in _AT_HOME:
        key = envelope.role, envelope.conversation
    elif kind in _AT_TARGET:
        key = other(envelope.role), envelope.conversation
    else:
        return False
    if envelope.flags & ANEW and kind in (Kind.BEGIN, Kind.MESSAGE) and _means_another(state, key, envelope):
        if kind is Kind.MESSAGE:
            bounce(state, envelope, record, BounceReason.ENDED)
        return True
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


def _means_another(state: Partition, key: Key, envelope: Envelope) -> bool:
    """Whether ANEW means another conversation than the one that lives. Then its session has no part in that one.

    A conversation that was begun ANEW is meant by a session that takes over, and by a caller that tries again. But a
    session that sends FIRST again has ended this conversation and begins the next one.
    """
    named, opener = state.named, opener_of(envelope)
    begun_anew, takes_part = _begun_anew(state, key), opener in named.openers.get(key, ())
    if begun_anew is None:
        return False
    if envelope.kind is Kind.BEGIN:
        meant = begun_anew or takes_part
    else:
        meant = begun_anew and not (takes_part and envelope.flags & FIRST)
    if not meant:
        named.refuse(key, opener)
        endpoint = state.endpoint(*key)
        if endpoint is not None:  # no further record of that session may be taken by its predicted header
            state.shut(endpoint)
    return not meant


def _begun_anew(state: Partition, key: Key) -> bool | None:
    """Whether the conversation that lives was begun ANEW; None when none lives here, or none that began here."""
    endpoint = state.endpoint(*key)
    if endpoint is None or endpoint.index in state.moves.arrivals or key in state.named.over:
        return state.named.living.get(key)
    return state.named.living.get(key, False)  # konverse made its id, or what was known of it is forgotten


def _names_one_of(openers: tuple[bytes, ...], envelope: Envelope) -> bool:
    """Whether a record names one of these openers: in its detail Opened or, where another detail stands, as origin."""
    detail = envelope.suffix.detail
    if isinstance(detail, Opened):
        return detail.opener in openers
    return envelope.kind in _AT_HOME and envelope.suffix.origin in openers


def refusal(home: Partition, conversation: bytes, *, anew: bool) -> ConversationOver | InvalidState | None:
    """Error for a caller that would begin this conversation; None when it may begin it, or take part in it."""
    key = Role.INITIATOR, conversation
    over = home.named.over.get(key)
    if over is None:
        begun_anew = home.named.living.get(key)
        return InvalidState(in_use(conversation)) if anew and begun_anew is False else None
    known = told(conversation, over)
    if over.how is How.MOVED and key not in home.named.heard:  # the last word of the other side went to where it was
        return ConversationOver(f"{known}. While that is remembered, its id begins nothing anew: begin with another id")
    if home.endpoint(*key) is not None or (anew and key not in home.named.heard):
        return ConversationOver(
            f"{known}, and its home has not received the end of the other side: it can be begun anew only after that. "
            "Begin with another id, or try again later"
        )
    return None if anew else ConversationOver(f"{known}. {ANOTHER_ID}")
