"""The small world: its moves, and the invariants after each of them.

A state is the journal, the requests on their way, the workers, and how many copies may still be made. A move is one
event (see MOVES). Workers differ in their names alone, and no rule compares names but for equality, so they start for
the first time in the order of their names: every other order is the same history with other names. Three events are no
moves of their own, because no other worker sees a difference:

- A late acknowledgement acts like an immediate one. Its worker waits until then, and reads only records before its own,
  which no longer change.
- A read is part of the move that asked for it, for the same reason.
- Reports and emissions are judged at the earliest possible moment. Journals only grow, so a later one cannot be worse.
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
    """Size of the world."""

    workers: int = 2
    commits: int = 2
    """Commits that a worker makes in each of its lives."""
    restarts: int = 1
    """Restarts of all workers together, after a crash or a stop."""
    copies: int = 1
    """Requests that are duplicated."""

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
"""Journal; numbers of the records on their way, ascending; workers; copies that may still be made."""

Move = tuple[int, int]
"""A key of MOVES, and the index of the worker or of the record on its way."""


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
        """All possible moves."""
        _, late, workers, copies = state
        for place, number in enumerate(late):
            if not place or number != late[place - 1]:  # two copies of a record are alike
                yield LATE, place
        restarts = self._restarts - sum([worker.life - 1 for worker in workers if worker.life])
        for place, worker in enumerate(workers):
            if place and not workers[place - 1].life:
                break
            if restarts or not worker.life:
                yield STARTS if worker.owner is None else CRASHES, place
            if worker.record is not None:
                yield ACKNOWLEDGED, place
                yield UNANSWERED, place
                yield GIVEN_UP, place
                if copies:
                    yield DOUBLED, place

    def after(self, state: State, move: Move) -> State:
        """The state after a move. Raises Broken when it violates an invariant."""
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
        """Check that a new worker without faults completes everything (L1).

        Offsets aside, its actions depend on the head alone. So one journal is tried for each head.
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
        """A move in words."""
        kind, place = move
        journal, late, workers, _ = state
        if kind == LATE:
            return MOVES[kind].format(record=self._workers.records.all[late[place]], offset=journal.length)
        worker = workers[place]
        name = f"{worker.name}{worker.life + 1}" if kind == STARTS else str(worker)
        return MOVES[kind].format(worker=name, record=worker.record, offset=journal.length)


def _held(step: Step, journal: Journal) -> Worker:
    """The worker after a step. Raises Broken when it reported, believed or emitted something wrong (I2, I3, I8)."""
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
