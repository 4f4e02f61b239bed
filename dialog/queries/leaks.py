"""Conversations that an application has forgotten: which side would stay open for ever, why, and what to do about it.

A side is judged by the states of both sides in the folds of their partitions, without a clock. The caller makes sure
that nothing has happened on the conversation for long, because a healthy conversation passes through each of these
states.

Source: service-broker.md section 9, "fire and forget is harmful", and R5 and R6 of section 11.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from konverse.dialog.state.endpoint import NO_TIME, Endpoint
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.operations import Abandon, Attempt, Exclude, Lost, Prioritize, Prune, Try


class SideFacts(NamedTuple):
    """One side of a conversation: the facts that show whether it was forgotten."""

    conversation: bytes
    role: Role
    service: str
    far_service: str
    contract: str
    state: State
    sent: int = 0
    """Messages sent by this side; -1 where the client that began the dialog counts them."""
    received: int = 0
    unread: int = 0
    """Messages that wait, including a DialogTimer but not EndDialog or Error."""
    end_waits: bool = False
    """EndDialog or an Error waits to be received."""
    suspended: bool = False
    timer_ms: int = NO_TIME
    """When its timer fires, in milliseconds since 1970; NO_TIME without a timer. If the last COMMIT set the timer, the
    span in milliseconds."""
    expires_ms: int = NO_TIME
    """When its lifetime is over, as `timer_ms`; NO_TIME without a lifetime."""

    @property
    def waits(self) -> bool:
        """Whether something can be received."""
        return self.unread > 0 or self.end_waits


class Cause(Enum):
    """How a side came to be forgotten."""

    END_UNREAD = "end unread"
    """The peer has ended, and no reader receives its EndDialog or Error."""
    NOT_ENDED = "not ended"
    """This side has received the peer's end, and was not ended."""
    FIRE_AND_FORGET = "fire and forget"
    """As NOT_ENDED, at a target that never sent anything."""
    END_NOT_PASSED_ON = "end not passed on"
    """The peer has ended, and this side does not know it: the peer's partition has no owner."""
    PEER_GONE = "peer gone"
    """The peer has no endpoint any more."""
    NEVER_ANSWERED = "never answered"
    """It was begun, and has no target."""
    SILENT = "silent"
    """Both sides are open, and neither waits for anything."""


def side_of(endpoint: Endpoint) -> SideFacts:
    """The facts about the side of an endpoint."""
    queue, clock = endpoint.queue, endpoint.clock
    ended = bool(queue) and queue[-1][1] == END_DIALOG  # nothing is accepted after it
    return SideFacts(
        endpoint.conversation,
        endpoint.role,
        endpoint.service,
        endpoint.far_service,
        endpoint.contract,
        endpoint.committed,
        endpoint.sent,
        endpoint.received,
        len(queue) - ended + endpoint.rings,
        ended or endpoint.error is not None,
        endpoint.suspended,
        NO_TIME if clock is None else max(clock.timer_ms, clock.timer_after_ms),
        NO_TIME if clock is None else max(clock.expires_ms, clock.expires_after_ms),
    )


def worked_on(operations: CommitOperations) -> set[int]:
    """Indices of the endpoints on which a commit has operations: a handler or an operator has worked on them."""
    found = {*operations.receive_endpoints, *(sends[0] for sends in operations.sends)}
    found.update(end.endpoint for end in operations.ends)
    for one in operations.rare:
        match one:
            case Attempt() | Try() | Prioritize():
                found.update(one.endpoints)
            case Prune() | Abandon() | Exclude() | Lost():
                pass
            case _:
                found.add(one.endpoint)
    return found


def cause_of(side: SideFacts, peer: SideFacts | None) -> Cause | None:
    """Why a side is forgotten, given that nothing has happened on its conversation for long; None when it is not.

    `peer` is None when the other side has no endpoint. A side with waiting messages is not forgotten, unless an
    EndDialog or Error is among them; `konverse why` tells what delays it. Nor is a suspended side, which
    `konverse suspended` shows.
    """
    if side.suspended:
        return None
    if side.state is State.DISCONNECTED_OUTBOUND:  # it goes by itself when its lifetime is over
        return Cause.PEER_GONE if peer is None and side.expires_ms == NO_TIME else None
    if side.end_waits:
        return Cause.END_UNREAD
    if side.unread or side.timer_ms != NO_TIME:
        return None
    if side.state not in SENDING:
        thrown = side.role is Role.TARGET and side.state is State.DISCONNECTED_INBOUND and not side.sent
        return Cause.FIRE_AND_FORGET if thrown else Cause.NOT_ENDED
    return _cause_of_open(side, peer)


