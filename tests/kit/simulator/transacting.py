"""An application's transactions, on the same dialogs as its direct sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import ConversationEnded, InvalidState, QueueFull, TimerRefused
from konverse.schemas.identifiers import Address
from konverse.schemas.system_messages import error_body

from .flushing import Way
from .savepoints import stage_and_undo
from .timing import some_timeout

if TYPE_CHECKING:
    from .plans import Plan
    from .sending import SessionProcess

STEPS_MAX = 4


class Tried:
    """A transaction of a session, and its expected effects."""

    def __init__(self, transaction: StagedTransaction, at: Address) -> None:
        self.transaction = transaction
        self.at = at
        """The transmission partition."""
        self.sends: list[tuple[Address, bytes]] = []
        """Target and body of each of its messages."""
        self.sent_before: dict[Plan, int] = {}
        """Number of messages sent on each dialog before it, by any path."""
        self.committed = False

    @property
    def record(self) -> tuple[bytes, int]:
        """Writer and counter of its record, as its session believes."""
        lane, counter = self.transaction.lane, self.transaction.counter
        if lane is None:
            return b"", -1
        lane, counter = lane.find(counter)
        return lane.writer, counter


class Transacting:
    """The transactions of one session."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        world = process.world
        self.place = world.choices.pick(world.places) if world.choices.chance(world.swarm.transmitting) else None
        """The partition of the transmission queue; any queue may serve."""
        if self.place is not None:
            process.session.transmit_to(self.place.address)

    @property
    def wanted(self) -> bool:
        """The application wants to make a transaction."""
        world = self._process.world
        return self.place is not None and world.choices.chance(world.swarm.transacting)

    def hear(self) -> None:
        """Read the journal of the transmission partition."""
        process, place = self._process, self.place
        if place is None or not process.session.transactions.flying:
            return
        place.follow(place.journal.end)
        flying = len(process.session.transactions.flying)
        process.hand(process.session.transmitted(place.shadow.state))
        process.world.sometimes.happened("transaction arrived", flying - len(process.session.transactions.flying))

    def transact(self) -> None:
        """Some steps on some dialogs; then commit, or drop everything."""
        process, place = self._process, self.place
        assert place is not None
        world, session = process.world, process.session
        transaction = StagedTransaction(session)
        tried = Tried(transaction, place.address)
        sent: list[tuple[Plan, bytes]] = []
        begun: list[Plan] = []
        over: list[Plan] = []
        finished: list[Plan] = []
        if process.may_begin and world.choices.chance(200):  # a whole dialog at once
            plan = self._begin(transaction)
            body = b"m%d" % world.new_message()
            transaction.send(plan.dialog, "t", body)
            transaction.end(plan.dialog)
            tried.sends.append((plan.dialog.begin.target, body))
            sent, begun, over = [(plan, body)], [plan], [plan]
        for _ in range(world.choices.choose(STEPS_MAX + 1)):
            plans = [plan for plan in (*process.plans, *begun) if not plan.over and plan not in over]
            stage_and_undo(process, transaction, [plan for plan in plans if plan not in finished])
            which = world.choices.choose(4)
            try:
                if process.may_begin and (which == 3 or not plans) and len(begun) < 2:
                    begun.append(self._begin(transaction))
                    continue
                if not plans:
                    break
                plan = world.choices.pick(plans)
                if which == 2 and world.choices.chance(world.swarm.ending + 100):
                    failed = world.choices.chance(world.swarm.failing)
                    transaction.end(plan.dialog, error_body(5, "enough") if failed else b"")
                    over.append(plan)
                    if failed:  # its messages on this dialog are not sent
                        taken_back = {body for one, body in sent if one is plan}
                        sent = [one for one in sent if one[0] is not plan]
                        tried.sends = [one for one in tried.sends if one[1] not in taken_back]
                        finished = [one for one in finished if one is not plan]
                elif which == 1 and world.choices.chance(world.swarm.finishing):
                    transaction.finish(plan.dialog)
                    finished.append(plan)
                elif which == 0 and world.choices.chance(world.swarm.timing):
                    transaction.set_timer(plan.dialog, some_timeout(world.choices))
                elif plan.left > 0 and not plan.finished and plan not in finished:
                    body = b"m%d" % world.new_message()
                    transaction.send(plan.dialog, "t", body)
                    tried.sends.append((plan.dialog.begin.target, body))
                    sent.append((plan, body))
            except (ConversationEnded, InvalidState, TimerRefused):
                continue
        self._conclude(tried, sent, begun, over, finished)

    def _conclude(
        self, tried: Tried, sent: list[tuple[Plan, bytes]], begun: list[Plan], over: list[Plan], finished: list[Plan]
    ) -> None:
        process, transaction = self._process, tried.transaction
        world = process.world
        world.history.transactions.append(tried)
        if world.choices.chance(100):
            world.sometimes.happened("transaction dropped")
            transaction.drop()
            return
        try:
            hands = process.session.commit(transaction)
        except (QueueFull, ConversationEnded, InvalidState):
            transaction.drop()
            return
        tried.committed = True
        direct = any(plan.sent for plan in process.plans if plan.dialog in transaction.dialogs)
        world.sometimes.happened("transaction waited", transaction.counter < 0 and direct)
        world.sometimes.happened("transaction of several dialogs", len(transaction.dialogs) > 1)
        process.plans += begun
        process.dialogs_left -= len(begun)
        tried.sent_before = {plan: len(plan.sent) for plan in process.plans if plan.dialog in transaction.dialogs}
        for plan, body in sent:
            plan.sent.append(body)
            plan.left -= 1
            world.history.calls.send(plan.dialog.conversation, body, world.steps, Way.TRANSACTION)
        for plan in dict.fromkeys(plan for plan, _ in sent):
            process.flushes.begin(plan, Way.TRANSACTION)
        for plan in over:
            plan.over = True
            world.history.calls.end(plan.dialog.conversation, world.steps, Way.TRANSACTION)
        for plan in finished:
            plan.finished = True
        process.hand(hands)

    def _begin(self, transaction: StagedTransaction) -> Plan:
        process = self._process
        conversation, begin, home = process.choose_dialog()
        returning = process.mailboxes.wants_returning
        dialog: SessionDialog = transaction.begin(conversation, begin, BeginOptions(returning))
        return process.plan_of(dialog, home)
