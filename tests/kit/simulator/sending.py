"""The process of one session: the driver of `Session`, and an application that begins dialogs, sends and ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from konverse.dialog.queries.hearing import on_peer_ended
from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.rotation import Age
from konverse.dialog.session.session import Session
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.system_messages import error_body
from konverse.schemas.wire.records import Begin
from konverse.schemas.wire.varint import read_varint

from .flushing import Flushes, Way
from .kafka import Payload
from .latecomers import latecomers, manner
from .mailboxes import Mailboxes
from .moves import find
from .places import Place
from .plans import Plan
from .producing import IdempotentProducer, LooseProducer, Producer, abandon
from .renewing import Renewal
from .timing import for_a_while, set_timer
from .transacting import Transacting

if TYPE_CHECKING:
    from .world import World

WRITER_AT: Final = 7
COUNTER_AT: Final = 39
"""Positions of writer and counter in a header (protocol.md section 2)."""

LEAVING: Final = 100
"""Rate of closing early, for sessions that look into their mailboxes."""

LIVELY_STEPS: Final = 6
CALM_STEPS_MAX: Final = 400


class SessionProcess:
    """One client. A dead one stays dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asleep_until = 0
        self.dead = False
        self.renewal = Renewal(self)
        opened_ms = self.renewal.now_ms
        self.session = Session(world.open_id(), opened_ms)
        self.plans: list[Plan] = []
        self.closed = False
        self.shut_out = False
        """Another process has closed its writer at some partition, or may do so."""
        self.dialogs_left = world.swarm.dialogs
        self.inherited: set[bytes] = set()
        """Writers of the sessions that it succeeds."""
        self.mailboxes = Mailboxes(self)
        self.flushes = Flushes(self)
        self._club = world.choices.pick(world.clubs) if world.clubs else None
        self._loose = world.choices.chance(world.swarm.loose)
        self._producer = self._new_producer()
        self._transacting = Transacting(self)

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self) -> bool:
        """One random action; False when there is none."""
        actions: list[Callable[[], None]] = []
        if self._is_over():
            return False
        self.flushes.see()
        age = self.renewal.due
        if age is Age.DOUBTFUL:
            self.renewal.change("doubtful")
            return True
        if not self._producer.empty:
            actions += (self._transmit, self._transmit, self._transmit)
        if self._outstanding:
            actions.append(self._settle)
        if age is Age.OLD:
            actions.append(lambda: self.renewal.change("old"))
        elif self.renewal.waiting:
            actions += (self.renewal.look_for_answers, self.renewal.look_for_answers)
        if self.session.closing:
            self.closed = self.session.idle
        elif age is not Age.OLD:
            actions += self._wishes()
        if actions:
            actions[self.world.choices.choose(len(actions))]()
        return bool(actions)

    def _wishes(self) -> list[Callable[[], None]]:
        """Possible actions of the application."""
        actions: list[Callable[[], None]] = []
        sending, swarm = [plan for plan in self.plans if not plan.over], self.world.swarm
        if self._transacting.wanted and (sending or self.dialogs_left):
            actions += (self._transacting.transact, self._transacting.transact)
        if self.session.transactions.flying:
            actions.append(self._transacting.hear)
        if self.may_begin and (not self.plans or self.world.choices.chance(swarm.beginning)):
            actions.append(self._begin)
        if sending:
            actions += (self._send, self._send, self._hear_news, self.renewal.keep_token)
            if self.world.choices.chance(100):
                actions.append(self.renewal.on_news)
            done = not all(plan.left for plan in sending)
            if self.world.choices.chance(swarm.closing if done else swarm.ending):
                actions.append(self._end)
            if self.world.choices.chance(swarm.finishing):
                actions.append(self._finish)
            if self.world.choices.chance(swarm.timing):
                actions.append(partial(set_timer, self))
        patient = self.mailboxes.adopts or (swarm.looking and not self.world.choices.chance(LEAVING))
        if not (self.dialogs_left or sending or patient or self.mailboxes.reserved) and self.session.may_close:
            actions.append(self._close)
        actions += latecomers(self)
        if self.session.redirecting:
            actions.append(self.mailboxes.hear)
        if self.mailboxes.adopts or self.world.choices.chance(swarm.looking):
            actions.append(self._look)
        return actions

    def crash(self) -> None:
        """The process dies. Its requests may still arrive."""
        transactions = self.session.transactions
        self.world.sometimes.happened("session crashed")
        self.world.sometimes.happened("session crashed in a transaction", bool(transactions.waiting))
        self.world.sometimes.happened("session crashed after a transaction", bool(transactions.flying))
        self.renewal.keep_token()
        abandon(self._producer, self.world.choices)
        self.dead = True

    # ---------------------------------------------------------------------------------------------- the application

    def _begin(self, home: Place | None = None) -> None:
        """Begin a dialog; with `home`, one for bounced messages there."""
        wanted = home is None
        self.dialogs_left -= wanted
        conversation, begin, home = self.choose_dialog(home)
        try:
            dialog, hands = self.session.begin(conversation, begin, manner(self))
        except QueueFull:
            self.dialogs_left += wanted
            self.world.sometimes.happened("queue full")
            return
        self.plans.append(self.plan_of(dialog, home))
        self.hand(hands)

    @property
    def may_begin(self) -> bool:
        """The application wants another dialog."""
        sending = [plan for plan in self.plans if not plan.over]
        return bool(self.dialogs_left) and len(sending) < self.world.swarm.open_dialogs

    def choose_dialog(self, home: Place | None = None) -> tuple[bytes, Begin, Place]:
        """Id, BEGIN block and home of a new dialog."""
        world = self.world
        target, wanted = world.choices.pick(world.places), home is None
        home = home or world.choices.pick(world.places)
        conversation = group = world.identifier(b"conversation")
        if self._club is not None:  # a group lives in one partition
            self._club.group = self._club.group or conversation
            home, group = self._club.home, self._club.group
        begin = Begin("near", "far", "contract", home.address, target.address, group)
        return conversation, for_a_while(world, begin) if wanted else begin, home

    def plan_of(self, dialog: SessionDialog, home: Place) -> Plan:
        """The application's plan for a dialog that it has begun."""
        return Plan(dialog, home, self.world.swarm.messages)

    def _finish(self) -> None:
        plan = self.world.choices.pick([plan for plan in self.plans if not plan.over])
        try:
            self.hand(self.session.finish(plan.dialog))
        except (ConversationEnded, QueueFull):
            return
        plan.finished = True
        plan.left = 0

    def _send(self, plan: Plan | None = None) -> None:
        world = self.world
        plan = plan or world.choices.pick([plan for plan in self.plans if not plan.over])
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
            self._sent(plan, body, hands)
        self.renewal.doze(plan.dialog)

    def _end(self) -> None:
        world = self.world
        plans = [plan for plan in self.plans if not plan.over]
        plan = world.choices.pick([plan for plan in plans if not plan.left] or plans)
        failed = world.lively and world.choices.chance(world.swarm.failing)
        plan.over = True
        world.history.calls.end(plan.dialog.conversation, world.steps, Way.SESSION)
        self.hand(self.session.end(plan.dialog, error_body(5, "enough") if failed else b""))

    def _hear_news(self) -> None:
        """Read the home's journal, as a follower does, for the peer's end."""
        if self.world.lively and self.world.choices.chance(self.world.swarm.deaf):
            return
        plan = self.world.choices.pick([plan for plan in self.plans if not plan.over])
        state, endpoint = find(self.world, plan.home, plan.dialog.conversation)
        if endpoint is not None and endpoint.state in (State.DISCONNECTED_INBOUND, State.ERROR):
            on_peer_ended(self.session, state, endpoint)

    def _look(self) -> None:
        self.mailboxes.look()

    def _close(self) -> None:
        self.world.sometimes.happened("session closed")
        self.hand(self.session.close())

    def _is_over(self) -> bool:
        """Whether the session is over. When another process has taken it over, the application learns so, and stops."""
        if self.session.over and not self.closed:
            self.world.sometimes.happened("taken over")
            abandon(self._producer, self.world.choices)
            self._producer = self._new_producer()
            self.shut_out = self.closed = True
        return self.closed

    # --------------------------------------------------------------------------------------------------- the driver

    def write_for(self, writer: bytes, opened_ms: int) -> None:
        """Continue under a new id. Requests of the old producer may still arrive."""
        self._note_acknowledged()
        abandon(self._producer, self.world.choices)
        self._producer = self._new_producer()
        self.hand(self.session.change(writer, opened_ms))

    def _new_producer(self) -> Producer:
        world = self.world
        kind = LooseProducer if self._loose else IdempotentProducer
        return kind(world.kafka, world.choices, world.log_of)

    @property
    def _outstanding(self) -> bool:
        return any(lane.window.outstanding or lane.parked for lane in self.session.lanes.values())

    def hand(self, hands: list[Produce] | None) -> None:
        """Give records of the session to the producer. Check that counters are consecutive and never reused."""
        history = self.world.history
        for hand in hands or ():
            first = -1
            payloads: list[Payload] = []
            for header, key, body in hand.records:
                counter, _ = read_varint(header, COUNTER_AT)
                if first < 0:
                    first = counter
                if counter != first + len(payloads):
                    self.world.fail(f"I4: a session hands over counter {counter} where {first} began a run")
                payload = (header, key, body)
                writer = header[WRITER_AT : WRITER_AT + 16]
                if history.handed.setdefault((writer, hand.address, counter), payload) != payload:
                    self.world.fail(f"I4: counter {counter} of a session was used for two records")
                payloads.append(payload)
            self._producer.hand(hand.address, payloads)

    def _transmit(self) -> None:
        self._producer.transmit()
        if self._producer.failed:
            self._replace()

    def _settle(self) -> None:
        """Tell the session that its records have arrived, and retry refused destinations."""
        if self._producer.empty:
            refused = self.session.refused
            self.hand(self.session.drained())
            self._note_acknowledged()
            if refused:
                self.hand(self.session.try_again())

    def _replace(self, refusing: Address | None = None) -> None:
        """Replace the producer; the destination `refusing` refuses at the moment."""
        self.world.sometimes.happened("session restarted")
        abandon(self._producer, self.world.choices)
        self._producer = self._new_producer()
        lanes = list(self.session.lanes)
        refused = not self.world.kafka.calm and bool(lanes) and self.world.choices.chance(300)
        self.world.sometimes.happened("destination parked", refused)
        self.hand(self.session.restart(refusing or (self.world.choices.pick(lanes) if refused else None)))

    def _note_acknowledged(self) -> None:
        """Note everything that the session considers acknowledged."""
        acknowledged = self.world.history.acknowledged
        for address, lane in self.session.lanes.items():
            key = (lane.writer, address)
            acknowledged[key] = max(acknowledged.get(key, 0), lane.window.acked)

    # --------------------------------------------------------------------------------------------------------- calm

    def settle_down(self) -> None:
        """Without faults: go on for a while, then finish all dialogs and close."""
        for _ in range(LIVELY_STEPS if self.world.lively else 0):
            self.step()
        if self.session.redirecting:
            self.mailboxes.hear()
        for _ in range(CALM_STEPS_MAX):
            if self._is_over():
                break
            self._transacting.hear()
            if self.renewal.due:
                self.renewal.change("old")
            elif not self._producer.empty:
                self._transmit()
            elif self._outstanding:
                self._settle()
            elif self.world.lively or not self._conclude():
                break

    def _conclude(self) -> bool:
        """The application's next action; False when it must wait."""
        if self.renewal.waiting:
            self.renewal.look_for_answers()
            self.renewal.on_news()
            return not self._producer.empty
        if self.session.closing:
            self.closed = self.session.idle
            return False
        if any(plan.left and not plan.over for plan in self.plans):
            for plan in self.plans:
                if not plan.over:
                    plan.left = min(plan.left, 1)
            self._send_rest()
        elif self.mailboxes.look():
            return True
        elif any(not plan.over for plan in self.plans):
            self._end()
        elif self.session.may_close:
            self._close()
        else:
            self.renewal.on_news()
            return not self._producer.empty
        return True

    def _send_rest(self) -> None:
        plan = next(plan for plan in self.plans if plan.left and not plan.over)
        body = b"m%d" % self.world.new_message()
        plan.left = 0
        try:
            hands = self.session.send(plan.dialog, "t", body)
        except (ConversationEnded, QueueFull):
            return
        self._sent(plan, body, hands)

    def _sent(self, plan: Plan, body: bytes, hands: list[Produce]) -> None:
        """Note a direct send and flush it."""
        adoption, conversation = self.mailboxes.adoption, plan.dialog.conversation
        adopted = adoption is not None and conversation in adoption.open
        way = Way.SUCCESSOR if adopted else Way.SESSION
        plan.sent.append(body)
        self.world.history.calls.send(conversation, body, self.world.steps, way)
        self.hand(hands)
        self.flushes.begin(plan, way)

    @property
    def open_dialogs(self) -> list[bytes]:
        """Conversations that have not ended, as far as this process knows."""
        return [plan.dialog.conversation for plan in self.all_plans if plan.dialog.state is not DialogState.ENDED]

    @property
    def all_plans(self) -> list[Plan]:
        """All plans, with the reserved one."""
        reserved = self.mailboxes.reserved
        return self.plans if reserved is None else [*self.plans, reserved]

    @property
    def addresses(self) -> list[Address]:
        """Partitions that it may have written to; sometimes only the transmission partition."""
        place = self._transacting.place
        if place is not None and self.world.choices.chance(300):
            return [place.address]
        return list(self.session.lanes)
