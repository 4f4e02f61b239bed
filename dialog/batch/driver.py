"""The driver of a query that writes in batches. Which BATCH wins is decided by the log, not by the driver.

A machine without I/O: `step(event) -> effects`. It collects one report of each task of a batch and puts BATCH into the
transmission queue. It continues only when the journal of that queue shows which BATCH won. That may be another one,
written by an earlier driver or by a second driver of the same query. Then the destinations accept the rows that the
winner names, and drop the rows of this driver's tasks.

    IDLE  --Start-->  COLLECTING  --a report of each task-->  WAITING  --decided in the journal-->  IDLE

A crashed driver leaves nothing behind that matters. The next driver gets the same batch, or the one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from konverse.dialog.rules.writers import is_over
from konverse.dialog.session.lanes import Handed
from konverse.dialog.state.batches import Judgement
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, BODY_BYTES_MAX, QUERY_ENTRIES_MAX
from konverse.schemas.wire.batches import ABANDONED, Batch, encode_batch
from konverse.schemas.wire.envelope import encode, encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix

from .task import Report, too_large


class BatchPhase(Enum):
    """The present phase of a driver."""

    IDLE = "idle"
    COLLECTING = "collecting"
    WAITING = "waiting"


class BatchStart(NamedTuple):
    """Event: a batch begins, with this number of tasks."""

    batch: int
    tasks: int


class Again(NamedTuple):
    """Event: time has passed; hand over again the records that may have been lost."""


class Close(NamedTuple):
    """Event: no batch follows the decided one. Only for a query whose id is the writer id of its driver."""


class QuerySeen(NamedTuple):
    """Event: the query in the state of the transmission partition (see `observe`)."""

    decided: int
    """Highest batch that was decided, UNDECIDED or ABANDONED."""
    by: bytes
    """Writer of the BATCH that decided it."""
    full: bool
    """The partition knows too many queries to accept this one, which is new there."""
    over: bool
    """No batch of the query is judged any more."""
    heard: int
    """Number of this driver's records that the partition has read."""
    outputs: dict[Address, tuple[int, int]]
    """Partition of the query -> number of outputs for it that have arrived, and number of outputs made."""


class Put(NamedTuple):
    """Effect: hand these records for the transmission partition to the producer, in this order."""

    address: Address
    records: list[Handed]


class Decided(NamedTuple):
    """Effect: the batch is decided; continue with the next one."""

    batch: int
    ours: bool
    """This driver's BATCH won: the rows of its tasks are accepted."""


class BatchRefused(NamedTuple):
    """Effect: no row of this driver's tasks is received; `reason` says what to do."""

    batch: int
    reason: str


class Unclear(NamedTuple):
    """Effect: it is unknown whether this driver's BATCH won; the journal shows a later decision, or the query's end."""

    batch: int
    reason: str


Effect = Put | Decided | BatchRefused | Unclear


def observe(state: Partition, query: bytes, run: bytes, places: Iterable[Address]) -> QuerySeen:
    """A query in the state of the transmission partition. `run` is the driver's writer id, `places` its partitions."""
    known = state.judgements.get(query)
    judgement = known or Judgement()
    writer = state.writers.get(run)
    streams = [(place, state.streams[place]) for place in places if place in state.streams]
    return QuerySeen(
        judgement.decided,
        judgement.by,
        known is None and len(state.judgements) >= QUERY_ENTRIES_MAX,
        is_over(state, query),
        writer.next if writer is not None else 0,
        {place: (stream.acked, stream.next) for place, stream in streams},
    )


