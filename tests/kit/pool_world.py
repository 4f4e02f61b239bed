"""A simulated pool: two folded partitions, lossy transport to them and one seed per run, without servers.

The product's classes decide: `PoolState`, the session, the folds, the handler of the initiator's queue, the routers and
the adoption of a dead sender's conversations. The simulation decides when records and outputs arrive, what the target's
handlers do, when the sender dies, and which of its last records still arrive, early or late. In some worlds the pool's
service is a router that redirects to the target, or to a second router that does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.pool.places import Recycle, Stage, Way
from konverse.dialog.pool.recycling import answer
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.transaction import Transaction
from konverse.routing.router import Router
from konverse.routing.step import REDIRECT
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.identifiers import Address, Role, mark_of
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.operations import Fail
from tests.kit.builders import Row, Side, address_of, anything
from tests.kit.pool_client import EOS, GROUPS, KEYS, NOW_MS, Client

CALM_ROUNDS: Final = 400
SLACK_MS: Final = 10_000
PLAIN_END: Final = 0
APPLICATION_ERROR: Final = 4711
BROKER_ERROR: Final = -9719


class World:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.home, self.target = Side("replies"), Side("orders")
        self.now_ms = NOW_MS
        self.routers = [Side(f"router-{number}") for number in range(self.random.choice([0, 0, 1, 2]))]
        """Each router redirects to the next one, the last to the target."""
        self.sides = [self.home, self.target, *self.routers]
        for side in self.sides:
            side.state.now_ms = NOW_MS
        self._stagings = {id(side): Staging(side.state, anything, OwnerSettings()) for side in self.sides}
        self._router = Router(REDIRECT)
        self.recycling = self.random.choice([0.02, 0.1, 0.4])
        self.stalling = self.random.choice([0.0, 0.01]) if not self.routers else 0.0
        """Probability of a stall of the pool's thread that outlasts timers; then the home may send EndOfStream."""
        self._stalled_ms = self._away_ms = NOW_MS
        self._unheard: list[Row] = []
        """Records in the target's log that no owner has ingested."""
        self.age_ms = 1_500 if self.stalling else 40_000
        self.timer_ms = self.age_ms + SLACK_MS
        self.apart = self.random.random() < 0.3
        """Another process reads the pool's queue."""
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
        """Messages that followed EndOfStream in their dialog."""
        self.given_up: Counter[bytes] = Counter()
        self.discarded: set[bytes] = set()
        """Bodies that were accepted but unread when the target ended by itself."""
        self.ended: set[bytes] = set()
        """Conversations that the target ended by itself. Their unread messages are discarded or given up."""
        self.broken: set[bytes] = set()
        """Marks of keys without a promised order: a sender died, or an ended conversation was recycled."""

    def run(self, messages: int = 120) -> None:
        """Send `messages` messages under random disturbances, then run until everything is at rest."""
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
        self._away_ms = self.now_ms
        for _ in range(CALM_ROUNDS):
            self.client.do([Recycle(one) for one in self.client.pooling.known.values() if one.stage is Stage.OPEN])
            self._rest()
            if self._at_rest:
                break

    @property
    def _at_rest(self) -> bool:
        sides = [side for one in self.sides for side in one.state.sides]
        ways = [one.way for one in (self.client, *self.zombies)]
        return not (any(sides) or any(ways) or self.client.pooling.known) and self.client.session.idle

    def at(self, address: Address) -> Side:
        """The partition with that address."""
        return next(side for side in self.sides if side.address == address)

    def asked(self, way: Way) -> Side:
        """The partition that receives conversations of this way."""
        return self.at(address_of(way[-1].service)) if way else [*self.routers, self.target][0]

    def way_to(self, side: Side) -> Way:
        """The way that the next process records for a conversation with this partition."""
        return () if side is self.asked(()) else (Target(side.queue),)

    def _rest(self) -> None:
        self.now_ms += 1_000
        for zombie in self.zombies:
            zombie.arrive(len(zombie.way))
        self.client.arrive(len(self.client.way))
        self.deliver()
        self._work(self.target, self._take)
        for router in self.routers:
            self._work(router, partial(self._redirect, router))
        self._work(self.home, self._answer)
        self.deliver()
        self.client.look()

    def _happen(self) -> None:
        self.now_ms += self.random.choice([1, 50, 400])
        roll = self.random.random()
        if roll < 0.3:
            self.client.arrive(self.random.randrange(1, 8))
        elif roll < 0.4 and self.routers:
            router = self.random.choice(self.routers)
            self._work(router, partial(self._redirect, router))
        elif roll < 0.5 and not self._away:
            self._work(self.target, self._take)
        elif roll < 0.65:
            self._work(self.home, self._answer)
        elif roll < 0.8:
            self.deliver()
        elif roll < 0.95 and self.now_ms >= self._stalled_ms:
            self.client.look()
        elif self.zombies:
            self.random.choice(self.zombies).arrive(3)
        if self.stalling:
            self.client.arrive(len(self.client.way))  # timers are longer than Kafka's longest delivery
        if self.random.random() < self.stalling:
            self._stalled_ms = self.now_ms + self.random.randrange(2 * SLACK_MS)
        if self.random.random() < self.dying:
            self._die()

    def _die(self) -> None:
        """The sender dies. Some of its last records arrive, some late, some never. The next process takes over."""
        dead = self.client
        for _ in range(self.random.randrange(len(dead.way) + 1)):
            dead.way.pop()
        if self.clients > 1:  # the next process cannot know a writer that was never heard
            dead.way.clear()
        self.zombies.append(dead)
        self.broken.update(map(mark_of, GROUPS))
        self._away_ms = self.now_ms
        self.hear(self.target)
        self.clients += 1
        self.client = Client(self, self.clients)
        for group in GROUPS:
            place, _ = self.client.pooling.place(group, self.now_ms)
            if place.current is None:
                self.client.open(place)

    def deliver(self) -> None:
        """Owners copy their outputs to the destinations."""
        self.hear(self.target)
        here = [side for side in self.sides if side is not self.target or not self._away]
        for side in here:
            for other in here:
                side.deliver(other)

    @property
    def _away(self) -> bool:
        """The target's partition has no owner."""
        return self.now_ms < self._away_ms

    def hear(self, side: Side, *rows: Row) -> None:
        """Append records to a partition's log. Its owner ingests them, when it has one."""
        if side is not self.target:
            side.take_all(rows)
            return
        self._unheard += rows
        if not self._away:
            side.take_all(self._unheard)
            self._unheard = []

    # ----------------------------------------------------------------------------------------------------- handlers

    def _work(self, side: Side, handler: Callable[[Transaction], list[Callable[[], None]]]) -> None:
        """One transaction and its commit. The handler's notifications to others run only after the commit."""
        side.state.now_ms = max(side.state.now_ms, self.now_ms)
        side.commit()  # so that timers fire
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
        side.commit(**{name: getattr(operations, name) for name in CommitOperations.__dataclass_fields__})
        staging.release(merged)
        for step in after:
            step()

    def _note_unread(self, side: Side, index: int) -> None:
        """Note messages that a target had not read when it ended: they are discarded (behaviour 109)."""
        endpoint = side.state.table[index]
        if endpoint is not None and endpoint.role is Role.TARGET:
            received = {body for _, body in self.received}
            self.discarded |= {entry[2] for entry in endpoint.queue if entry[2]} - received

    def _answer(self, transaction: Transaction) -> list[Callable[[], None]]:
        keeps = (lambda _: False) if self.apart else self.client.keeps
        _, farewells = answer(transaction, transaction, keeps)
        for farewell in [] if self.apart else farewells:
            self.client.hear(farewell)
        return []

    def _redirect(self, side: Side, transaction: Transaction) -> list[Callable[[], None]]:
        self._router.step(
            transaction, lambda _: Target([*self.routers, self.target][self.routers.index(side) + 1].queue)
        )
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
                self.behind += [one.body for one in walk if one.type != EOS or not self.stalling]
                return after
            self.received.append((dialog.conversation, message.body))
            if roll < self.failing:
                self.ended.add(dialog.conversation)
                if self.stalling:
                    after.append(self._leave)
                pooled = self.client.pooling.known.get(dialog.conversation)
                if pooled is None or pooled.stage is Stage.CLOSING:
                    self.broken.add(mark_of(dialog.conversation))
                code = self.random.choice([PLAIN_END, APPLICATION_ERROR, BROKER_ERROR])
                if code == BROKER_ERROR:
                    after.append(lambda: self._fail(dialog.index))
                else:
                    transaction.end(dialog, error=code, description="no more" if code else "")
                return after
        return after

    def _leave(self) -> None:
        """The target's owner delivers an end and dies. Timers fire before the partition has an owner again."""
        self.deliver()
        self._away_ms = self.now_ms + self.random.randrange(3 * SLACK_MS)

    def _fail(self, index: int) -> None:
        if self.target.state.table[index] is not None:
            self.target.commit(rare=[Fail(index, BROKER_ERROR, "given up")])

    # ------------------------------------------------------------------------------------------------------- checks

    def mistakes(self) -> list[str]:
        """Violations found in this run, in words."""
        found = [f"behind EndOfStream came {body!r}" for body in self.behind]
        times = Counter(body for _, body in self.received)
        found += [f"{body!r} was received {count} times" for body, count in times.items() if count > 1]
        for key, body in self.sent:
            given_up = self.given_up[body] > 0 and not (self.clients > 1 and times[body])  # given up, then received
            fates = times[body] + given_up + (body in self.discarded)
            if fates > 1 or (not fates and (key, body) in self.acknowledged):
                found.append(f"{body!r} was acknowledged: {fates} fates")
        for key, group in enumerate(GROUPS):
            if mark_of(group) not in self.broken:
                got = [body for _, body in self.received if body.startswith(b"%d " % key)]
                sent = [body for _, body in self.sent if body.startswith(b"%d " % key)]
                if got != ([body for body in sent if body in got] if self.ended else sent):
                    found.append(f"key {key} was received in another order: {got}")
        for side in self.sides:
            for role in Role:
                left = [one for one in side.state.sides[role].values() if not _never_said(one)]
                found += [f"left open at {side.queue}: {one!r}" for one in left]
        found += [f"left in the mailbox: {one}" for one in self.home.state.mailbox.entries.values() if not _own(one)]
        found += [f"the pool still knows {one.stage}" for one in self.client.pooling.known.values()]
        if self.client.session.dialogs:
            found.append(f"the session still knows {len(self.client.session.dialogs)} dialogs")
        return found


def _own(bounced: Bounced) -> bool:
    """Whether it is an EndOfStream that home sent on a conversation while the sender closed it."""
    return bounced.message_type == EOS


def _never_said(endpoint: Endpoint) -> bool:
    """Whether the sender died between BEGIN and the timer. Then nothing follows; an operator has to end the side."""
    return endpoint.state is State.STARTED_OUTBOUND and endpoint.clock is None
