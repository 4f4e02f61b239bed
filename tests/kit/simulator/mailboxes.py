"""Bounced messages: applications look for them, confirm or redirect them, and sometimes decide twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from konverse.dialog.owner.events import Phase
from konverse.dialog.queries.hearing import needs_another_id
from konverse.dialog.queries.offering import Decisions
from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.lanes import Single
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import BounceId, Kind, Suffix

from .adopting import ADOPTING, AdoptionRun
from .flushing import Way
from .moves import find
from .places import Place

if TYPE_CHECKING:
    from .plans import Plan
    from .sending import SessionProcess

TWICE: Final = 150
"""Rate of deciding again about a bounce."""

DIALOGS_MAX: Final = 12
"""A session with fewer dialogs may begin another one for bounced messages."""

STILL: Final = 700
"""Rate of pausing after a REDIRECT."""

TO_MOVED: Final = 800
"""Rate of choosing a dialog that has moved as the destination of a redirect, when there is one."""

PATIENT: Final = 970
"""Rate of leaving a reserved dialog unused until it has moved, in runs with moves."""

RENEWED: Final = 500
"""Rate of changing the session's id before a reserved dialog is used."""

EARLY: Final = 150
"""Rate of reserving a dialog before anything has bounced, in runs with moves."""

RESERVED: Final = (150, 700)
"""Rates, in runs without and with moves, of beginning a dialog for bounced messages alone."""

RETURNING: Final = 500
"""Rate of dialogs that are begun as returning."""

STRANGE: Final = 100
"""Rate of deciding about the bounces of other sessions."""


