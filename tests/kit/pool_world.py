"""A pool over two folded partitions and a lossy way to them, seed by seed, without servers.

What decides is the product's: `Pooling`, the session, the folds, the handler of the initiator's queue and the adoption
of a dead sender's conversations. What is simulated: when records and outputs arrive, what the target's handlers do,
when the sender dies, and what of its last records still arrives, early or late.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from konverse.dialog.adopting import Adopting, Wanted
from konverse.dialog.adopting import Standing as Adoptable
from konverse.dialog.lane import SessionDialog
from konverse.dialog.mailbox import Bounced
from konverse.dialog.pooled import (
    AskVerdict,
    Drop,
    Effect,
    End,
    Forget,
    GiveUp,
    Place,
    Recycle,
    Resend,
    Stage,
)
from konverse.dialog.pooling import Pooling
from konverse.dialog.recycling import (
    Farewell,
    answer,
    ask_verdict,
    conversation_in,
    left_behind,
    mark_of,
    recycle,
    standing_of,
    stream_ended,
)
from konverse.dialog.session import Session
from konverse.dialog.staging import OwnerSettings, Staging
from konverse.dialog.transaction import Transaction
from konverse.dialog.writing import Hand
from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.errors import ConversationEnded, QueueFull
from konverse.schemas.identifiers import pool_group, pool_namespace, session_writer
from konverse.schemas.journal import Operations
from konverse.schemas.operations import Fail
from konverse.schemas.records import BounceId, Role
from tests.kit.builders import Row, Side, anything, begin_block, record

EOS: Final = "EndOfStream"
NOW_MS: Final = 1_800_000_000_000
CALM_ROUNDS: Final = 400
KEYS: Final = 3
AGE_MS: Final = 40_000
PLAIN_END: Final = 0
APPLICATION_ERROR: Final = 4711
BROKER_ERROR: Final = -9719


class Client:
    """A process with a pool."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session = Session(session_writer(NOW_MS, number))
        self.pooling = Pooling(max_age_ms=AGE_MS, end_of_stream=EOS)
        self.dialogs: dict[bytes, SessionDialog] = {}
        self.way: deque[tuple[Side, Row]] = deque()
        """Records that were handed over and have not arrived."""
        self.unacknowledged: list[tuple[int, bytes]] = []
        self._decided: dict[BounceId, Callable[[], bool]] = {}
        self._adopted: set[bytes] = set()

    def hand(self, hands: list[Hand]) -> None:
        """Records leave, in order."""
        for hand in hands:
            side = self.world.home if hand.address == self.world.home.address else self.world.target
            self.way.extend((side, (header, record(body, self.world.now_ms))) for header, _, body in hand.records)

    def arrive(self, count: int) -> None:
        """The first of them are in their logs; when all are, they count."""
        for _ in range(min(count, len(self.way))):
            side, row = self.way.popleft()
            side.take_all([row])
        if not self.way and self is self.world.client:
            self.hand(self.session.drained())
            if self.session.idle:
                self.world.acknowledged.update(self.unacknowledged)
                self.unacknowledged.clear()

    # ------------------------------------------------------------------------------------------------------ sending

    def send(self, key: int, body: bytes) -> bool:
        """One call of `Pool.send`; False when it had to wait."""
        group = pool_group(pool_namespace("database", "pool"), str(key))
        place, effects = self.pooling.place(group, self.world.now_ms)
        self.do(effects)
        if place.awaited is not None:
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

    def open(self, place: Place) -> SessionDialog:
        """A conversation for a place, left by another process or new."""
        if place.group not in self._adopted:
            self._adopted.add(place.group)
            self._go_on(place)
            if place.current is not None:
                return self.dialogs[place.current.conversation]
        self.world.begun += 1
        conversation = conversation_in(place.group, self.world.begun.to_bytes(16, "big"))
        dialog, hands = self.session.begin(conversation, begin_block(group=place.group), returning=True)
        self.hand(hands)
        self.hand(self.session.set_timer(dialog, AGE_MS + 60_000))
        self._use(place, dialog)
        return dialog

    def _use(self, place: Place, dialog: SessionDialog) -> None:
        self.pooling.begun(place, dialog.conversation, self.world.now_ms)
        self.dialogs[dialog.conversation] = dialog

    def _go_on(self, place: Place) -> None:
        left, writers = left_behind(self.world.home.state, place.group)
        if not left:
            return
        wanted = [Wanted(one, begin_block(group=place.group), returning=True) for one in left]
        adopting = Adopting(self.session, wanted, writers)
        self.hand(self.session.unsent())
        for _ in range(60):
            for address in adopting.addresses:
                side = self.world.home if address == self.world.home.address else self.world.target
                self.hand(adopting.hear(side.state))
            self.arrive(len(self.way))
            self.world.deliver()
        assert not adopting.addresses, "conversations can be adopted"
        for dialog, standing in adopting.finish():
            if standing is Adoptable.OPEN and stream_ended(self.world.target.state, dialog.conversation, EOS):
                self.hand(self.session.finish(dialog))
            elif standing is Adoptable.OPEN and place.current is None:
                self._use(place, dialog)
                continue
            elif standing is Adoptable.OPEN:
                self.hand(recycle(self.session, dialog, EOS))
            elif standing is Adoptable.NOT_OPENED:
                self.hand(self.session.end(dialog))
            if standing in (Adoptable.OPEN, Adoptable.FINISHED):
                self.pooling.closes(place, dialog.conversation, self.world.now_ms)
                self.dialogs[dialog.conversation] = dialog
        self.do(self.pooling.home_says([], self._bounced(), self.world.now_ms))

    # ---------------------------------------------------------------------------------------------------- what to do

    def do(self, effects: list[Effect]) -> None:
        """What the driver of a pool does."""
        for effect in effects:
            handlers: dict[type, Callable[[Any], None]] = {
                Recycle: self._recycle,
                AskVerdict: lambda e: self.hand(ask_verdict(self.session, self.dialogs[e.pooled.conversation])),
                Resend: self._resend,
                GiveUp: lambda e: self._let_go(e.place, e.bounced, given_up=True),
                Drop: lambda e: self._let_go(e.place, e.bounced),
                End: lambda e: self.hand(self.session.end(self.dialogs[e.pooled.conversation])),
                Forget: self._forget,
            }
            handlers[type(effect)](effect)

    def _recycle(self, effect: Recycle) -> None:
        pooled = effect.pooled
        if pooled.stage is not Stage.OPEN:
            return
        try:
            self.hand(recycle(self.session, self.dialogs[pooled.conversation], EOS))
        except QueueFull:
            return
        except ConversationEnded:
            self.do(self.pooling.broken(pooled.conversation, None, self.world.now_ms))
            return
        self.pooling.recycled(pooled, self.world.now_ms)

    def _resend(self, effect: Resend) -> None:
        for bounced in effect.bounced:
            current = effect.place.current
            dialog = self.dialogs[current.conversation] if current is not None else self.open(effect.place)
            try:
                self.hand(self.session.redirect(dialog, bounced.id))
            except (ConversationEnded, QueueFull):
                return
            self._decided[bounced.id] = lambda to=dialog, one=bounced.id: _settled(to, one)  # type: ignore[misc]
            self.pooling.count(resent=1)

    def _let_go(self, place: Place, many: list[Bounced], *, given_up: bool = False) -> None:
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
        """The thread of a pool looks at home and at the clock."""
        self.hand(self.session.home_says(self.world.home.state))
        known = list(self.pooling.known.values())
        standings = [(one, standing_of(self.world.home.state, self.dialogs[one.conversation])) for one in known]
        self.do(self.pooling.home_says(standings, self._bounced(), self.world.now_ms))
        self.do(self.pooling.tick(self.world.now_ms))

    def hear(self, farewell: Farewell) -> None:
        """`Pool.hear`."""
        conversation, code, _ = farewell
        pooled = self.pooling.known.get(conversation)
        if pooled is None:
            return
        closing = pooled.stage is Stage.CLOSING and not code
        now_ms = self.world.now_ms
        self.do(self.pooling.ended(conversation) if closing else self.pooling.broken(conversation, code, now_ms))

    def keeps(self, farewell: Farewell) -> bool:
        """`Pool.keeps`."""
        pooled = self.pooling.known.get(farewell.conversation)
        return pooled is not None and (pooled.stage is not Stage.CLOSING or farewell.code != 0)


