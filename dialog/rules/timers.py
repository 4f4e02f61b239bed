"""Conversation timers and lifetimes (protocol.md section 7.9; behaviours 96 to 104, 123).

Firing needs no operation. A COMMIT fires everything that was due at the time of the journal record before it, in every
fold alike. When nothing else is to be committed, the owner appends a COMMIT for this (`dialog.owner.timekeeping`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from konverse.dialog.state.endpoint import NO_TIME, NOTHING_EXPECTED, Clock, Endpoint, Record, Stamp, timestamp_ms
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import WAY_ON, PartitionHalted
from konverse.schemas.limits import TIME_MS_MAX
from konverse.schemas.system_messages import DIALOG_TIMER, ERROR, LIFETIME_BODY
from konverse.schemas.wire.operations import SetTimer
from konverse.schemas.wire.records import FOR_EVER, NO_TIMER, Envelope, Timer

from .endings import expect_first_of_home, outlive

_INDEX: Final = attrgetter("index")


def set_timer(state: Partition, operation: SetTimer) -> None:
    """BEGIN CONVERSATION TIMER of a handler: replaces the timer that is set (behaviour 98)."""
    index = operation.endpoint
    endpoint = state.at(index, "sets a timer of")
    if endpoint.committed is State.DISCONNECTED_OUTBOUND:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} sets a timer of endpoint "
            f"{index}, which is over: the journal contradicts itself. {WAY_ON}"
        )
    after_ms = NO_TIME if operation.timeout_ms == NO_TIMER else operation.timeout_ms
    _set(state, endpoint, timer_ms=NO_TIME, timer_after_ms=after_ms)


def on_set_timer(state: Partition, _offset: int, _header: bytes, envelope: Envelope, record: Record) -> None:
    """BEGIN CONVERSATION TIMER of a session, at the dialog's home."""
    detail = envelope.suffix.detail
    if not isinstance(detail, Timer):
        state.statistics.malformed += 1
        return
    endpoint = state.endpoint(envelope.role, envelope.conversation)
    if endpoint is None or endpoint.committed is State.DISCONNECTED_OUTBOUND:
        state.statistics.undeliverable += 1
        return
    due_ms = NO_TIME
    if detail.timeout_ms != NO_TIMER:
        due_ms = min(timestamp_ms(record[1]) + detail.timeout_ms, TIME_MS_MAX)
    clock = endpoint.clock or NOTHING_EXPECTED
    state.touch(endpoint)
    state.clocks.set(endpoint, Clock(due_ms, clock.expires_ms, NO_TIME, clock.expires_after_ms, detail.end_of_stream))


def begin_lifetime(state: Partition, endpoint: Endpoint, lifetime_ms: int, stamp: Stamp | None) -> None:
    """Start the lifetime of an endpoint: from the record that made it, or from the COMMIT that did (`stamp` None)."""
    if lifetime_ms == FOR_EVER:
        return
    if stamp is None:
        _set(state, endpoint, expires_after_ms=lifetime_ms)
    else:
        _set(state, endpoint, expires_ms=min(timestamp_ms(stamp) + lifetime_ms, TIME_MS_MAX))


def settle(state: Partition, now_ms: int) -> None:
    """Turn the durations that the last COMMIT set into times; `now_ms` is the time of that COMMIT."""
    for endpoint in state.clocks.take_unsettled():
        clock = endpoint.clock
        if clock is not None and clock.unsettled:
            state.touch(endpoint)
            state.clocks.set(endpoint, clock.settled(now_ms))


def fire(state: Partition) -> None:
    """Fire timers and lifetimes that are due. A DialogTimer fires only after the last one was received (98)."""
    gone: list[Endpoint] = []
    for endpoint in state.clocks.due(state.now_ms):
        clock = endpoint.clock or NOTHING_EXPECTED
        if clock.timer_ms != NO_TIME and clock.timer_ms <= state.now_ms and not (endpoint.rings or endpoint.suspended):
            _set(state, endpoint, timer_ms=NO_TIME)
            endpoint.urgent = ((state.ingest_to, DIALOG_TIMER, None, clock.timer_ms), *endpoint.urgent)
            state.ready.append(endpoint)
        if clock.expires_ms != NO_TIME and clock.expires_ms <= state.now_ms:
            _set(state, endpoint, expires_ms=NO_TIME)
            if endpoint.committed is State.DISCONNECTED_OUTBOUND:
                gone.append(endpoint)
            else:  # each side fails by itself, whether or not the other can be reached
                outlive(state, endpoint, (state.ingest_to, ERROR, LIFETIME_BODY, clock.expires_ms))
    for endpoint in sorted(gone, key=_INDEX):  # the order in which their indices are used again
        expect_first_of_home(state, endpoint)
        state.forget(endpoint)


def _set(state: Partition, endpoint: Endpoint, **times: int) -> None:
    state.touch(endpoint)
    clock = (endpoint.clock or NOTHING_EXPECTED)._asdict()
    state.clocks.set(endpoint, Clock(**{**clock, **times}))
