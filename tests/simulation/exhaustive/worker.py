"""A process that tries to own the partition: the product's `Owner` as an immutable value.

An owner is stored as its pickle. Owners with equal pickles behave alike. So each step is computed once, and remembered
by the owner and by everything that it reads in the step.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import (
    Append,
    Appended,
    DataRead,
    Drained,
    Effect,
    Halted,
    Leading,
    Phase,
    ReadData,
    ReadJournal,
    Recover,
    Stopped,
)
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from konverse.schemas.wire.varint import SMALL
from tests.kit.builders import Row, anything, columns_of, conversations, log_of, records_of

from .journal import Broken, Journal, Record, Records

IDENTITY: Final = log_of()
SETTINGS: Final = OwnerSettings(max_messages=1, view_interval_ms=None)


def never_used_before(name: str, life: int) -> bytes:
    """The claim id of a worker in one of its lives."""
    return f"{name}{life}".encode().ljust(16)


@dataclass(frozen=True, slots=True)
class Product:
    """The rules under test: the product's own classes, or a mutant's."""

    head: type[JournalHead] = JournalHead
    owner: type[Owner] = Owner
    claim_id: Callable[[str, int], bytes] = never_used_before


class Step(NamedTuple):
    """Result of one event at a worker."""

    worker: Worker
    reported: Record | None
    """The COMMIT that it reports as committed."""
    head: JournalHead | None
    """Its head of the journal at that moment."""
    emitted: tuple[tuple[int, bytes | None], ...]
    """Counter and body of each emitted output."""


class Workers:
    """All workers of a search, and what they share: the product, and a data log with one conversation to answer."""

    def __init__(self, product: Product, commits: int, messages: int) -> None:
        self.product = product
        self.commits = commits
        """Commits that a worker makes in each life."""
        self.data: list[Row] = conversations("a conversation", messages=messages)
        self.records = Records()
        self._known: dict[tuple[str, int, bytes | None, Record | None], Worker] = {}

    def of(self, name: str, life: int, owner: Owner | None = None, record: Record | None = None) -> Worker:
        """The worker with these attributes, always the same object."""
        key = (name, life, None if owner is None else _pickled(owner), record)
        worker = self._known.get(key)
        if worker is None:
            worker = self._known[key] = Worker(self, *key)
            worker.read_to = 0 if owner is None else owner.fold.head.offset + 1
        return worker


_SHARED: Final = (SMALL, IDENTITY, SETTINGS)
"""Constants that all owners refer to. The table of varints alone would be nine tenths of a pickle."""

_PLACES: Final = {id(constant): place for place, constant in enumerate(_SHARED)}


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> int | None:
        return _PLACES.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return _SHARED[pid]


def _pickled(owner: Owner) -> bytes:
    out = BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(owner)
    return out.getvalue()


class Worker:
    """A worker in one of its lives. It has no owner before the start, after a crash, and after its owner stopped."""

    __slots__ = ("_steps", "everybody", "life", "name", "owner", "read_to", "record")

    def __init__(self, everybody: Workers, name: str, life: int, owner: bytes | None, record: Record | None) -> None:
        self.everybody = everybody
        self._steps: dict[Any, Step] = {}
        self.name = name
        self.life = life
        """Number of starts."""
        self.owner = owner
        self.record = record
        """The record that it is about to append; None when it is done."""
        self.read_to = 0
        """It has read the journal before this offset."""

    def __str__(self) -> str:
        return f"{self.name}{self.life}"

    def down(self) -> Worker:
        """The worker after a crash, without its owner."""
        return self.everybody.of(self.name, self.life)

    def start(self, journal: Journal) -> Step:
        """Begin a new life: read the journal to its end and make a claim."""
        step = self._steps.get(journal)
        if step is None:
            everybody, name, life = self.everybody, self.name, self.life + 1
            product = everybody.product
            owner = product.owner(IDENTITY, product.claim_id(name, life), anything, SETTINGS)
            owner.fold.head = product.head(IDENTITY)
            begun = everybody.of(name, life)
            step = self._steps[journal] = _Run(begun, owner, journal).step(Recover(0, journal.length))
        return step

    def acknowledged(self, journal: Journal) -> Step:
        """Its append is the journal's last record, and it learns the offset. It reads what it has not read yet."""
        key = (journal.length, journal.tail(self.read_to))
        step = self._steps.get(key)
        if step is None:
            run = _Run(self, self._restored(), journal)
            step = self._steps[key] = run.step(Appended(journal.length - 1, journal.length - 1))
        return step

    def unknown(self) -> Step:
        """Its append was not answered in time. It reads nothing."""
        step = self._steps.get(None)
        if step is None:
            step = self._steps[None] = _Run(self, self._restored(), None).step(Appended(None))
        return step

    def _restored(self) -> Owner:
        assert self.owner is not None
        return cast("Owner", _Unpickler(BytesIO(self.owner)).load())


class _Run:
    """Drives an owner from one event until it waits for an append, is done, or has stopped."""

    def __init__(self, worker: Worker, owner: Owner, journal: Journal | None) -> None:
        self._worker = worker
        self._everybody = worker.everybody
        self._owner = owner
        self._journal = journal
        self._append: Record | None = None
        self._emitted: list[tuple[int, bytes | None]] = []

    def step(self, event: Any) -> Step:
        """Pass the event to the owner and return the result."""
        owner, worker, counters = self._owner, self._worker, self._owner.counters
        commits = counters.commits
        self._tell(event)
        reported, head = None, None
        if counters.commits != commits:
            reported, head = worker.record, copy(owner.fold.head)
        if owner.phase is Phase.LEADING and not owner.committing and counters.commits < self._everybody.commits:
            self._work()
        if owner.phase is Phase.STOPPED:
            after = worker.down()
        else:
            after = self._everybody.of(worker.name, worker.life, owner, self._append)
        return Step(after, reported, head, tuple(self._emitted))

    def _work(self) -> None:
        """A handler answers the next message, and the owner commits."""
        owner = self._owner
        transaction = owner.take()
        if transaction is None:
            return
        for message in transaction:
            transaction.send(message.dialog, "reply", owner.claim_id + message.body)
        owner.finish(transaction)
        self._carry_out(owner.commit(0))

    def _tell(self, event: Any) -> None:
        self._carry_out(self._owner.step(event, 0))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append([data]):
                    assert self._append is None, "one append at a time"
                    self._append = self._everybody.records.of(data)
                case ReadJournal(start, end):
                    assert self._journal is not None, "a step that is remembered whatever the journal is reads nothing"
                    assert self._worker.read_to <= start <= end <= self._journal.length, (
                        "nor what it is not remembered by"
                    )
                    self._tell(self._journal.read(start, end))
                case ReadData(start, end):
                    self._tell(DataRead(columns_of(self._everybody.data[start:end], start)))
                case Leading(start):
                    self._owner.staging.tried = None  # the simulator covers care after a crash
                    self._tell(DataRead(columns_of(self._everybody.data[start:], start)))
                    self._owner.ingest(0)
                case Emit(address, first):
                    self._emitted += enumerate((body for _, _, body in records_of(effect)), first)
                    self._tell(Drained([address]))
                case Halted(reason):
                    raise Broken(f"I17: halted although nobody lied: {reason}")
                case _:
                    assert isinstance(effect, Stopped), f"nothing here can ask for {effect}"