def _settled(dialog: SessionDialog, bounce: BounceId) -> bool:
    redirects = dialog.redirects
    return bounce not in dialog.held and (redirects is None or redirects.counter is None)


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.home, self.target = Side("replies"), Side("orders")
        self.now_ms = NOW_MS
        for side in (self.home, self.target):
            side.state.now_ms = NOW_MS
        self._stagings = {id(side): Staging(side.state, anything, OwnerSettings()) for side in (self.home, self.target)}
        self.recycling = self.random.choice([0.02, 0.1, 0.4])
        self.failing = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self.dying = self.random.choice([0.0, 0.0, 0.004])
        self.begun = 0
        self.clients = 1
        self.client = Client(self, 1)
        self.zombies: list[Client] = []
        self.sent: list[tuple[int, bytes]] = []
        self.acknowledged: set[tuple[int, bytes]] = set()
        self.received: list[tuple[bytes, bytes]] = []
        """Conversation and body."""
        self.streams_ended: set[bytes] = set()
        self.behind: list[bytes] = []
        """What followed EndOfStream in its dialog."""
        self.given_up: Counter[bytes] = Counter()
        self.discarded: set[bytes] = set()
        """What was accepted and not read when a target ended on its own account."""
        self.broken = False
        """A target has ended on its own account, or a sender has died: order over conversations is not promised."""

    def run(self, messages: int = 120) -> None:
        """Send so many messages while all kinds of things happen, then let everything come to rest."""
        number = 0
        while number < messages:
            if self.random.random() < 0.4:
                key = self.random.randrange(KEYS)
                body = b"%d %d" % (key, number)
                if self.client.send(key, body):
                    self.sent.append((key, body))
                    number += 1
            self._happen()
        self.failing = self.dying = 0.0
        for _ in range(CALM_ROUNDS):
            self.client.do([Recycle(one) for one in self.client.pooling.known.values() if one.stage is Stage.OPEN])
            self._rest()

    def _rest(self) -> None:
        self.now_ms += 1_000
        for zombie in self.zombies:
            zombie.arrive(len(zombie.way))
        self.client.arrive(len(self.client.way))
        self.deliver()
        self._work(self.target, self._take)
        self._work(self.home, self._answer)
        self.deliver()
        self.client.look()

    def _happen(self) -> None:
        self.now_ms += self.random.choice([1, 50, 400])
        roll = self.random.random()
        if roll < 0.3:
            self.client.arrive(self.random.randrange(1, 8))
        elif roll < 0.5:
            self._work(self.target, self._take)
        elif roll < 0.65:
            self._work(self.home, self._answer)
        elif roll < 0.8:
            self.deliver()
        elif roll < 0.95:
            self.client.look()
        elif self.zombies:
            self.random.choice(self.zombies).arrive(3)
        if self.random.random() < self.dying:
            self._die()

    def _die(self) -> None:
        """Of its last records some arrive, some late, some never; the next process goes on."""
        dead = self.client
        for _ in range(self.random.randrange(len(dead.way) + 1)):
            dead.way.pop()
        self.zombies.append(dead)
        self.broken = True
        self.clients += 1
        self.client = Client(self, self.clients)
        for key in range(KEYS):
            group = pool_group(pool_namespace("database", "pool"), str(key))
            place, _ = self.client.pooling.place(group, self.now_ms)
            if place.current is None:
                self.client.open(place)

    def deliver(self) -> None:
        """Owners copy their outputs."""
        self.home.deliver(self.target)
        self.target.deliver(self.home)
        self.home.deliver(self.home)
        self.target.deliver(self.target)

    # ----------------------------------------------------------------------------------------------------- handlers

    def _work(self, side: Side, handler: Callable[[Transaction], list[Callable[[], None]]]) -> None:
        """One transaction and its commit; what its handler has told others is told before it counts."""
        side.state.now_ms = max(side.state.now_ms, self.now_ms)
        side.commit()  # timers
        staging = self._stagings[id(side)]
        transaction = staging.take()
        if transaction is None:
            return
        with transaction:
            after = handler(transaction)
        staging.finish(transaction)
        operations, merged = staging.merge()
        for end in operations.ends:
            self._note_unread(side, end.endpoint)
        side.commit(**{name: getattr(operations, name) for name in Operations.__dataclass_fields__})
        staging.release(merged)
        for step in after:
            step()

    def _note_unread(self, side: Side, index: int) -> None:
        """What a target has not read when it ends is discarded (behaviour 109)."""
        endpoint = side.state.table[index]
        if endpoint is not None and endpoint.role is Role.TARGET:
            received = {body for _, body in self.received}
            self.discarded |= {entry[2] for entry in endpoint.queue if entry[2]} - received

    def _answer(self, transaction: Transaction) -> list[Callable[[], None]]:
        _, farewells = answer(transaction, transaction, lambda _: EOS, self.client.keeps)
        for farewell in farewells:
            self.client.hear(farewell)
        return []

    def _take(self, transaction: Transaction) -> list[Callable[[], None]]:
        dialog, after = transaction.dialog, list[Callable[[], None]]()
        roll = self.random.random()
        walk = iter(transaction)
        for message in walk:
            if message.type in (END_DIALOG, ERROR):
                transaction.end(dialog)
                return after
            if message.type == EOS:
                self.streams_ended.add(dialog.conversation)
                transaction.end(dialog)
                self.behind += [one.body for one in walk]
                return after
            self.received.append((dialog.conversation, message.body))
            if roll < self.failing:
                self.broken = True
                code = self.random.choice([PLAIN_END, APPLICATION_ERROR, BROKER_ERROR])
                if code == BROKER_ERROR:
                    after.append(lambda: self._fail(dialog.index))
                else:
                    transaction.end(dialog, error=code, description="no more" if code else "")
                return after
        return after

    def _fail(self, index: int) -> None:
        if self.target.state.table[index] is not None:
            self.target.commit(rare=[Fail(index, BROKER_ERROR, "given up")])

    # ------------------------------------------------------------------------------------------------------- checks

    def mistakes(self) -> list[str]:
        """What should not be."""
        found = [f"behind EndOfStream came {body!r}" for body in self.behind]
        times = Counter(body for _, body in self.received)
        found += [f"{body!r} was received {count} times" for body, count in times.items() if count > 1]
        for key, body in self.sent:
            fates = times[body] + (self.given_up[body] > 0) + (body in self.discarded)
            if fates > 1 or (not fates and (key, body) in self.acknowledged):
                found.append(f"{body!r} was acknowledged: {fates} fates")
        if not self.broken:
            for key in range(KEYS):
                got = [body for _, body in self.received if body.startswith(b"%d " % key)]
                if got != [body for _, body in self.sent if body.startswith(b"%d " % key)]:
                    found.append(f"key {key} was received in another order: {got}")
        for name, side in (("home", self.home), ("target", self.target)):
            for role in Role:
                found += [f"left open at {name}: {one!r}" for one in side.state.sides[role].values()]
        found += [f"left in the mailbox: {one}" for one in self.home.state.mailbox.entries.values() if not _own(one)]
        found += [f"the pool still knows {one.stage}" for one in self.client.pooling.known.values()]
        if self.client.session.dialogs:
            found.append(f"the session still knows {len(self.client.session.dialogs)} dialogs")
        return found


def _own(bounced: Bounced) -> bool:
    """A home's EndOfStream on a conversation that its sender had closed at that moment."""
    return bounced.message_type == EOS
