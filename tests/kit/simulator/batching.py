"""Batch queries: their checkpoints and their drivers, which crash, restart and compete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.dialog.batch.driver import (
    Again,
    BatchPhase,
    BatchRefused,
    BatchStart,
    Decided,
    Driver,
    Effect,
    Put,
    Unclear,
    observe,
)
from konverse.dialog.batch.task import Report
from konverse.schemas.wire.batches import ABANDONED, decode_winners
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.operations import Abandon
from konverse.schemas.wire.records import Begin, Decision, Kind

from .executing import Execution, TaskProcess
from .flushing import Call, Reported, Way
from .places import Place
from .producing import IdempotentProducer, LooseProducer, Producer, abandon

if TYPE_CHECKING:
    from .world import World

DECISION: Final = bytes((Kind.DECISION << 1,))
DRIVERS_MAX: Final = 3
"""Most drivers of one query at a time."""
BATCHES_WAITING_MAX: Final = 2
CALM_STEPS_MAX: Final = 60


class Query:
    """The part of a query that outlives its drivers: the checkpoint, and the dialogs that its user code knows."""

    def __init__(self, world: World) -> None:
        choices = world.choices
        self.world = world
        self.id = world.identifier(b"query")
        self.judge: Place = choices.pick(world.places)
        self.homes = self._some()
        self.targets = self._some()
        self.batches = 1 + choices.choose(4)
        self.checkpoint = 0
        """The first batch that is not in the checkpoint."""
        self.begun: list[tuple[bytes, Begin]] = []
        """Dialogs that any execution has begun."""
        self.drivers: list[DriverProcess] = []
        self.tasks: list[TaskProcess] = []
        self.inbox: list[Report] = []
        """Reports on their way to a driver."""
        self.executions: dict[bytes, list[Execution]] = {}
        """Attempt → its execution. A list, so that a repeated attempt id would show."""
        self.given_up = False
        """An operator has decided to abandon the query."""
        self.start_driver()

    def _some(self) -> list[Place]:
        choices, places = self.world.choices, self.world.places
        chosen = [place for place in places if not choices.choose(2)]
        return chosen or [choices.pick(places)]

    @property
    def over(self) -> bool:
        """All batches are done, or the query was abandoned."""
        return self.checkpoint >= self.batches or self.abandoned

    @property
    def abandoned(self) -> bool:
        """The journal has abandoned the query."""
        self.judge.follow(self.judge.journal.end)
        judgement = self.judge.shadow.state.judgements.get(self.id)
        return judgement is not None and judgement.decided == ABANDONED

    def start_driver(self) -> None:
        """A driver starts at the checkpoint."""
        self.drivers.append(DriverProcess(self))

    def stir(self) -> None:
        """Random events of the query: drivers start and crash, an operator abandons it."""
        world = self.world
        choices, swarm = world.choices, world.swarm
        self.drivers = [driver for driver in self.drivers if not driver.dead]
        self.tasks = [task for task in self.tasks if not task.over]
        if self.over:
            return
        if self.drivers and len(self.drivers) < DRIVERS_MAX and choices.chance(swarm.second_drivers):
            world.sometimes.happened("two drivers")
            self.start_driver()
        elif (
            all(driver.paused for driver in self.drivers)
            and (world.kafka.calm or choices.chance(100))
            and len(self.drivers) < DRIVERS_MAX
        ):
            self.start_driver()
        if self.drivers and choices.chance(swarm.crashes):
            choices.pick(self.drivers).crash()
        if choices.chance(swarm.abandoning):
            self.given_up = True
        if self.given_up:
            self._abandon()

    def _abandon(self) -> None:
        """Ask the judge's owner to abandon the query, until the journal says so."""
        homes, targets = (tuple(place.address for place in places) for places in (self.homes, self.targets))
        operation = Abandon(self.id, homes, targets)
        for process in self.world.owners:
            if process.place is self.judge and process.leading and process.owner is not None:
                if operation not in process.owner.duties:
                    process.owner.duties.append(operation)
                    self.world.sometimes.happened("query abandoned")
                return

    def check_crowd(self) -> None:
        """Check that rows of at most two batches wait, so that their number has a bound (I15)."""
        for place in self.homes + self.targets:
            place.follow(place.journal.end)
            attempts = place.shadow.state.pending.attempts
            batches = {batch for (query, _, _), batch, _ in attempts if query == self.id}
            if len(batches) > BATCHES_WAITING_MAX:
                place.fail(f"I15: {place.name}: rows of batches {batches} of one query wait")

    def settle_down(self) -> None:
        """Without faults: run drivers and tasks until all wait.

        Paused drivers continue when the query is over, or when it can have no further driver.
        """
        self.stir()
        for _ in range(CALM_STEPS_MAX):
            for task in [task for task in self.tasks if not task.over]:
                task.step()
            for driver in self.drivers:
                if not driver.paused or self.over or len(self.drivers) == DRIVERS_MAX:
                    driver.step()
            self.drivers = [driver for driver in self.drivers if not driver.dead]
            if self.over or all(driver.resting for driver in self.drivers):
                break


