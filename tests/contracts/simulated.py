"""The stand on the simulated Kafka: the simulator's drivers, without randomness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.rotation import Age, AgeWatch
from konverse.dialog.session.session import Session
from konverse.schemas.limits import SESSION_IDLE_MS_MAX
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import Begin, Kind
from tests.kit.builders import Scribe
from tests.kit.simulator import calm
from tests.kit.simulator.asking import Asker
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.owning import OwnerProcess
from tests.kit.simulator.places import Place
from tests.kit.simulator.sending import SessionProcess
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.world import World

from .stand import HOME, ORDERS, Written

STEPS_MAX = 300
ROUNDS = 6
MUCH = 1_000
"""An owner reads on while fewer messages wait, like an owner of the library."""

LONG_MS = 1_100
"""Longer than ingested records wait for a commit."""


class Simulated:
    """One world without faults, except those that a test asks for."""

    def __init__(self) -> None:
        self._choices = Choices(0, ())
        swarm = replace(
            draw(self._choices), queues=3, partitions=1, sessions=1, dialogs=0, clubs=0, queries=0, handlers=0,
            followers=0, hours=(1,), transmitting=0,
        )  # fmt: skip
        self.world = World(self._choices, swarm)
        self.world.lively = False
        self.process: SessionProcess = self.world.sessions[0]
        self._refusing: set[int] = set()
        self._losing: int | None = None

    @property
    def session(self) -> Session:
        return self.process.session

    def _place(self, queue: int) -> Place:
        return self.world.places[queue]

    def _owner(self, queue: int) -> OwnerProcess:
        found = next(owner for owner in self.world.owners if owner.place is self._place(queue) and not owner.dead)
        found.plenty = MUCH
        return found

    # ----------------------------------------------------------------------------------------------- the application

    def begin(self, queue: int = ORDERS) -> SessionDialog:
        conversation = self.world.identifier(b"conversation")
        home, target = self._place(HOME).address, self._place(queue).address
        dialog, hands = self.session.begin(conversation, Begin("near", "far", "contract", home, target, conversation))
        self.process.plans.append(self.process.plan_of(dialog, self._place(HOME)))
        self.process.hand(hands)
        return dialog

    def send(self, dialog: Any, body: bytes) -> None:
        self.process.hand(self.session.send(dialog, "t", body))
        next(plan for plan in self.process.plans if plan.dialog is dialog).sent.append(body)

    def end(self, dialog: Any) -> None:
        self.process.hand(self.session.end(dialog))

    # ----------------------------------------------------------------------------------------------------- the driver

    def let_go(self) -> None:
        for _ in range(STEPS_MAX):
            if not self._step():
                return
            self.world.kafka.now_ms += 1

    def _step(self) -> bool:
        process = self.process
        if process._is_over():
            return False
        age = process.renewal.due
        if age is not Age.FRESH:
            process.renewal.change("old")
        elif not process._producer.empty:
            refused = [lane.address for lane in self.session.lanes.values() if self._refuses(lane.address)]
            waiting = [address for address in refused if address in process._producer._lanes]  # type: ignore[union-attr]
            if waiting:
                process._replace(waiting[0])
                return True
            process._transmit()
        elif any(lane.window.outstanding for lane in self.session.lanes.values()):
            process._settle()
        else:
            return False
        return True

    def _refuses(self, address: Any) -> bool:
        return any(self._place(queue).address == address for queue in self._refusing)

    def flush(self) -> None:
        for _ in range(ROUNDS):
            self.let_go()
            if self.session.refused:
                self.process.hand(self.session.try_again())
            for queue in range(len(self.world.places)):
                calm.settle_down(self._owner(queue))
                self._commit(queue)
            if self.process.renewal.waiting:
                self.process.renewal.look_for_answers()
            self.world.kafka.now_ms += LONG_MS
        self.let_go()
        self.session.check_over()
        assert self.session.idle, "something waits"

    def _commit(self, queue: int) -> None:
        """Let time pass until everything that waits for a commit is committed."""
        for _ in range(2):
            self.world.kafka.now_ms += LONG_MS
            calm.settle_down(self._owner(queue))

    @contextmanager
    def silence(self) -> Iterator[None]:
        kafka = self.world.kafka
        kafka.swarm, swarm = replace(self.world.swarm, delayed=1_000), kafka.swarm
        yield
        kafka.swarm = swarm
        while kafka.late:
            kafka.deliver_late()

    def flushed(self) -> bool:
        self.let_go()
        self.session.check_over()
        return self.session.idle

    def commit_in_silence(self, queue: int = ORDERS) -> tuple[list[bytes], bool, bool]:
        process = self._owner(queue)
        calm.settle_down(process)
        owner = process.owner
        assert owner is not None
        transaction = owner.take()
        assert transaction is not None
        bodies = [message.body for message in transaction]
        owner.finish(transaction)
        with self.silence():
            process.commit(owner)
            process._outcome()
            early = not owner.committing
        process._outcome()
        late = process.owner is owner and not owner.committing
        self._commit(queue)
        return bodies, early, late

    def receive(self, queue: int = ORDERS) -> list[tuple[str, bytes]]:
        owner = self._owner(queue)
        calm.settle_down(owner)
        received: list[tuple[str, bytes]] = []
        while owner.owner is not None and (transaction := owner.owner.take()) is not None:
            received += [(message.type, message.body) for message in transaction]
            owner.owner.finish(transaction)
            if self._losing == queue:
                self.world.kafka.swarm, swarm = replace(self.world.swarm, ack_lost=1_000), self.world.swarm
                owner.commit(owner.owner)
                self.world.kafka.swarm, self._losing = swarm, None
            self._commit(queue)
        self._commit(queue)
        return received

    # -------------------------------------------------------------------------------------------------------- events

    def written(self, queue: int = ORDERS) -> list[Written]:
        found = []
        for record in self._place(queue).data.records:
            envelope = decode(record.header or b"")
            if envelope.writer in self.session.ids:
                where = self.session.ids.index(envelope.writer)
                found.append(Written(where, envelope.kind, envelope.counter, record.body))
        return found

    @contextmanager
    def failing_producer(self) -> Iterator[None]:
        yield
        while not self.process._producer.empty:
            self.process._producer.transmit()
        self.process._replace()

    def doubt(self) -> None:
        self.process.renewal.change("told")

    def grow_old(self) -> None:
        self.session.ageing = AgeWatch(self.process.renewal.now_ms - SESSION_IDLE_MS_MAX)

    def close_from_outside(self, queue: int = ORDERS) -> None:
        place = self._place(queue)
        stranger = Scribe("stranger")
        self.world.kafka.append(place.data, (stranger.close(place.address, self.session.writer), stranger.id, None))

    def asked_from_outside(self) -> dict[int, int]:
        asker = Asker(self.world, self.process, self.session.unknown())
        for _ in range(ROUNDS):
            asker.settle_down()
            for queue in range(len(self.world.places)):
                self._commit(queue)
        assert asker.done, "the question is answered"
        outcome = asker._asking.outcome
        assert outcome is not None
        places = {plan.dialog.conversation: place for place, plan in enumerate(self.process.plans)}
        return {places[conversation.bytes]: number for conversation, number in outcome.missing.items()}

    def delete_unread(self, queue: int = ORDERS) -> None:
        place = self._place(queue)
        place.data.start = place.data.end
        self.world.losses.struck.append(place)

    def refuse(self, queue: int, *, refuses: bool) -> None:
        (self._refusing.add if refuses else self._refusing.discard)(queue)

    def lose_answer(self, queue: int = ORDERS) -> None:
        self._losing = queue

    def claimed_again(self, queue: int = ORDERS) -> int:
        return max(0, len(self._place(queue).judge.claims) - 1)

    def answer(self, body: bytes, *, fails: bool, queue: int = ORDERS) -> None:
        process = self._owner(queue)
        calm.settle_down(process)
        assert process.owner is not None
        transaction = process.owner.take()
        assert transaction is not None
        for message in list(transaction):
            transaction.send(message.dialog, "t", body)
        process.owner.finish(transaction)
        process.commit(process.owner)
        process._outcome()
        while process._outputs.waiting:
            process._outputs.transmit()
        if fails:
            process._tell(process._outputs.replace())
        self._commit(queue)

    def answers(self) -> list[tuple[int, bytes]]:
        decoded = [(decode(record.header or b""), record.body) for record in self._place(HOME).data.records]
        return [(one.counter, body or b"") for one, body in decoded if one.kind is Kind.MESSAGE]

    def bounds(self, queue: int = ORDERS) -> tuple[int, int]:
        data = self._place(queue).data
        return data.start, data.stable

    @contextmanager
    def strangers_transaction(self, queue: int = ORDERS) -> Iterator[None]:
        data = self._place(queue).data
        data.held = data.end
        data.end += 1
        yield
        data.end += 1
        data.held = None

    def overtaken(self, queue: int = ORDERS) -> tuple[list[bytes], bool]:
        first = self._owner(queue)
        calm.settle_down(first)
        assert first.owner is not None
        transaction = first.owner.take()
        assert transaction is not None
        bodies = [message.body for message in transaction]
        self.world._appoint(self._place(queue))
        calm.settle_down(self.world.owners[-1])
        commits = len(self._place(queue).judge.commits)
        first.owner.finish(transaction)
        first.commit(first.owner)
        first._outcome()
        counts = len(self._place(queue).judge.commits) > commits
        while first._reads:
            first._read()
        assert first.owner is None, "it was told that it is not the owner any more"
        self.world.owners.remove(first)
        return bodies, counts