class Mailboxes:
    """The mailboxes of one session, as the session sees them."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._decisions = Decisions()
        self._shown: Counter[BounceId] = Counter()
        """Bounce → number of decisions about it."""
        self.reserved: Plan | None = None
        """A dialog begun for bounced messages and not used before."""
        self.adoption: AdoptionRun | None = None
        """The adoption of another session's conversations."""

    @property
    def homes(self) -> list[Place]:
        """Partitions that may hold its mail."""
        return list(dict.fromkeys(plan.home for plan in self._process.plans))

    @property
    def adopts(self) -> bool:
        """An adoption is under way."""
        return self.adoption is not None and self.adoption.goes_on

    @property
    def wants_returning(self) -> bool:
        """Whether to begin the next dialog as returning. Only runs whose sessions read mailboxes have such dialogs."""
        world = self._process.world
        return bool(world.swarm.looking) and world.choices.chance(RETURNING)

    def look(self) -> bool:
        """Decide about some messages in a mailbox. False when there is nothing to decide."""
        process, world = self._process, self._process.world
        if self.adopts and self.adoption is not None:
            return self.adoption.step()
        if self.reserved is not None and self._use(self.reserved):
            return True
        if not self.homes:
            return False
        place = world.choices.pick(self.homes)
        if world.lively and self.reserved is None and world.swarm.moves and world.choices.chance(EARLY):
            return self._reserve(place)
        state = self.state_of(place)
        shut_out = needs_another_id(process.session, state)
        new = self._offered(state) + self._strange(state)
        if shut_out and not (world.lively and world.choices.chance(500)):  # otherwise after the decisions
            process.renewal.change("told")
            shut_out = False
        busy = [plan for plan in process.plans if plan.home is place and not plan.over and plan.dialog.sent]
        wanted = world.swarm.redirecting // (2 if busy else 1)
        if new and len(process.plans) < DIALOGS_MAX and world.choices.chance(wanted):
            if world.lively and self.reserved is None and world.choices.chance(RESERVED[world.swarm.moves > 0]):
                return self._reserve(place)
            process._begin(place)
        blindly = bool(len(state.mailbox)) and world.lively and world.choices.chance(TWICE)
        if blindly:
            new = [one for one in state.mailbox.entries.values() if self._is_mine(one)]
        fresh = world.choices.chance(400)
        for bounced in new[: 1 + world.choices.choose(3)]:
            plans = [plan for plan in process.plans if plan.home is place]
            open_plans = [plan for plan in plans if not plan.over]
            try:
                same = [plan for plan in open_plans if plan.dialog.begin.target == bounced.bounce.at]
                if same and not fresh:  # it tries the same target again
                    open_plans = same
                elif busy and not fresh:
                    open_plans = busy
                open_plans = self._moved(state, open_plans) or open_plans
                late = bounced.id.writer == state.writer_id  # it was redirected, and bounced again
                if open_plans and (world.lively or late) and world.choices.chance(world.swarm.redirecting):
                    self._redirect(open_plans[-1] if fresh else world.choices.pick(open_plans), bounced, blindly)
                else:
                    self._confirm(world.choices.pick(plans), bounced, blindly)
            except (QueueFull, ConversationEnded):
                break
        if shut_out:
            process.renewal.change("told")
        return bool(new)

    def _reserve(self, place: Place) -> bool:
        """Begin a dialog that is kept for bounced messages."""
        process = self._process
        known = len(process.plans)
        process._begin(place)
        if len(process.plans) > known:
            self.reserved = process.plans.pop()
        return True

    def _use(self, plan: Plan) -> bool:
        """Redirect a bounced message as the dialog's first one. The session may have changed its id before."""
        process, world = self._process, self._process.world
        state = self.state_of(plan.home)
        stays = world.swarm.moves and not self._moved(state, [plan]) and world.choices.chance(PATIENT)
        new = self._offered(state)
        if world.lively and (plan.dialog.state is DialogState.BEGINNING or stays or not new):
            return False
        self.reserved = None
        process.plans.append(plan)
        if not (new and world.lively):
            return False
        if world.choices.chance(RENEWED):
            process.renewal.change_early()
        try:
            self._redirect(plan, world.choices.pick(new))
        except (QueueFull, ConversationEnded):
            return False
        return True

    def _is_mine(self, bounced: Bounced) -> bool:
        """Whether the bounce belongs to this session or to one that it inherited."""
        return bounced.session in self._process.session.ids or bounced.session in self._process.inherited

    def _offered(self, state: Partition) -> list[Bounced]:
        """Bounces that the session is offered."""
        return self._decisions.offered(state, self._process.session, self._is_mine)

    def _strange(self, state: Partition) -> list[Bounced]:
        """Sometimes, bounces of other sessions."""
        chance = self._process.world.choices.chance
        others = [one for one in state.mailbox.entries.values() if not self._is_mine(one) and not self._shown[one.id]]
        return [one for one in others if chance(STRANGE)]

    def _confirm(self, plan: Plan, bounced: Bounced, blindly: bool) -> None:
        """Confirm a bounce; with `blindly`, without looking at earlier decisions."""
        process = self._process
        if blindly:
            hands = process.session.confirm(plan.dialog, bounced.id)
        else:
            hands = self._decisions.confirm(process.session, plan.dialog, bounced.id)
            self._note(bounced, "confirmed")
        process.world.history.asked.setdefault(bounced.id, []).append(None)
        process.hand(hands)

    def _note(self, bounced: Bounced, how: str) -> None:
        self._process.world.sometimes.happened(f"{how} once more, as it was in vain", bool(self._shown[bounced.id]))
        self._shown[bounced.id] += 1

    def _moved(self, state: Partition, plans: list[Plan]) -> list[Plan]:
        """Sometimes, the plans whose dialogs have moved away."""
        moved = [plan for plan in plans if (Role.INITIATOR, plan.dialog.conversation) in state.moves.stubs]
        return moved if moved and self._process.world.choices.chance(TO_MOVED) else []

    def _redirect(self, plan: Plan, bounced: Bounced, blindly: bool = False) -> None:
        process = self._process
        if process.world.choices.chance(process.world.swarm.redirecting // 2):
            plan.left = max(plan.left, 1)
            process._send(plan)  # so that both ways to the target are in use
        if blindly:
            hands = process.session.redirect(plan.dialog, bounced.id)
        else:
            hands = self._decisions.redirect(process.session, plan.dialog, bounced.id)
            self._note(bounced, "redirected")
        process.world.history.asked.setdefault(bounced.id, []).append(plan.dialog.conversation)
        body = bounced.body or b""
        plan.sent.append(body)
        process.world.history.calls.send(plan.dialog.conversation, body, process.world.steps, Way.REDIRECT)
        plan.redirected = True
        process.hand(hands)
        self._stand_still(plan)

    def _stand_still(self, plan: Plan) -> None:
        """Delay records to the target, so that home learns of the REDIRECT long before."""
        process, world = self._process, self._process.world
        both = plan.dialog.state is DialogState.OPEN and plan.dialog.target.window.outstanding
        if world.kafka.calm or not both or not world.choices.chance(STILL):
            return
        process._replace(plan.dialog.begin.target)
        for _ in range(2 + world.choices.choose(4)):
            if not process._producer.empty:
                process._transmit()
        process.asleep_until = world.steps + (40, 120, 0)[world.choices.choose(3)]

    def hear(self) -> None:
        """Tell the session about its redirected messages, as a follower or owner of the home does."""
        process = self._process
        dialog = process.world.choices.pick(process.session.redirecting)
        home = self._place(dialog.begin.home)
        unsent = [one for one in process.session.redirecting if one.begin.home == home.address and not one.sent]
        state = self.state_of(home)
        process.hand(process.session.read_home(state))
        behind = home.shadow.state.ingest_to < state.ingest_to  # the owner's state is ahead of the logs
        for one in unsent:
            endpoint = state.endpoint(Role.INITIATOR, one.conversation)
            if endpoint is None and not behind:
                endpoint = find(process.world, home, one.conversation)[1]
            opened = one.redirects is not None and one.redirects.opened
            if opened and endpoint is not None and endpoint.state is State.STARTED_OUTBOUND:
                process.world.fail(f"I20: {one.conversation!r} is taken for opened, and nobody has sent FIRST")

    def inherit(self, other: SessionProcess) -> None:
        """Take over from a session that is dead or taken for dead. Its writers are closed everywhere first."""
        process = self._process
        process.inherited |= {*other.session.ids, *other.inherited}
        if other.all_plans and process.world.choices.chance(ADOPTING):
            self.adoption = AdoptionRun(process, other)
            return
        for address in [*other.addresses, *(plan.home.address for plan in other.plans)]:
            lane = process.session.lane_to(address)
            for writer in sorted(process.inherited):
                prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, address.tag, lane.writer) + writer
                lane.put(Single(prefix, -1, writer), encode_suffix(Suffix()), None)
        process.hand(process.session.unsent())

    def _place(self, address: Address) -> Place:
        return next(place for place in self._process.world.places if place.address == address)

    def state_of(self, place: Place) -> Partition:
        """The state according to the logs, or according to a process that believes itself the owner."""
        world = self._process.world
        owners = [process.owner for process in world.owners if process.place is place and process.owner is not None]
        leading = [owner.fold.state for owner in owners if owner.phase is Phase.LEADING]
        if leading and world.choices.chance(500):
            return world.choices.pick(leading)
        place.follow(place.journal.end)
        return place.shadow.state
