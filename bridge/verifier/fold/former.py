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
    if envelope.kind in (Kind.BEGIN, Kind.MESSAGE) and envelope.flags & ANEW and _is_turned_away(state, key, envelope):
        state.tally["begun anew while it lives"] += 1
        state.named.turn_away(key, opened_by(envelope))
        return (
            bounce(state, envelope, record, BounceReason.ENDED, "lives") if envelope.kind is Kind.MESSAGE else "control"
        )
    if envelope.kind is Kind.BEGIN or (envelope.kind is Kind.MESSAGE and envelope.flags & FIRST):
        if envelope.flags & NAMED:
            state.named.take_part(key, opened_by(envelope))
        return None
    says_so = isinstance(envelope.suffix.detail, Opened) or (for_home and envelope.suffix.origin is not None)
    if not says_so or opened_by(envelope) not in state.named.former.get(key, ()):
        return None
    state.tally["of a former life"] += 1
    if envelope.kind is Kind.MESSAGE:
        return bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
    if envelope.kind is Kind.FIN:
        say_finished(state, envelope, ())
    return "control"


def _is_turned_away(state: SecondState, key: Key, envelope: Envelope) -> bool:
    """Whether a session that asked for a new conversation speaks while another one has the id."""
    names, side = state.named, state.living.get(key)
    unnamed = side is not None and not side.generation and key not in names.over and key not in names.living
    if unnamed:
        took_part, anew = False, False
    elif key in names.living:
        took_part, anew = opened_by(envelope) in names.openers.get(key, []), key in names.anew
    else:
        return False
    if envelope.kind is Kind.BEGIN:
        return not (anew or took_part)
    return not anew or (took_part and bool(envelope.flags & FIRST))
