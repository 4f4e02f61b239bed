"""Records of sessions that know only a former conversation, where its id was begun anew (protocol.md 9g)."""

from __future__ import annotations

from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.wire.records import FIRST, NAMED, BounceReason, Envelope, Kind, Opened

from .answers import bounce
from .half_close import say_finished
from .state import SecondState
from .writers import opened_by


def on_former(state: SecondState, envelope: Envelope, record: LogRecord) -> str | None:
    """Judge a record about a former conversation; None for any other record."""
    for_home = envelope.kind in (Kind.BEGIN, Kind.END_CALL, Kind.SET_TIMER, Kind.REDIRECT)
    if not for_home and envelope.kind not in (Kind.MESSAGE, Kind.FIN):
        return None
    key = (int(envelope.role) if for_home else 1 - envelope.role, envelope.conversation)
    if envelope.kind is Kind.BEGIN or (envelope.kind is Kind.MESSAGE and envelope.flags & FIRST):
        if envelope.flags & NAMED:
            state.named.take_part(key, opened_by(envelope))
        return None
    says_so = isinstance(envelope.suffix.detail, Opened) or for_home
    if not says_so or opened_by(envelope) not in state.named.former.get(key, ()):
        return None
    state.tally["of a former life"] += 1
    if envelope.kind is Kind.MESSAGE:
        return bounce(state, envelope, record, BounceReason.NO_ENDPOINT)
    if envelope.kind is Kind.FIN:
        say_finished(state, envelope, ())
    return "control"
