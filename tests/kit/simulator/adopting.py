"""Successors that adopt the conversations of a session that is dead, or is taken for dead (I20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.session.adoption import Adoption, AdoptRequest, FoundState
from konverse.dialog.session.lanes import Produce
from konverse.schemas.errors import SessionTakenOver
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import Kind

from .moves import lives

if TYPE_CHECKING:
    from .sending import SessionProcess
    from .world import World

ADOPTING: Final = 700
"""Rate of successors that adopt conversations; the others only decide about bounced messages."""

FURTHER_MAX: Final = 3
"""Most messages that a successor sends on an adopted conversation."""


class AdoptionRun:
    """One session's adoption of another session's conversations."""

    def __init__(self, process: SessionProcess, other: SessionProcess) -> None:
        self._process = process
        self._plans = {plan.dialog.conversation: plan for plan in other.all_plans if not plan.redirected}
        self.before = frozenset({*other.session.ids, *other.inherited})
        """Ids under which messages may have been sent on the conversations before."""
        self.open: set[bytes] = set()
        """Adopted conversations that continue."""
        wanted = [
            AdoptRequest(plan.dialog.conversation, plan.dialog.begin, plan.dialog.returning)
            for plan in self._plans.values()
        ]
        self._machine: Adoption | None = Adoption(process.session, wanted, sorted(self.before))

    @property
    def goes_on(self) -> bool:
        """The adoption is not finished."""
        return self._machine is not None and not self._process.session.closing

    def step(self) -> bool:
        """Read one partition that the adoption needs. False when nothing changed."""
        process, machine = self._process, self._machine
        if machine is None or process.session.closing or process.session.over:
            return False
        wanted = machine.addresses
        if not wanted:
            self._machine = None
            self._take_up(machine)
            return True
        address = process.world.choices.pick(wanted)
        place = next(place for place in process.world.places if place.address == address)
        try:
            hands = machine.read(process.mailboxes.state_of(place))
        except SessionTakenOver:
            self._machine = None
            return True
        self._shut_out(hands)
        process.hand(hands)
        return machine.addresses != wanted

    def _shut_out(self, hands: list[Produce]) -> None:
        """Note the sessions that CLOSE_WRITER closes, also those that only redirected messages to the conversations."""
        closed = {
            envelope.conversation
            for hand in hands
            for header, _, _ in hand.records
            if (envelope := decode(header)).kind is Kind.CLOSE_WRITER
        }
        for session in self._process.world.sessions:
            session.shut_out |= session is not self._process and not closed.isdisjoint(session.session.ids)

    def _take_up(self, machine: Adoption) -> None:
        process = self._process
        world = process.world
        for dialog, standing in machine.finish():
            world.sometimes.happened("adopted" if standing is FoundState.OPEN else "adopted in vain")
            if standing is FoundState.OPEN:
                plan = process.plan_of(dialog, self._plans[dialog.conversation].home)
                plan.left = 1 + world.choices.choose(FURTHER_MAX)
                process.plans.append(plan)
                self.open.add(dialog.conversation)


def check_adopted(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that no message of earlier writers is received after the successor's first message."""
    for session in world.sessions:
        adoption = session.mailboxes.adoption
        for conversation in sorted(adoption.open) if adoption is not None else ():
            for side in lives(references, Role.TARGET, conversation):
                spoken = False
                for heard in side.heard[side.brought :]:
                    spoken |= heard.writer in session.session.ids
                    if spoken and adoption is not None and heard.writer in adoption.before:
                        yield f"I20: {conversation.hex()} received {heard.body!r} after what a successor has said"