class Driver:
    """One run of a query, in one process."""

    def __init__(
        self, query: bytes, run: bytes, judge: Address, homes: tuple[Address, ...], targets: tuple[Address, ...]
    ) -> None:
        self.query = query
        self.run = run
        """Writer id of this driver; no other driver ever uses it."""
        self.judge = judge
        self.homes = homes
        """Every partition that may hold BEGINs of the query, from any attempt."""
        self.targets = targets
        """Every partition that may hold messages of the query."""
        self.phase = BatchPhase.IDLE
        self.batch = -1
        self.tasks = 0
        self.reports: dict[int, Report] = {}
        self._awaited: dict[Address, int] | None = None
        """Partition -> outputs that must have arrived before BATCH leaves: the decisions of earlier batches."""
        self._sent = False
        """The BATCH of the present batch has left."""
        self._put: list[Handed] = []
        """Records of this driver that the transmission partition has not read yet."""
        self._next = 0

    @property
    def places(self) -> tuple[Address, ...]:
        """Every partition of the query."""
        return tuple(dict.fromkeys((*self.homes, *self.targets)))

    def step(self, event: Any) -> list[Effect]:
        """Take an event; return the effects."""
        return _STEPS[type(event)](self, event)

    def _start(self, event: BatchStart) -> list[Effect]:
        assert self.phase is BatchPhase.IDLE, "one batch at a time"
        self.batch, self.tasks = event
        self.reports = {}
        self.phase = BatchPhase.COLLECTING if self.tasks else BatchPhase.WAITING
        self._awaited = None
        self._sent = False
        return []

    def _report(self, event: Report) -> list[Effect]:
        task = event.task
        ours = (task.query, task.run, task.batch) == (self.query, self.run, self.batch)
        if self.phase is not BatchPhase.COLLECTING or not ours or not 0 <= task.number < self.tasks:
            return []  # of another run, of a batch that is over, or too late
        strange = [a for a, begins in event.counts if a not in (self.homes if begins else self.targets)]
        if strange:
            return self._refuse(
                f"a task wrote to partition {strange[0].partition} of {strange[0].topic}, which the query did not name "
                "when it began. Name every queue that it may write to"
            )
        self.reports.setdefault(task.number, event)
        if len(self.reports) == self.tasks:
            self.phase = BatchPhase.WAITING
        return []

    def _seen(self, event: QuerySeen) -> list[Effect]:
        del self._put[: max(0, len(self._put) - (self._next - event.heard))]
        if self.phase is BatchPhase.IDLE:
            return []
        if self._sent and (event.over or event.decided == ABANDONED or event.decided > self.batch):
            return self._lose_sight(event)
        if event.decided == ABANDONED:
            return self._refuse("the query was abandoned; begin a new one, with a new checkpoint")
        if event.decided >= self.batch:
            self.phase = BatchPhase.IDLE
            return [Decided(self.batch, ours=(event.decided, event.by) == (self.batch, self.run))]
        if event.over:
            return self._refuse("the query has ended, or began too long ago; begin a new one")
        if event.full:
            return self._refuse(
                f"the transmission queue judges {QUERY_ENTRIES_MAX} other queries, and accepts no more; end one"
            )
        if self._sent:
            if self._put:
                return []  # not read yet
            return self._refuse(
                "a partition has no room for its rows, because too many later rows wait there; write the batch again, "
                "in smaller batches, with fewer queries at a time, or into a queue with more partitions"
            )
        if self.phase is not BatchPhase.WAITING:
            return []
        if self._awaited is None:
            self._awaited = {place: made for place, (_, made) in event.outputs.items()}
        if any(event.outputs[place][0] < made for place, made in self._awaited.items()):
            return []
        return self._decide()

    def _decide(self) -> list[Effect]:
        """Put BATCH: one attempt of each task, with the number of its rows in each partition."""
        reports = [self.reports[number] for number in range(self.tasks)]
        for begins, places in ((True, self.homes), (False, self.targets)):
            for place in places:
                written = [report.counts.get((place, begins), (0, 0)) for report in reports]
                if sum(n for n, _ in written) > BATCH_RECORDS_MAX or sum(size for _, size in written) > BATCH_BYTES_MAX:
                    return self._refuse(too_large(place))

        def counts(places: tuple[Address, ...], *, begins: bool) -> dict[Address, tuple[int, ...]]:
            return {place: tuple(r.counts.get((place, begins), (0, 0))[0] for r in reports) for place in places}

        attempts = tuple(report.attempt for report in reports)
        homes, targets = counts(self.homes, begins=True), counts(self.targets, begins=False)
        body = encode_batch(Batch(self.query, self.batch, attempts, homes, targets))
        if len(body) > BODY_BYTES_MAX:
            return self._refuse(
                f"{self.tasks} tasks and {len(self.places)} partitions exceed the size of one record; use fewer tasks"
            )
        self._sent = True
        prefix = head(Kind.BATCH, 0, Role.INITIATOR, self.judge.tag, self.run) + self.query
        self._put.append((encode(prefix, self._next, NO_SEQUENCE, _EMPTY), self.query, body))
        self._next += 1
        return self._again(Again())

    def _again(self, _event: Again) -> list[Effect]:
        return [Put(self.judge, list(self._put))] if self._put else []

    def _close(self, _event: Close) -> list[Effect]:
        assert self.query == self.run, "only the writer of the query may close it"
        assert self.phase is BatchPhase.IDLE, "it is not decided"
        prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, self.judge.tag, self.run) + self.run
        self._put.append((encode(prefix, self._next, NO_SEQUENCE, _EMPTY), self.run, None))
        self._next += 1
        return self._again(Again())

    def _lose_sight(self, event: QuerySeen) -> list[Effect]:
        """Give up: the journal keeps only the last decision of a query, and the writer of its BATCH."""
        self.phase = BatchPhase.IDLE
        what = f"another run has written batch {event.decided} since"
        if event.over or event.decided == ABANDONED:
            what = "the query has ended since" if event.over else "the query was abandoned since"
        return [Unclear(self.batch, what)]

    def _refuse(self, reason: str) -> list[Effect]:
        self.phase = BatchPhase.IDLE
        return [BatchRefused(self.batch, reason)]


_EMPTY: Final = encode_suffix(Suffix())

_STEPS: Final[dict[type, Callable[[Driver, Any], list[Effect]]]] = {
    BatchStart: Driver._start,  # noqa: SLF001  # the table belongs to the class
    Report: Driver._report,  # noqa: SLF001
    QuerySeen: Driver._seen,  # noqa: SLF001
    Again: Driver._again,  # noqa: SLF001
    Close: Driver._close,  # noqa: SLF001
}
