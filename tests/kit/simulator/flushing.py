"""Messages reported as done, which later calls on the same side of the conversation must not overtake (I22)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.schemas.errors import MalformedRecord, TransactionLost
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import REFUSED, Envelope, Kind

from .moves import lives

if TYPE_CHECKING:
    from konverse.dialog.owner.owner import Owner

    from .handlers import Work
    from .plans import Plan
    from .sending import SessionProcess
    from .world import World


class Way(Enum):
    """How something is sent."""

    SESSION = "session"
    SUCCESSOR = "successor"
    TRANSACTION = "transaction"
    REDIRECT = "REDIRECT"
    HANDLER = "handler"
    BATCH = "batch"
    OPERATOR = "operator"


class Call(NamedTuple):
    """When something was called, and how."""

    step: int
    way: Way


class Reported(NamedTuple):
    """Messages that were reported as done."""

    conversation: bytes
    bodies: list[bytes]
    call: Call
    """When they were reported, and how they were sent."""


@dataclass(slots=True)
class Calls:
    """All calls on the initiator's side of conversations, by any process, and all reports."""

    sent: dict[tuple[bytes, bytes], Call] = field(default_factory=dict)
    """Conversation and body → the first call."""
    ended: dict[bytes, Call] = field(default_factory=dict)
    """Conversation → the first END."""
    redirected: dict[bytes, int] = field(default_factory=dict)
    """Body → step of the latest REDIRECT."""
    reported: list[Reported] = field(default_factory=list)

    def send(self, conversation: bytes, body: bytes, step: int, way: Way) -> None:
        """Note a SEND or REDIRECT."""
        self.sent.setdefault((conversation, body), Call(step, way))
        if way is Way.REDIRECT:
            self.redirected[body] = step

    def end(self, conversation: bytes, step: int, way: Way) -> None:
        """Note an END CONVERSATION, with or without an Error."""
        self.ended.setdefault(conversation, Call(step, way))


class _Flush(NamedTuple):
    returned: Callable[[], bool]
    plan: Plan
    bodies: list[bytes]
    way: Way


class Flushes:
    """Flushes of the dialogs of one session."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._waiting: list[_Flush] = []
        """Flushes that have not returned."""

    def begin(self, plan: Plan, way: Way) -> None:
        """Flush a dialog. Of flushes of direct sends only one waits at a time."""
        if way is not Way.TRANSACTION and any(flush.plan is plan for flush in self._waiting):
            return
        session, dialog = self._process.session, plan.dialog
        acknowledged, arrived = session.acknowledged(dialog), session.transactions.arrived(dialog)
        self._waiting.append(_Flush(lambda: acknowledged() and arrived(), plan, [*plan.sent], way))

    def see(self) -> None:
        """Note the flushes that return: no later call may overtake the messages before them."""
        process, waiting = self._process, self._waiting
        world = process.world
        self._waiting = []
        for flush in waiting:
            try:
                returned = flush.returned()
            except TransactionLost:
                continue  # nothing is reported as done
            if not returned:
                self._waiting.append(flush)
                continue
            world.sometimes.happened("transaction flushed", flush.way is Way.TRANSACTION)
            if world.history.skewed.isdisjoint(process.session.ids):  # else a record may be refused and be sent again
                call = Call(world.steps, flush.way)
                world.history.calls.reported.append(Reported(flush.plan.dialog.conversation, flush.bodies, call))


class Settling:
    """Messages sent by handlers that `settle` has not reported yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.committed: list[Work] = []
        """Executions in commits of an owner."""

    def look(self, owner: Owner) -> None:
        """Report everything, as a reader's `settle` does, when the owner has nothing under way."""
        if not owner.settled or not self.committed:
            return
        committed, self.committed = self.committed, []
        bodies: dict[bytes, list[bytes]] = {}
        for reply in (reply for work in committed for reply in work.replies):
            if reply.role is Role.INITIATOR:
                bodies.setdefault(reply.conversation, []).append(reply.body)
        call = Call(self._world.steps, Way.HANDLER)
        self._world.history.calls.reported += [Reported(*said, call) for said in bodies.items()]