def decisions(place: Place) -> dict[tuple[bytes, int, bool], int]:
    """Final decision → position of its first record among all appends."""
    orders: dict[tuple[bytes, int, bool], int] = {}
    for record in place.data.records:
        if record.header is not None and record.header[:1] == DECISION:
            detail = decode(record.header).suffix.detail
            if isinstance(detail, Decision) and detail.final:
                orders.setdefault((detail.query, detail.batch, detail.begins), record.order)
    return orders


def winners(place: Place, query: bytes, batch: int) -> set[bytes]:
    """The winning attempts of a batch, as the final decisions in a partition's log name them."""
    found: set[bytes] = set()
    for record in place.data.records:
        if record.header is not None and record.header[:1] == DECISION:
            detail = decode(record.header).suffix.detail
            if isinstance(detail, Decision) and detail.final and (detail.query, detail.batch) == (query, batch):
                found.update(attempt for attempt, count in decode_winners(record.body or b"") if count)
    return found


class DriverProcess:
    """One run of a query's driver."""

    def __init__(self, query: Query) -> None:
        world = query.world
        self.query = query
        self.world = world
        self.asleep_until = 0
        self.dead = False
        self.paused = False
        """The driver was paused after its BATCH had left. Meanwhile other drivers may decide further batches."""
        homes, targets = (tuple(place.address for place in places) for places in (query.homes, query.targets))
        self.driver = Driver(query.id, world.identifier(b"run"), query.judge.address, homes, targets)
        self.next = query.checkpoint
        self._running: dict[int, list[TaskProcess]] = {}
        self._done: int | None = None
        """A decided batch that is not in the checkpoint yet."""
        self._loose = world.choices.chance(world.swarm.loose)
        self._producer = self._new_producer()
        self._news = True
        """Whether something may have happened since the driver last read the judgement."""

    @property
    def resting(self) -> bool:
        """The driver waits for the journal and has nothing to send."""
        return self.driver.phase is BatchPhase.WAITING and self._producer.empty and self._done is None

    def step(self) -> bool:
        """One random action."""
        if self.dead:
            return False
        world, driver = self.world, self.driver
        if self.paused and not world.kafka.calm and world.choices.choose(16):
            return False
        self.paused = False
        actions: list[Callable[[], None]] = [self._look]
        if self._done is not None:
            actions = [self._note, self._look, self._look]
        elif driver.phase is BatchPhase.IDLE:
            if self.next >= self.query.batches:
                self.dead = True
                return False
            actions = [self._start]
        elif driver.phase is BatchPhase.COLLECTING:
            actions += (self._launch, self._launch, self._hear, self._hear)
        if not self._producer.empty:
            actions += (self._transmit, self._transmit)
        elif driver.phase is BatchPhase.WAITING and (world.kafka.calm or world.choices.chance(100)):
            actions.append(lambda: self._do(driver.step(Again())))
        for action in actions if world.kafka.calm else [world.choices.pick(actions)]:
            if not self.dead:
                action()
        return True

    def crash(self) -> None:
        """The process dies. Its requests and its tasks live on."""
        happened = self.world.sometimes.happened
        happened("driver crashed")
        happened("driver crashed while it waited", self.driver.phase is BatchPhase.WAITING)
        happened("driver crashed before its checkpoint", self._done is not None)
        abandon(self._producer, self.world.choices)
        self.dead = True

    def _start(self) -> None:
        self._running = {}
        tasks = self.world.choices.choose(4) if not self.world.kafka.calm else 1
        self._do(self.driver.step(BatchStart(self.next, tasks)))

    def _launch(self) -> None:
        """Execute a task that is not running, or speculate with a second execution."""
        world, choices = self.world, self.world.choices
        driver = self.driver
        missing = []
        for number in range(driver.tasks):
            running = self._running.setdefault(number, [])
            running[:] = [task for task in running if not task.over]
            if not running and number not in driver.reports:
                missing.append(number)
        if driver.phase is not BatchPhase.COLLECTING or not (missing or choices.chance(world.swarm.speculation)):
            return
        world.sometimes.happened("task executed again", not missing)
        number = choices.pick(missing or range(driver.tasks))
        task = TaskProcess(self.query, driver, number)
        self._running[number].append(task)
        self.query.tasks.append(task)

    def _hear(self) -> None:
        """A report arrives, sometimes one for another driver or batch."""
        inbox, driver = self.query.inbox, self.driver
        if not inbox:
            return
        report = inbox[self.world.choices.choose(len(inbox))]
        if (report.task.run, report.task.batch) == (driver.run, driver.batch) or self.world.choices.choose(4) == 0:
            inbox.remove(report)
        self.world.sometimes.happened("report of another batch", report.task.batch != driver.batch)
        self.world.sometimes.happened("report of another run", report.task.run != driver.run)
        self._do(driver.step(report))

    def _look(self) -> None:
        """Read the judgement, as a follower of the transmission partition does."""
        judge, driver = self.query.judge, self.driver
        judge.follow(judge.journal.end)
        self._do(driver.step(observe(judge.shadow.state, driver.query, driver.run, driver.places)))

    def _note(self) -> None:
        assert self._done is not None
        self.query.checkpoint = max(self.query.checkpoint, self._done + 1)
        self.next, self._done = self._done + 1, None

    def _do(self, effects: list[Effect]) -> None:
        happened = self.world.sometimes.happened
        for effect in effects:
            if isinstance(effect, Put):
                self._check_told()
                for record in effect.records:
                    if self.world.kafka.calm or not self.world.choices.chance(self.world.swarm.lost):
                        self._producer.hand(effect.address, [record])
            elif isinstance(effect, Decided):
                self._believe(effect)
                self._done = effect.batch
            else:
                assert isinstance(effect, BatchRefused | Unclear)
                if isinstance(effect, BatchRefused):
                    self._check_void(effect.batch)
                happened("batch refused", isinstance(effect, BatchRefused))
                happened("batch out of sight", isinstance(effect, Unclear))
                self.dead = True

    def _check_told(self) -> None:
        """Check that BATCH leaves only when the previous decision has arrived everywhere (I15)."""
        query, before = self.query, self.driver.batch - 1
        if not self.driver._sent:  # an earlier BATCH is repeated
            return
        for begins, places in ((True, query.homes), (False, query.targets)):
            for place in places if before >= 0 else ():
                if (query.id, before, begins) not in decisions(place):
                    place.fail(f"I15: batch {before + 1} is put before {place.name} was told of {before}")

    def _believe(self, effect: Decided) -> None:
        """Check a driver's belief that a batch is decided, and by whom, against the logs."""
        query, happened = self.query, self.world.sometimes.happened
        query.judge.follow(query.judge.journal.end)
        judgement = query.judge.shadow.state.judgements.get(query.id)
        if judgement is None or judgement.decided < effect.batch:
            self.query.world.fail(f"I19: a driver goes on from batch {effect.batch}, which is not decided")
            return
        if effect.ours and judgement.decided == effect.batch and judgement.by != self.driver.run:
            self.query.world.fail(f"I19: a driver takes batch {effect.batch} of another one for its own")
        if effect.ours:
            self._report(effect.batch)
        else:
            self._check_void(effect.batch)
        happened("batch decided")
        happened("batch decided by another", not effect.ours)

    def _report(self, batch: int) -> None:
        """Report the winning rows as done: later calls must come after them."""
        query, calls = self.query, self.world.history.calls
        bodies: dict[bytes, list[bytes]] = {}
        for place in query.targets:
            for attempt in winners(place, query.id, batch):
                for row in (row for execution in query.executions.get(attempt, ()) for row in execution.rows):
                    if row.body is not None and row.address == place.address:
                        bodies.setdefault(row.conversation, []).append(row.body)
        call = Call(self.world.steps, Way.BATCH)
        calls.reported += [Reported(*said, call) for said in bodies.items()]

    def _check_void(self, batch: int) -> None:
        """Check that no decision names an attempt of a driver whose batch was refused."""
        attempts = {report.attempt for report in self.driver.reports.values()}
        for place in (*self.query.homes, *self.query.targets):
            won = winners(place, self.query.id, batch)
            if attempts & won:
                place.fail(f"I19: a driver takes batch {batch} for one that is not received, and it is")

    # ---------------------------------------------------------------------------------------------------- the producer

    def _new_producer(self) -> Producer:
        world = self.world
        kind = LooseProducer if self._loose else IdempotentProducer
        return kind(world.kafka, world.choices, world.log_of)

    def _transmit(self) -> None:
        if self._producer.empty:
            return
        self._producer.transmit()
        if self._producer.failed:
            abandon(self._producer, self.world.choices)
            self._producer = self._new_producer()
            self._do(self.driver.step(Again()))
        elif self._producer.empty and self.driver.phase is BatchPhase.WAITING and self.driver._sent:
            self.paused = self.world.choices.choose(4) == 0
