"""Processes that ask for the outcome of a session's messages, because it is dead or taken for dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.dialog.session.outcome import OutcomeQuery
from konverse.dialog.session.rotation import Unheard
from konverse.schemas.identifiers import Address
from konverse.schemas.wire import token
from konverse.schemas.wire.records import NO_SEQUENCE
from konverse.schemas.wire.token import Sent, Token

from .history import Told
from .kafka import Outcome, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .sending import SessionProcess
    from .world import World

SETTLE_STEPS_MAX = 60


class Asker:
    """A process that has a token and asks for its outcome."""

    def __init__(self, world: World, session: SessionProcess, sent: list[Sent]) -> None:
        self.world = world
        self.asleep_until = 0
        self.done = False
        said = Token(tuple(sent), session.session.transactions.address)
        self._asking = OutcomeQuery(token.decode(token.encode(said)))
        self._bodies = [
            (one.conversation, one.sequence, bodies, one.held >= 0)
            for one in sent
            if one.sequence >= 0
            for bodies in self._sent_on(session, one)
        ]
        self._changed = {one.conversation for one in sent if one.writer != session.session.writer}
        self._writer = world.open_id()
        self._waiting: list[Request] = []

    def _sent_on(self, session: SessionProcess, sent: Sent) -> Iterator[list[bytes]]:
        """The bodies of the messages that `sent` names.

        On dialogs with redirected messages the plan's order may differ from that of the counters, so the counters
        decide.
        """
        plan = next(plan for plan in session.all_plans if plan.dialog.conversation == sent.conversation)
        if not plan.redirected:
            yield plan.sent[sent.sequence :][: len(sent.counters) or 1]
            return
        keys = [(sent.writer, sent.address, counter) for counter in sent.counters]
        handed = [self.world.history.handed.get(key) for key in keys]
        bodies = [one[2] for one in handed if one is not None and one[2] is not None]
        if handed and len(bodies) == len(handed):
            yield bodies

    def step(self) -> bool:
        """One random action."""
        actions: list[Callable[[], None]] = [self._read]
        if self._waiting:
            actions += (self._transmit, self._transmit)
        actions[self.world.choices.choose(len(actions))]()
        return True

    def crash(self) -> None:
        """The process dies. It reports nothing."""
        self.done = True

    def settle_down(self) -> None:
        """Without faults: send all questions, then read the answers."""
        for _ in range(SETTLE_STEPS_MAX):
            if self._waiting:
                self._transmit()
        if not self.done:
            self._read()

    def _ask(self) -> None:
        for address, (header, key, body) in self._asking.ask(self._writer):
            self._waiting.append(Request(self.world.log_of(address), [(header, key, body)]))

    def _transmit(self) -> None:
        """Send the first record again until Kafka acknowledges it."""
        if self.world.kafka.send(self._waiting[0]) is Outcome.ACKNOWLEDGED:
            del self._waiting[0]

    def _read(self) -> None:
        for address in self._asking.addresses:
            self._look_at(address)
        outcome = self._asking.outcome
        if outcome is None:
            self._ask()
            return
        self.done = True
        happened, history = self.world.sometimes.happened, self.world.history
        if self._asking.expired:
            happened("outcome expired")
            return
        missing = {c.bytes: number for c, number in outcome.missing.items() if number != NO_SEQUENCE}
        for conversation, first, bodies, held in self._bodies:
            received = min(max(missing.get(conversation, first + len(bodies)) - first, 0), len(bodies))
            history.told.append(Told(bodies, received, held))
            happened("outcome: received", received > 0)
            happened("outcome: not received", received < len(bodies))
            happened("outcome under another id", conversation in self._changed)

    def _look_at(self, address: Address) -> None:
        place = self.world.place_of(address)
        place.follow(place.journal.end)
        if self._asking.read(place.shadow.state) is Unheard.ANOTHER:
            self._writer = self.world.open_id()
            self._waiting.clear()
            self._ask()
