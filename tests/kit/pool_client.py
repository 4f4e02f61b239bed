"""A process with a pool in the world of `pool_world`. It acts as the driver of a pool does, but never waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from konverse.dialog.pool.places import (
    AskVerdict,
    Drop,
    Effect,
    EndSide,
    Forget,
    GiveUp,
    MakeRoom,
    PoolPlace,
    Recycle,
    Resend,
    Stage,
    Way,
)
from konverse.dialog.pool.pool import PoolState
from konverse.dialog.pool.recycling import (
    Farewell,
    ask_verdict,
    close_stream,
    end_once,
    is_answer,
    is_used,
    left_behind,
    recycle,
    standing_of,
    stream_ended,
)
from konverse.dialog.session.adoption import Adoption, AdoptRequest
from konverse.dialog.session.adoption import FoundState as Adoptable
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.state.mailbox import Bounced
from konverse.routing.documents import read_redirect
from konverse.routing.loops import followed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import conversation_in, mark_of, pool_group, pool_namespace, session_writer
from konverse.schemas.wire.records import BounceId, Timer
from tests.kit.builders import Row, Side, begin_block, record

if TYPE_CHECKING:
    from tests.kit.pool_world import World

EOS: Final = "EndOfStream"
KEYS: Final = 3
GROUPS: Final = [pool_group(pool_namespace("database", "pool"), str(key)) for key in range(KEYS)]
"""Group of each key."""
NOW_MS: Final = 1_800_000_000_000


class Client:
    """A process with a pool."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session = Session(session_writer(NOW_MS, number))
        self.pooling = PoolState(max_age_ms=world.age_ms, timer_ms=world.timer_ms, end_of_stream=EOS, follow=follow)
        self.dialogs: dict[bytes, SessionDialog] = {}
        self.way: deque[tuple[Side, Row]] = deque()
        """Records that the session has handed over and that are not in their logs yet."""
        self.unacknowledged: list[tuple[int, bytes]] = []
        self._decided: dict[BounceId, Callable[[], bool]] = {}
        self._adopted: set[bytes] = set()

    def hand(self, hands: list[Produce]) -> None:
        """Put the records on their way, in order."""
        for hand in hands:
            side = self.world.at(hand.address)
            self.way.extend((side, (header, record(body, self.world.now_ms))) for header, _, body in hand.records)

    def arrive(self, count: int) -> None:
        """The first `count` records on their way reach their logs. Sends count as acknowledged when none is left."""
        for _ in range(min(count, len(self.way))):
            side, row = self.way.popleft()
            self.world.hear(side, row)
        if not self.way and self is self.world.client:
            self.hand(self.session.drained())
            if self.session.idle:
                self.world.acknowledged.update(self.unacknowledged)
                self.unacknowledged.clear()

    # ------------------------------------------------------------------------------------------------------ sending

    def send(self, key: int, body: bytes) -> bool:
        """One call of `Pool.send`; False when it would have to wait."""
        group = GROUPS[key]
        place, effects = self.pooling.place(group, self.world.now_ms)
        self.do(effects)
        if place.waits:
            return False
        dialog = self.dialogs[place.current.conversation] if place.current else self.open(place)
        try:
            self.hand(self.session.send(dialog, "order", body))
        except QueueFull:
            return False
        except ConversationEnded:
            self.do(self.pooling.broken(dialog.conversation, None, self.world.now_ms))
            return False
        self.unacknowledged.append((key, body))
        if place.current is not None and self.world.random.random() < self.world.recycling:
            self.do([Recycle(place.current)])
        return True

    def open(self, place: PoolPlace) -> SessionDialog:
        """A conversation for a place: adopted from a dead process, or a new one."""
        if place.group not in self._adopted:
            self._adopted.add(place.group)
            self._go_on(place)
            if place.current is not None:
                return self.dialogs[place.current.conversation]
        self.world.begun += 1
        conversation = conversation_in(place.group, self.world.begun.to_bytes(16, "big"))
        before, way = place.way, self.pooling.way_of(place, self.world.now_ms)
        if before and not way and place.living:
            # the redirecting service is asked again and may still redirect messages that went the former way
            self.world.broken.add(mark_of(place.group))
        begin = begin_block(target=self.world.asked(way).queue, group=place.group)
        dialog, hands = self.session.begin(conversation, begin, BeginOptions(returning=True))
        self.hand(hands)
        self.hand(self.session.set_timer(dialog, Timer(self.world.timer_ms, EOS)))
        self._use(place, dialog)
        return dialog

    def _use(self, place: PoolPlace, dialog: SessionDialog, *, adopted: bool = False) -> None:
        self.pooling.begun(place, dialog.conversation, self.world.now_ms, adopted=adopted)
        self.dialogs[dialog.conversation] = dialog

    def _go_on(self, place: PoolPlace) -> None:
        left = left_behind(self.world.home.state, [place.group])
        if not left.conversations:
            return
        for conversation, code in left.codes.items():
            self.pooling.remember(conversation, code)
        wanted = [AdoptRequest(one, begin_block(group=place.group), returning=True) for one in left.conversations]
        adopting = Adoption(self.session, wanted, left.writers)
        self.hand(self.session.unsent())
        for _ in range(60):
            for address in adopting.addresses:
                self.hand(adopting.read(self.world.at(address).state))
            self.arrive(len(self.way))
            self.world.deliver()
        assert not adopting.addresses, "conversations can be adopted"
        for dialog, standing in adopting.finish():
            target = self.world.at(dialog.begin.target)
            if standing is Adoptable.OPEN and stream_ended(target.state, dialog.conversation, EOS):
                self.hand(self.session.finish(dialog))
            elif standing is Adoptable.OPEN and place.current is None:
                place.way, place.way_ms = self.world.way_to(target), self.world.now_ms
                self._use(place, dialog, adopted=True)
                continue
            elif standing is Adoptable.OPEN:
                self.hand(recycle(self.session, dialog, EOS))
            elif standing is Adoptable.NOT_OPENED:
                self.hand(end_once(self.session, dialog))
            if standing in (Adoptable.OPEN, Adoptable.FINISHED, Adoptable.ENDED):
                ended = standing is Adoptable.ENDED
                self.pooling.closes(place, dialog.conversation, self.world.now_ms, ended=ended)
                self.dialogs[dialog.conversation] = dialog
        self.do(self.pooling.read_home([], self._bounced(), self.world.now_ms))

    # ------------------------------------------------------------------------------------------------------- effects

    def do(self, effects: list[Effect]) -> None:
        """Carry out effects as the driver of a pool does."""
        for effect in effects:
            handlers: dict[type, Callable[[Any], None]] = {
                Recycle: self._recycle,
                AskVerdict: self._ask_verdict,
                Resend: self._resend,
                GiveUp: lambda e: self._let_go(e.place, e.bounced, given_up=True),
                MakeRoom: lambda _: None,
                Drop: lambda e: self._let_go(e.place, e.bounced),
                EndSide: lambda e: self.hand(end_once(self.session, self.dialogs[e.pooled.conversation])),
                Forget: self._forget,
            }
            handlers[type(effect)](effect)

    def _recycle(self, effect: Recycle) -> None:
        pooled = effect.pooled
        if pooled.stage is not Stage.OPEN:
            return
        dialog = self.dialogs[pooled.conversation]
        try:
            self.hand(close_stream(self.session, dialog, EOS))
        except QueueFull:
            return
        except ConversationEnded:
            self.do(self.pooling.broken(pooled.conversation, None, self.world.now_ms))
            return
        self.pooling.recycled(pooled, self.world.now_ms, used=is_used(dialog))
        if pooled.conversation in self.world.ended:
            self.world.broken.add(mark_of(pooled.conversation))

    def _ask_verdict(self, effect: AskVerdict) -> None:
        dialog = self.dialogs[effect.pooled.conversation]
        self.hand(ask_verdict(self.session, dialog, EOS if effect.pooled.wants_end_of_stream else None))

    def _resend(self, effect: Resend) -> None:
        for bounced in effect.bounced:
            current = effect.place.current
            dialog = self.dialogs[current.conversation] if current is not None else self.open(effect.place)
            try:
                self.hand(self.session.redirect(dialog, bounced.id))
            except (ConversationEnded, QueueFull):
                self.pooling.hold_sends(effect.place)
                return
            self._decided[bounced.id] = lambda to=dialog, one=bounced.id: _settled(to, one)  # type: ignore[misc]
            self.pooling.resent(effect.place)
        self.pooling.resume_sends(effect.place)

    def _let_go(self, place: PoolPlace, many: list[Bounced], *, given_up: bool = False) -> None:
        current = place.current
        dialog = self.dialogs[current.conversation] if current is not None else self.open(place)
        for bounced in many:
            if given_up:
                self.world.given_up[bounced.body or b""] += 1
            self.hand(self.session.confirm(dialog, bounced.id))
            self._decided[bounced.id] = lambda: not self.way

    def _forget(self, effect: Forget) -> None:
        self.session.ended_by_peer(effect.pooled.conversation)
        self.dialogs.pop(effect.pooled.conversation, None)

    def _bounced(self) -> list[Bounced]:
        home, found = self.world.home.state, []
        for one in home.mailbox.entries.values():
            writer = home.writers.get(one.session)
            heard = one.session in self.session.ids or (writer is not None and writer.closed_at is not None)
            decided = self._decided.get(one.id)
            if heard and (decided is None or decided()) and mark_of(one.conversation) in self.pooling.places:
                found.append(one)
        return found

    def look(self) -> None:
        """The pool's thread reads the home partition and the clock."""
        self.hand(self.session.read_home(self.world.home.state))
        home, dialogs = self.world.home.state, self.dialogs
        known = list(self.pooling.known.values())
        standings = [(one, standing_of(home, self.session, dialogs[one.conversation])) for one in known]
        bounced = self._bounced()
        found = {mark_of(one.conversation) for one in bounced}
        for place in [place for mark, place in self.pooling.resends_pending.items() if mark not in found]:
            self.pooling.resume_sends(place)
        self.do(self.pooling.read_home(standings, bounced, self.world.now_ms))
        silent = [one for one in self.pooling.known.values() if one.misled and one.stage is Stage.BROKEN]
        self.do(self.pooling.tick(self.world.now_ms))
        given_up = (one for one in silent if one.stage is not Stage.BROKEN and one not in one.place.awaits)
        self.world.broken.update(mark_of(one.conversation) for one in given_up)

    def hear(self, farewell: Farewell) -> None:
        """Like `Pool.on_farewell`."""
        conversation, now_ms = farewell.conversation, self.world.now_ms
        pooled = self.pooling.known.get(conversation)
        if pooled is None:
            return
        closing, code = not farewell.kept, farewell.first_code
        self.do(self.pooling.ended(conversation) if closing else self.pooling.broken(conversation, code, now_ms))

    def keeps(self, farewell: Farewell) -> bool:
        """Like `Pool.keeps`."""
        pooled = self.pooling.known.get(farewell.conversation)
        if pooled is None:
            return False
        return not is_answer(self.session, self.dialogs[pooled.conversation], pooled, farewell)


def follow(way: Way, body: bytes) -> Way:
    """The way that a pool takes from a RedirectTo document."""
    return followed((Target("router-0"), *way), read_redirect(body))[1:]


def _settled(dialog: SessionDialog, bounce: BounceId) -> bool:
    redirects = dialog.redirects
    return bounce not in dialog.held and (redirects is None or redirects.counter is None)
