"""The small world: what can happen in it, and what must hold whatever does.

A state is the journal, the requests that are on their way, the workers, and how many copies may still be made. A move
is one thing that happens (see MOVES). Three things are no moves of their own, because they change nothing that others
see. An acknowledgement that arrives later does what one does that arrives at once: until then its worker waits, and
what it reads then stands before its own record, where nothing changes any more. A read is for the same reason one move
with what asked for it. And what is reported and emitted is judged at the first moment at which that can happen:
journals only grow, so that it is never less true later on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from konverse.dialog.fold.journal import JournalHead

from .journal import Broken, Journal
from .worker import IDENTITY, Product, Step, Worker, Workers


@dataclass(frozen=True, slots=True)
class Scope:
    """How small the world is."""

    workers: int = 2
    commits: int = 2
    """That a worker wants, and wants again after a restart."""
    restarts: int = 1
    """After a crash, or after it stopped; of all workers together."""
    copies: int = 1
    """Requests that are doubled."""

    @property
    def messages(self) -> int:
        """As many as all workers together can commit."""
        return (self.workers + self.restarts) * self.commits


STARTS: Final = 0
ACKNOWLEDGED: Final = 1
UNANSWERED: Final = 2
GIVEN_UP: Final = 3
DOUBLED: Final = 4
LATE: Final = 5
CRASHES: Final = 6

MOVES: Final = {
    STARTS: "{worker} starts: it reads the journal to its end and makes its claim",
    ACKNOWLEDGED: "{record} lands at {offset}, and {worker} learns that",
    UNANSWERED: "{record} lands at {offset}, and {worker} never learns that",
    GIVEN_UP: "{worker} stops waiting for {record}, which is on its way and may land later",
    DOUBLED: "{record} is doubled: a copy is on its way as well, and {worker} waits on",
    LATE: "{record} lands at {offset}, late",
    CRASHES: "{worker} crashes and forgets everything",
}

State = tuple[Journal, tuple[int, ...], tuple[Worker, ...], int]
"""Journal; numbers of the records on their way, rising; workers; copies that may still be made."""

Move = tuple[int, int]
"""One of MOVES; the place of the worker, or of the record on its way."""


class Model:
    """The world of one scope and one product."""

    def __init__(self, scope: Scope, product: Product) -> None:
        self._restarts = scope.restarts
        self._workers = Workers(product, scope.commits, scope.messages)
        self._rescuers = Workers(product, scope.messages, scope.messages)
        self._rescuers.records = self._workers.records
        self._rescued: set[tuple[object, ...]] = set()
        everybody = tuple(self._workers.of(chr(ord("A") + place), 0) for place in range(scope.workers))
        self.first: State = (Journal(product.head(IDENTITY)), (), everybody, scope.copies)

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next."""
        _, late, workers, copies = state
        for place, number in enumerate(late):
            if not place or number != late[place - 1]:  # of two copies it does not matter which lands
                yield LATE, place
        restarts = self._restarts - sum([worker.life - 1 for worker in workers if worker.life])
        for place, worker in enumerate(workers):
            if restarts or not worker.life:
                yield STARTS if worker.owner is None else CRASHES, place
            if worker.record is not None:
                yield ACKNOWLEDGED, place
                yield UNANSWERED, place
                yield GIVEN_UP, place
                if copies:
                    yield DOUBLED, place

    def after(self, state: State, move: Move) -> State:
        """The state after a move; Broken when an invariant does not hold there."""
        journal, late, workers, copies = state
        kind, place = move
        if kind == LATE:
            journal = journal.append(self._workers.records.all[late[place]])
            return journal, late[:place] + late[place + 1 :], workers, copies
        worker = workers[place]
        record = worker.record
        if kind == STARTS:
            worker = _held(worker.start(journal), journal)
        elif kind == CRASHES:
            worker = worker.down()
        else:
            assert record is not None, "only who waits for an append can be answered or not"
            if kind in (ACKNOWLEDGED, UNANSWERED):
                journal = journal.append(record)
            else:
                late = tuple(sorted((*late, record.number)))
            if kind == DOUBLED:
                return journal, late, workers, copies - 1
            worker = _held(worker.acknowledged(journal) if kind == ACKNOWLEDGED else worker.unknown(), journal)
        return journal, late, (*workers[:place], worker, *workers[place + 1 :]), copies

    def rescue(self, journal: Journal) -> None:
        """From now on nothing goes wrong: a new worker must do all that is left (L1).

        What it does depends on the head alone, but for offsets, so that one journal is tried for each head.
        """
        key = _without_offsets(journal.head)
        if key in self._rescued:
            return
        self._rescued.add(key)
        worker = _held(self._rescuers.of("R", 0).start(journal), journal)
        while worker.record is not None:
            journal = journal.append(worker.record)
            worker = _held(worker.acknowledged(journal), journal)
        if len(journal.outputs) != len(self._rescuers.data):
            raise Broken(
                f"L1: {worker} came to {len(journal.outputs)} of {len(self._rescuers.data)} messages, unhindered"
            )

    def words(self, state: State, move: Move) -> str:
        """What a move is, for people."""
        kind, place = move
        journal, late, workers, _ = state
        if kind == LATE:
            return MOVES[kind].format(record=self._workers.records.all[late[place]], offset=journal.length)
        worker = workers[place]
        name = f"{worker.name}{worker.life + 1}" if kind == STARTS else str(worker)
        return MOVES[kind].format(worker=name, record=worker.record, offset=journal.length)


def _held(step: Step, journal: Journal) -> Worker:
    """The worker after a step; Broken when it reported, believes or emitted what is not so (I2, I3, I8)."""
    if step.reported is not None:
        if step.reported not in journal.commits:
            raise Broken(f"I2: {step.worker} takes {step.reported} for committed, and it does not count")
        head = step.head
        if head is None or head != journal.head_at(head.offset):
            raise Broken(f"I3: {step.worker} has verified {head}, and the journal says otherwise")
    for counter, body in step.emitted:
        if journal.outputs[counter : counter + 1] != (body,):
            raise Broken(
                f"I8: {step.worker} emits {body!r} as output {counter}; the commits that count did not send that"
            )
    return step.worker


def _without_offsets(head: JournalHead) -> tuple[object, ...]:
    return head.epoch, head.owner, head.number, head.hash, head.clean
