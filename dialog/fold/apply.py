"""Applies the operations of COMMITs to the state (protocol.md section 3, `apply`).

The order within a COMMIT is fixed: acknowledgements, begins, receives, sends, ends, rare operations, due timers. A
leading owner only stages the work of its handlers. It then applies its own COMMIT with the function that replays all
COMMITs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from konverse.dialog.rules.attempts import came_back, count_attempt, resume, skip, suspend, try_groups
from konverse.dialog.rules.batches import abandon, exclude
from konverse.dialog.rules.bounces import give_back
from konverse.dialog.rules.endings import clean_up, end_endpoint, give_up, withdraw
from konverse.dialog.rules.groups import move, move_away, prioritize
from konverse.dialog.rules.half_close import finish
from konverse.dialog.rules.loss import lose
from konverse.dialog.rules.messages import create_initiator
from konverse.dialog.rules.relocation import first_place, relocate
from konverse.dialog.rules.timers import begin_lifetime, fire, set_timer, settle
from konverse.dialog.rules.writers import prune
from konverse.dialog.state.endpoint import NO_TIME, NOTHING, Endpoint, bytes_of, system_bit
from konverse.dialog.state.outbox import Run
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import TRANSITIONS, Event, State, next_state
from konverse.schemas.counting import counted
from konverse.schemas.errors import WAY_ON, PartitionHalted
from konverse.schemas.system_messages import error_body
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.journal import SYSTEM_BITS, TOOK_SYSTEM, TOOK_TIMER, Commit, CommitOperations
from konverse.schemas.wire.operations import (
    Abandon,
    Attempt,
    Cleanup,
    Exclude,
    Fail,
    Finish,
    GiveBack,
    Lost,
    Move,
    MoveAway,
    Prioritize,
    Prune,
    Relocate,
    Resume,
    SetTimer,
    Skip,
    Suspend,
    Try,
    Withdraw,
)
from konverse.schemas.wire.records import FIRST, FOR_EVER, NAMED, NO_SEQUENCE, Begin, Kind, Opened, Suffix

_STARTED: Final = State.STARTED_OUTBOUND
"""A constant, because looking the enum member up for each run of outputs would be slower."""


def apply(state: Partition, commit: Commit) -> None:
    """Apply a COMMIT. Raises PartitionHalted unless the data is ingested exactly up to its `ingest_to`."""
    if state.ingest_to != commit.ingest_to:
        raise PartitionHalted(
            f"commit {commit.number} of {state.identity.data_topic}/{state.identity.partition} must ingest "
            f"up to {commit.ingest_to}, but {state.ingest_to} was ingested: the journal was changed. {WAY_ON}"
        )
    settle(state, state.now_ms)
    for address, counter in commit.output_acks:
        state.stream_to(address).acknowledge(counter)
    if state.gated:
        state.open_gates()
    operations = commit.operations
    if state.attempts.watching:
        came_back(state, commit)
    for conversation, begin in operations.begins:
        endpoint = create_initiator(state, conversation, begin, state.writer_id)
        begin_lifetime(state, endpoint, begin.lifetime_ms, None)
        state.beginning[endpoint.index] = begin
    _receive(state, operations)
    _send(state, operations)
    for end in operations.ends:
        body = error_body(end.code, end.description) if end.code else None
        end_endpoint(state, state.at(end.endpoint), body)
    for operation in operations.rare:
        _RARE[type(operation)](state, operation)
    fire(state)
    state.rejected = {}
    state.recent.contested = {}


def _receive(state: Partition, operations: CommitOperations) -> None:
    table = state.table
    for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
        # calling `at` for each endpoint would be measurably slower here
        endpoint = (table[index] if index < len(table) else None) or state.at(index)
        if not endpoint.changed:
            state.touch(endpoint)
        up_to = position >> SYSTEM_BITS
        count = up_to - endpoint.consumed
        queue = endpoint.queue
        if count == len(queue):
            state.unread_bytes -= bytes_of(queue)
            endpoint.queue = NOTHING
        elif 0 <= count < len(queue):
            state.unread_bytes -= bytes_of(queue[:count])
            del queue[:count]
        else:
            raise PartitionHalted(
                f"a commit of {state.identity.data_topic}/{state.identity.partition} receives "
                f"{counted(count, 'message')} of endpoint {index}, but only {counted(len(queue), 'waits', 'wait')}: "
                f"the journal or the data log was changed or cut. {WAY_ON}"
            )
        endpoint.consumed = up_to
        state.unread -= count
        if position & TOOK_SYSTEM:
            endpoint.urgent = tuple(entry for entry in endpoint.urgent if not system_bit(entry[1]) & position)
            if position & TOOK_TIMER:
                state.clocks.expect(endpoint)


def _send(state: Partition, operations: CommitOperations) -> None:
    """Append the outputs to the streams of their destinations, one run per conversation and message type."""
    make = tuple.__new__  # calling Run() takes twice as long
    suffixes = state.suffixes
    for index, name, bodies in operations.sends:
        endpoint = state.at(index)
        if not endpoint.changed:
            state.touch(endpoint)
        if endpoint.committed is _STARTED:
            bodies = bodies[_send_first(state, endpoint, name, bodies[0]) :]  # noqa: PLW2901
            if not bodies:
                continue
        stream, conversation, sequence = endpoint.stream, endpoint.conversation, endpoint.sent
        role = endpoint.role
        prefix = stream.heads[role] + conversation
        stream.push(make(Run, (prefix, endpoint.key or conversation, sequence, suffixes[role][name], bodies)))
        if sequence != NO_SEQUENCE:
            endpoint.sent = sequence + len(bodies)


def _send_first(state: Partition, endpoint: Endpoint, message_type: str, body: bytes) -> bool:
    """Send FIRST on a conversation that this owner or a session began. Returns False if none has to leave from here.

    Home does not know whether the session has sent its own FIRST (M288).
    """
    endpoint.committed = next_state(TRANSITIONS, endpoint.committed, Event.SENT)
    begin, opened, flags = state.beginning.pop(endpoint.index, None), None, FIRST
    if begin is None:
        if endpoint.sent != NO_SEQUENCE or _ends_stream(endpoint, message_type):
            return False
        begin, opened = _begin_of(state, endpoint), Opened(endpoint.opener)
        flags |= NAMED * state.is_named(endpoint)
    stream = endpoint.stream
    stream.push(
        Run(
            stream.head(Kind.MESSAGE, endpoint.role, flags) + endpoint.conversation,
            endpoint.key or endpoint.conversation,
            endpoint.sent,
            encode_suffix(Suffix(message_type, begin=begin, detail=opened)),
            [body],
        )
    )
    if opened is None:
        endpoint.sent += 1
    return True


def _ends_stream(endpoint: Endpoint, message_type: str) -> bool:
    """Whether home closes the conversation of a pool with this message. A target is not created for it alone."""
    return endpoint.clock is not None and endpoint.clock.end_of_stream == message_type


def _begin_of(state: Partition, endpoint: Endpoint) -> Begin:
    """The BEGIN block of a session's conversation, rebuilt from its endpoint at home, with the remaining lifetime."""
    terms = endpoint.terms
    expires_ms = NO_TIME if endpoint.clock is None else endpoint.clock.expires_ms
    return Begin(
        terms.service,
        terms.far_service,
        terms.contract,
        first_place(state, endpoint),
        endpoint.stream.address,
        endpoint.group_id,
        endpoint.key,
        lifetime_ms=FOR_EVER if expires_ms == NO_TIME else max(1, expires_ms - state.now_ms),
    )


_RARE: Final[dict[type, Callable[[Partition, Any], None]]] = {
    Prune: prune,
    Attempt: count_attempt,
    Try: try_groups,
    Suspend: suspend,
    Resume: resume,
    Skip: skip,
    Abandon: abandon,
    Exclude: exclude,
    Finish: finish,
    Relocate: relocate,
    Lost: lose,
    SetTimer: set_timer,
    Cleanup: clean_up,
    Fail: give_up,
    Withdraw: withdraw,
    Move: move,
    MoveAway: move_away,
    Prioritize: prioritize,
    GiveBack: give_back,
}
