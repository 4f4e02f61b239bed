"""Timers and lifetimes in the second fold: when something is due, all sides that may have one are checked (I10)."""

from __future__ import annotations

import sys
from operator import itemgetter

from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.limits import TIME_MS_MAX
from konverse.schemas.system_messages import DIALOG_TIMER, ERROR, LIFETIME_BODY
from konverse.schemas.wire.operations import SetTimer
from konverse.schemas.wire.records import FOR_EVER, NO_TIMER, Begin, Envelope, Kind, Timer

from .state import AcceptedRecord, SecondState, Side


def set_by_handler(state: SecondState, operation: SetTimer) -> None:
    """A commit sets a timer: it counts from the time of that commit."""
    side = state.table.get(operation.endpoint)
    if side is None or side.ended:
        state.problem(f"I10: a commit sets a timer of endpoint {operation.endpoint}, which has ended")
        return
    _set(state, side, state.journal_ms, operation.timeout_ms)


def on_timer(state: SecondState, envelope: Envelope, record: LogRecord) -> None:
    """A session sets a timer: it counts from the time of its record."""
    side = state.living.get((int(envelope.role), envelope.conversation))
    detail = envelope.suffix.detail
    if not isinstance(detail, Timer):
        state.tally["malformed"] += 1
    elif side is not None and not side.ended:
        _set(state, side, record.timestamp_ms, detail.timeout_ms)
        side.end_of_stream = detail.end_of_stream


def _set(state: SecondState, side: Side, from_ms: int, timeout_ms: int) -> None:
    if timeout_ms == NO_TIMER:
        state.tally["timer cancelled"] += side.timer_ms is not None
        side.timer_ms = None
        return
    due_ms = min(from_ms + timeout_ms, TIME_MS_MAX)
    state.tally["timer set"] += 1
    state.tally["timer set anew"] += side.timer_ms is not None
    side.timer_ms = due_ms
    state.times.expecting[side.key] = None
    state.times.include(due_ms)


def live_until(state: SecondState, side: Side, begin: Begin, from_ms: int) -> None:
    """Set the lifetime of a side that begins at `from_ms`."""
    if begin.lifetime_ms != FOR_EVER:
        side.expires_ms = min(from_ms + begin.lifetime_ms, TIME_MS_MAX)
        state.times.expecting[side.key] = None
        state.times.include(side.expires_ms)


def strike(state: SecondState) -> None:
    """At the end of a COMMIT, fire everything that was due at the time of the journal record before it."""
    if state.now_ms < state.times.next_ms:
        return
    state.times.next_ms = sys.maxsize
    gone: list[Side] = []
    for side in _in_order(state):
        if side.timer_ms is not None and side.timer_ms <= state.now_ms:
            _ring(state, side, side.timer_ms)
        if side.expires_ms is not None and side.expires_ms <= state.now_ms:
            if side.ended:
                gone.append(side)
            else:
                _expire(state, side, side.expires_ms)
        state.times.include(side.timer_ms, side.expires_ms)
    for side in sorted(gone, key=lambda one: one.index):
        state.tally["gone with its lifetime"] += 1
        side.expires_ms = None
        state.given_up.add(side.key[1])
        state.await_home(side)
        state.remove(side)


def _in_order(state: SecondState) -> list[Side]:
    """The sides with a timer or a lifetime, by the earliest of their times, and by index where times are equal."""
    found: list[tuple[int, int, Side]] = []
    for key in [*state.times.expecting]:
        side = state.living.get(key)
        times = [] if side is None else [at for at in (side.timer_ms, side.expires_ms) if at is not None]
        if side is None or not times:
            del state.times.expecting[key]
        else:
            found.append((min(times), side.index, side))
    return [side for _, _, side in sorted(found, key=itemgetter(0, 1))]


def _ring(state: SecondState, side: Side, due_ms: int) -> None:
    if side.rang is not None or side.key in state.past.suspended:
        state.tally["timer waited"] += 1
        return
    state.tally["timer rang"] += 1
    state.tally["timer rang beside an Error"] += side.error is not None
    side.rang = AcceptedRecord(state.ingested_to, DIALOG_TIMER, b"", b"", -1, Kind.SET_TIMER, due_ms)
    side.timer_ms = None


def _expire(state: SecondState, side: Side, expires_ms: int) -> None:
    side.expires_ms = None
    if side.peer_failed:
        return
    state.tally["lifetime over after an end"] += side.peer_ended
    state.tally["lifetime over"] += 1
    if not side.peer_ended:
        state.await_home(side)
    side.peer_failed = True
    state.given_up.add(side.key[1])
    side.error = AcceptedRecord(state.ingested_to, ERROR, state.brief(LIFETIME_BODY), b"", -1, Kind.ERROR, expires_ms)