def _cause_of_open(side: SideFacts, peer: SideFacts | None) -> Cause | None:
    """As `cause_of`, for a side that may send and has no waiting messages and no timer."""
    if side.expires_ms != NO_TIME:
        return None  # it fails by itself
    if peer is None:
        return Cause.NEVER_ANSWERED if side.state is State.STARTED_OUTBOUND else Cause.PEER_GONE
    if peer.state is State.DISCONNECTED_OUTBOUND:
        return Cause.END_NOT_PASSED_ON
    if peer.state not in SENDING or peer.waits or peer.timer_ms != NO_TIME or peer.expires_ms != NO_TIME:
        return None
    return Cause.SILENT


def explained(side: SideFacts, cause: Cause) -> tuple[str, str]:
    """Why the side is forgotten, and what to do: two texts."""
    failed = side.state is State.ERROR
    if cause is Cause.PEER_GONE and side.state is State.DISCONNECTED_OUTBOUND:
        return (
            _WHY_LAST.format(far=side.far_service),
            _REMEDY_LAST.format(service=side.service, far=side.far_service),
        )
    return (
        _WHY[cause].format(
            service=side.service,
            far=side.far_service,
            over="It has failed" if failed else "The other side has ended",
            word="Error" if failed else "EndDialog",
            unread=f", after {_messages(side.unread)}" if side.unread else "",
        ),
        _REMEDY[cause].format(service=side.service, far=side.far_service, word="Error" if failed else "EndDialog"),
    )


def _messages(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"


_WHY: Final = {
    Cause.END_UNREAD: "{over}, and its {word} waits for service {service!r}, which has no active reader{unread}.",
    Cause.NOT_ENDED: "{over}, service {service!r} has received its {word}, and has not ended its own side.",
    Cause.FIRE_AND_FORGET: "Service {far!r} ended without waiting for an answer (fire and forget); service {service!r} "
    "has received everything, and has not ended its own side.",
    Cause.END_NOT_PASSED_ON: "Service {far!r} has ended, and no reader has forwarded its END.",
    Cause.PEER_GONE: "The other side is gone for good: it was ended WITH CLEANUP, its queue was dropped, or its logs "
    "are lost.",
    Cause.NEVER_ANSWERED: "It was begun, and service {far!r} does not know of it: nothing was sent, or the other side "
    "is gone for good.",
    Cause.SILENT: "Both sides are open, and neither has a message to receive, a timer, or a lifetime.",
}

_REMEDY: Final = {
    Cause.END_UNREAD: "Start a reader of the queue of service {service!r} whose handler ends conversations on {word}.",
    Cause.NOT_ENDED: "Have the handler of service {service!r} end the conversation when it receives {word}.",
    Cause.FIRE_AND_FORGET: "Have the handler of service {service!r} end the conversation when it receives EndDialog, "
    "and service {far!r} wait for the other side to end first.",
    Cause.END_NOT_PASSED_ON: "Start a reader of the queue of service {far!r}.",
    Cause.PEER_GONE: "End it WITH CLEANUP.",
    Cause.NEVER_ANSWERED: "End it WITH CLEANUP; begin with a lifetime, and have the handler end on its Error (-8489).",
    Cause.SILENT: "Have one side end it when its work is done; or begin with a lifetime, and end on its Error (-8489).",
}

_WHY_LAST: Final = (
    "This side has ended, and the other side is gone: service {far!r} has ended too, and no reader has forwarded its "
    "END, or it was ended WITH CLEANUP, its queue was dropped, or its logs are lost."
)
"""For PEER_GONE, when this side has ended, too."""
_REMEDY_LAST: Final = (
    "Start readers of the queues of services {service!r} and {far!r}: the end of the other side may wait in either. If "
    "the conversation stays, end it WITH CLEANUP."
)