def check_reported(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that reported messages come before all later calls on the same side, by any process."""
    calls = world.history.calls
    later: dict[bytes, list[tuple[bytes, Call]]] = {}
    for (conversation, body), call in calls.sent.items():
        later.setdefault(conversation, []).append((body, call))
    for reported in calls.reported:
        if reported.conversation in world.history.begun_again:
            continue
        since = {body: one for body, one in later.get(reported.conversation, ()) if one.step > reported.call.step}
        yield from _overtaken(world, references, reported, since)
    yield from _behind_an_end(world, calls)


def _overtaken(
    world: World, references: Mapping[Address, SecondFold], reported: Reported, since: Mapping[bytes, Call]
) -> Iterator[str]:
    parts = lives(references, Role.TARGET, reported.conversation)
    if not since or sum(not part.generation for part in parts) != 1:
        return
    heard = [one.body for part in parts for one in part.heard[part.brought :]]
    first = next((place for place, body in enumerate(heard) if body in since), len(heard))
    if first == len(heard):
        return
    _note(world, reported.call.way, {since[body].way for body in heard[first:] if body in since})
    overtaken = [body for body in heard[first:] if body in reported.bodies and _stays(world, reported, body)]
    if overtaken:
        way = since[heard[first]].way.value
        yield f"I22: {reported.conversation.hex()}: {heard[first]!r} ({way}) overtook {overtaken}, which was reported"


def _stays(world: World, reported: Reported, body: bytes) -> bool:
    """Whether the message was not redirected after the report. A redirected message is sent again, later."""
    return world.history.calls.redirected.get(body, -1) <= reported.call.step


def _note(world: World, way: Way, since: Iterable[Way]) -> None:
    since = {*since}
    happened = world.sometimes.happened
    happened("handler sent after a flush", way not in (Way.BATCH, Way.HANDLER) and Way.HANDLER in since)
    happened("session sent after a handler", way is Way.HANDLER and Way.SESSION in since)
    happened("successor sent after a flush", Way.SUCCESSOR in since)
    happened("handler sent after a batch", way is Way.BATCH and Way.HANDLER in since)


def _behind_an_end(world: World, calls: Calls) -> Iterator[str]:
    """Check that a later END is in the log after the messages reported before it."""
    for place in world.places:
        bodies, ends = _first(world, place.address)
        for reported in calls.reported:
            end = calls.ended.get(reported.conversation)
            at = ends.get(reported.conversation)
            if end is None or at is None or end.step <= reported.call.step:
                continue
            if reported.conversation in world.history.begun_again:
                continue
            late = [
                body
                for body in reported.bodies
                if bodies.get((reported.conversation, body), -1) > at and _stays(world, reported, body)
            ]
            if late:
                yield f"I22: {reported.conversation.hex()}: its END ({end.way.value}) overtook {late}, reported before"


def _first(world: World, address: Address) -> tuple[dict[tuple[bytes, bytes], int], dict[bytes, int]]:
    """Offsets of the first record with each body on its conversation, and of the first END of each initiator.

    The keys contain the conversation: a message that was redirected without effect arrives on another conversation,
    when the session to which it came back redirects it again.
    """
    bodies: dict[tuple[bytes, bytes], int] = {}
    ends: dict[bytes, int] = {}
    for record in world.log_of(address).records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if envelope.role is Role.INITIATOR and _was_called(envelope, record.body or b""):
                ends.setdefault(envelope.conversation, record.offset)
            elif envelope.kind in (Kind.MESSAGE, Kind.PENDING) and record.body is not None:
                bodies.setdefault((envelope.conversation, record.body), record.offset)
    return bodies, ends


def _was_called(envelope: Envelope, body: bytes) -> bool:
    """Whether an application or an operator called this END, and not a judge, a lifetime, or a refused BEGIN."""
    if envelope.kind is Kind.ERROR:
        return any(word in body for word in (b"enough", b"because", b"given up"))
    return envelope.kind is Kind.END and not envelope.flags & REFUSED
