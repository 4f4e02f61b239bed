"""Where one side of a conversation stands, in sentences for operators who wonder why nothing arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from konverse.dialog.rules.attempts import attempts_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State

_STATES: Final = {
    State.STARTED_OUTBOUND: "It was begun here, and nothing has come back yet.",
    State.STARTED_INBOUND: "It was begun from the other side, and none of its messages has been received.",
    State.CONVERSING: "Both sides may send.",
    State.DISCONNECTED_INBOUND: "The other side has ended; this side has not, and still receives earlier messages.",
    State.DISCONNECTED_OUTBOUND: "This side has ended, and waits for the other side to end.",
    State.ERROR: "It has failed: after its Error this side can only end.",
}
_ROLE_AT: Final = 2
"""Index of the role in a header (`konverse.schemas.wire.envelope.head`)."""


def standing(state: Partition, endpoint: Endpoint) -> Iterator[str]:
    """Sentences about an endpoint in the state of its partition."""
    yield _STATES[endpoint.committed]
    to = state.moves.leaving.get(endpoint.group_id)
    if to is not None:
        yield (
            f"It is about to move to {to.topic}/{to.partition}, to conversation group {UUID(bytes=endpoint.group_id)} "
            "that lives there; the owner of its partition moves it."
        )
    yield from _unread(endpoint)
    yield from _outputs(state, endpoint)


def _unread(endpoint: Endpoint) -> Iterator[str]:
    """Sentences about the messages that wait to be received, and what delays them."""
    waits = [_count(len(endpoint.queue), "message")] if endpoint.queue else []
    waits += ["a DialogTimer"] if endpoint.rings else []
    waits += ["an Error"] if endpoint.error else []
    if not waits:
        if endpoint.suspended:
            yield (
                "Nothing waits to be received. Later messages will wait until an operator resumes the conversation, "
                "because its group is suspended."
            )
        elif endpoint.committed is not State.DISCONNECTED_OUTBOUND:
            yield "Nothing waits to be received."
        return
    what, attempts = " and ".join(waits), attempts_of(endpoint)
    failed = _count(attempts, "failed attempt")
    if endpoint.suspended:
        after = f" after {failed}" if attempts else ""  # an operator may suspend a group whose handler never failed
        yield (
            f"To be received: {what}. An operator has to resume, skip or end the conversation first: its group is "
            f"suspended{after}."
        )
    elif attempts:
        yield f"To be received: {what}. Service {endpoint.service!r} tries again, after {failed}."
    else:
        yield f"To be received: {what}. No handler of service {endpoint.service!r} has committed their receipt yet."
    others = len(endpoint.members) - 1
    if others:
        yield f"It is handed out together with the messages of {_count(others, 'other conversation')} of its group."


def _outputs(state: Partition, endpoint: Endpoint) -> Iterator[str]:
    """Sentences about records that this side has sent and that may not have arrived."""
    for stream in state.streams.values():
        own = sum(
            len(run.bodies)
            for run in stream.runs
            if run.prefix.endswith(endpoint.conversation) and run.prefix[_ROLE_AT] == endpoint.role << 1
        )
        if own:
            where = f"{stream.address.topic}/{stream.address.partition}"
            yield f"Sent and not known to have arrived in {where}: {_count(own, 'record')}."
            if stream.gates:
                gate = stream.gates[0]
                yield f"Some of that may wait for earlier records to {gate.to.topic}/{gate.to.partition}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
