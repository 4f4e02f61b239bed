"""Records about another conversation than the one that has their id: a former or a refused one (protocol.md 9g)."""

from __future__ import annotations

from konverse.bridge.verifier.records import Key, LogRecord
from konverse.schemas.wire.records import ANEW, FIRST, NAMED, BounceReason, Envelope, Kind, Opened

from .answers import bounce
from .half_close import say_finished
from .state import SecondState
from .writers import opened_by


def on_former(state: SecondState, envelope: Envelope, record: LogRecord) -> str | None:
    """Judge a record about a former or refused conversation, or one that ANEW does not begin; None for any other."""
    for_home = envelope.kind in (Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER, Kind.REDIRECT)
    if not for_home and envelope.kind not in (Kind.MESSAGE, Kind.FIN):
        return None
    key = (int(envelope.role) if for_home else 1 - envelope.role, envelope.conversation)
    if envelope.kind is Kind.BEGIN or (envelope.kind is Kind.MESSAGE and envelope.flags & FIRST):
        return _begin(state, key, envelope, record) if envelope.flags & NAMED else None
    says_so = isinstance(envelope.suffix.detail, Opened) or for_home
    if not says_so or opened_by(envelope) not in state.named.former.get(key, ()):
        return None
    state.tally["of a former life"] += 1
    if envelope.kind is Kind.MESSAGE:
        return bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
    if envelope.kind is Kind.FIN:
        say_finished(state, envelope, ())
    return "control"


def _begin(state: SecondState, key: Key, envelope: Envelope, record: LogRecord) -> str | None:
    """Judge a BEGIN or FIRST that asks for a new conversation while one lives; its opener takes part in any other."""
    names, opener = state.named, opened_by(envelope)
    side = state.living.get(key)
    if envelope.flags & ANEW and side is not None and not side.generation and key not in names.over:
        names.choose(key, side.opener)
    took_part = opener in names.openers.get(key, [])
    if not envelope.flags & ANEW or key not in names.living:
        welcome = True
    elif envelope.kind is Kind.BEGIN:
        welcome = took_part or key in names.anew
    else:
        welcome = not took_part and key in names.anew
    if welcome:
        names.take_part(key, opener)
        return None
    state.tally["begun anew while it lives"] += 1
    names.turn_away(key, opener)
    return bounce(state, envelope, record, BounceReason.ENDED, "lives") if envelope.kind is Kind.MESSAGE else "control"
