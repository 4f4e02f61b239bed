"""A process with one session: the driver of `Session`, and an application that begins dialogs, sends and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.dialog.lane import DialogState, SessionDialog
from konverse.dialog.session import Hand, Session
from konverse.dialog.states import State
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Begin
from konverse.schemas.system_messages import error_body
from konverse.schemas.varint import read_varint

from .failure import SimulationFailure
from .kafka import Payload
from .moves import find
from .places import Place
from .producing import IdempotentProducer, LooseProducer, Producer, abandon

if TYPE_CHECKING:
    from .world import World

COUNTER_AT: Final = 39
"""Place of the counter in a header (protocol.md section 2)."""

STALLED_STEPS_MAX: Final = 5
LIVELY_STEPS: Final = 6
CALM_STEPS_MAX: Final = 400


class Plan:
    """What the application wants with one dialog."""

    __slots__ = ("dialog", "home", "left", "over", "seen", "sent")

    def __init__(self, dialog: SessionDialog, home: Place, left: int) -> None:
        self.dialog = dialog
        self.home = home
        self.left = left
        """Messages still to send."""
        self.sent: list[bytes] = []
        """Bodies, in the order of the calls."""
        self.over = False
        """END was called."""
        self.seen = False
        """Its endpoint was seen at home."""


class Club:
    """A conversation group that sessions put their dialogs into; it has an id of its own, or that of the first."""

    def __init__(self, home: Place, group: bytes) -> None:
        self.home = home
        self.group = group


class SessionProcess:
    """One client. When it dies it stays dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asleep_until = 0
        self.dead = False
        self.session = Session(world.identifier(b"session"))
        self.plans: list[Plan] = []
        self.closed = False
        self.shut_out = False
        """Somebody closed its writer at some partition."""
        self._dialogs_left = world.swarm.dialogs
        self._club = world.choices.pick(world.clubs) if world.clubs else None
        self._loose = world.choices.chance(world.swarm.loose)
        self._producer = self._new_producer()
        self._stalled = 0

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self) -> bool:
        """One thing, chosen among all that it could do; False when there is none."""
        actions: list[Callable[[], None]] = []
        if not self._producer.empty:
            actions += (self._transmit, self._transmit, self._transmit)
        if self._outstanding:
            actions.append(self._settle)
        if self.session.closing:
            self.closed = self.session.idle
        else:
            sending = [plan for plan in self.plans if not plan.over]
            swarm = self.world.swarm
            may_begin = self._dialogs_left and len(sending) < swarm.open_dialogs
            if may_begin and (not self.plans or self.world.choices.chance(swarm.beginning)):
                actions.append(self._begin)
            if sending:
                actions += (self._send, self._send, self._hear_news)
                done = not all(plan.left for plan in sending)
                if self.world.choices.chance(swarm.closing if done else swarm.ending):
                    actions.append(self._end)
            if not self._dialogs_left and not sending and self.session.idle:
                actions.append(self._close)
        if actions:
            actions[self.world.choices.choose(len(actions))]()
        return bool(actions)

    def crash(self) -> None:
        """The process dies; what it had sent lives on."""
        self.world.sometimes.happened("session crashed")
        abandon(self._producer, self.world.choices)
        self.dead = True

    # ---------------------------------------------------------------------------------------------- the application

    def _begin(self) -> None:
        world = self.world
        self._dialogs_left -= 1
        home, target = world.choices.pick(world.places), world.choices.pick(world.places)
        conversation = group = world.identifier(b"conversation")
        if self._club is not None:  # a group lives in one partition
            self._club.group = self._club.group or conversation
            home, group = self._club.home, self._club.group
        begin = Begin("near", "far", "contract", home.address, target.address, group)
        try:
            dialog, hands = self.session.begin(conversation, begin)
        except QueueFull:
            self._dialogs_left += 1
            world.sometimes.happened("queue full")
            return
        self.plans.append(Plan(dialog, home, world.swarm.messages))
        self._hand(hands)

    def _send(self) -> None:
        world = self.world
        plan = world.choices.pick([plan for plan in self.plans if not plan.over])
        for _ in range(min(plan.left, 1 + world.choices.choose(world.swarm.burst))):
            body = b"m%d" % world.new_message()
            try:
                hands = self.session.send(plan.dialog, ("t", "u")[world.choices.choose(2)], body)
            except QueueFull:
                world.sometimes.happened("queue full")
                return
            except ConversationEnded:
                world.sometimes.happened("ended early")
                plan.left = 0
                return
            plan.left -= 1
            plan.sent.append(body)
            self._hand(hands)

    def _end(self) -> None:
        world = self.world
        plans = [plan for plan in self.plans if not plan.over]
        plan = world.choices.pick([plan for plan in plans if not plan.left] or plans)
        failed = world.lively and world.choices.chance(world.swarm.failing)
        plan.over = True
        self._hand(self.session.end(plan.dialog, error_body(5, "enough") if failed else b""))

    def _hear_news(self) -> None:
        """What a follower of the home journals would say."""
        plan = self.world.choices.pick([plan for plan in self.plans if not plan.over])
        known, endpoint = find(self.world, plan.home, plan.dialog.conversation)
        plan.seen |= known
        over = not known if endpoint is None else endpoint.state in (State.DISCONNECTED_INBOUND, State.ERROR)
        if plan.seen and over:
            self.session.ended_by_peer(plan.dialog.conversation)

    def _close(self) -> None:
        self.world.sometimes.happened("session closed")
        self._hand(self.session.close())

    # --------------------------------------------------------------------------------------------------- the driver

    def _new_producer(self) -> Producer:
        world = self.world
        kind = LooseProducer if self._loose else IdempotentProducer
        return kind(world.kafka, world.choices, world.log_of)

    @property
    def _outstanding(self) -> bool:
        return any(lane.window.outstanding or lane.parked for lane in self.session.lanes.values())

    def _hand(self, hands: list[Hand] | None) -> None:
        history, writer = self.world.history, self.session.writer
        for hand in hands or ():
            first = -1
            payloads: list[Payload] = []
            for header, key, body in hand.records:
                counter, _ = read_varint(header, COUNTER_AT)
                if first < 0:
                    first = counter
                if counter != first + len(payloads):
                    raise SimulationFailure(f"I4: a session hands over counter {counter} where {first} began a run")
                payload = (header, key, body)
                if history.handed.setdefault((writer, hand.address, counter), payload) != payload:
                    raise SimulationFailure(f"I4: counter {counter} of a session was used for two records")
                payloads.append(payload)
            self._producer.hand(hand.address, first, payloads)

    def _transmit(self) -> None:
        self._producer.transmit()
        if self._producer.failed:
            self._replace()

    def _settle(self) -> None:
        """Tell the session what became of its records, and whether it may try a destination again."""
        producer, session = self._producer, self.session
        if producer.empty and session.refused:
            self._hand(session.try_again())
            return
        if isinstance(producer, IdempotentProducer):
            if producer.empty:
                self._hand(session.drained())
                self._note_acknowledged()
        elif producer.acknowledgements:
            self._stalled = 0
            address, counter, offset = producer.next_acknowledgement()
            hands = session.delivered(address, counter, offset)
            self._note_acknowledged()
            if hands is None:
                self.world.sometimes.happened("session asked for a producer")
                self._replace()
            else:
                self._hand(hands)
        elif producer.empty:
            self._stalled += 1
            if self.world.kafka.calm or self._stalled > STALLED_STEPS_MAX:
                self._replace()

    def _replace(self) -> None:
        self.world.sometimes.happened("session restarted")
        abandon(self._producer, self.world.choices)
        self._producer = self._new_producer()
        self._stalled = 0
        lanes = list(self.session.lanes)
        refused = not self.world.kafka.calm and bool(lanes) and self.world.choices.chance(300)
        self.world.sometimes.happened("destination parked", refused)
        self._hand(self.session.restart(self.world.choices.pick(lanes) if refused else None))

    def _note_acknowledged(self) -> None:
        """The application counts on these from now on."""
        acknowledged, writer = self.world.history.acknowledged, self.session.writer
        for address, lane in self.session.lanes.items():
            acknowledged[writer, address] = max(acknowledged.get((writer, address), 0), lane.window.acked)

    # --------------------------------------------------------------------------------------------------------- calm

    def settle_down(self) -> None:
        """Without faults: go on for a while, then finish what was begun, and close."""
        for _ in range(LIVELY_STEPS if self.world.lively else 0):
            self.step()
        for _ in range(CALM_STEPS_MAX):
            if not self._producer.empty:
                self._transmit()
            elif self._outstanding:
                self._settle()
            elif self.world.lively:
                break
            elif self.session.closing:
                self.closed = self.session.idle
                break
            elif any(plan.left and not plan.over for plan in self.plans):
                for plan in self.plans:
                    if not plan.over:
                        plan.left = min(plan.left, 1)
                self._send_rest()
            elif any(not plan.over for plan in self.plans):
                self._end()
            elif self.session.idle:
                self._close()
            else:
                break

    def _send_rest(self) -> None:
        plan = next(plan for plan in self.plans if plan.left and not plan.over)
        body = b"m%d" % self.world.new_message()
        plan.left = 0
        try:
            hands = self.session.send(plan.dialog, "t", body)
        except (ConversationEnded, QueueFull):
            return
        plan.sent.append(body)
        self._hand(hands)

    @property
    def open_dialogs(self) -> list[bytes]:
        """Conversations that nobody has ended yet, as far as this process knows."""
        return [plan.dialog.conversation for plan in self.plans if plan.dialog.state is not DialogState.ENDED]

    @property
    def addresses(self) -> list[Address]:
        """Partitions that it may have written to."""
        return list(self.session.lanes)
