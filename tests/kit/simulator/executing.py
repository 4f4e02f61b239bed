"""Executions of batch tasks, each in its own process. Their user code writes different rows each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.dialog.batch.driver import Driver
from konverse.dialog.batch.task import ProduceRow, Task
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.records import Begin
from konverse.schemas.wire.varint import read_varint
from tests.kit.batches import first_row, further_row, last_row, task_of

from .flushing import Way
from .producing import IdempotentProducer, LooseProducer, Producer, abandon

if TYPE_CHECKING:
    from .batching import Query

COUNTER_AT: Final = 39
ROWS_MAX: Final = 4
"""About the most rows of an execution."""


class Written(NamedTuple):
    """A row as an execution wrote it."""

    address: Address
    begins: bool
    number: int
    conversation: bytes
    body: bytes | None


@dataclass(slots=True)
class Execution:
    """An execution of a task, and its rows."""

    query: bytes
    run: bytes
    batch: int
    task: int
    tasks: int
    rows: list[Written] = field(default_factory=list)


class TaskProcess:
    """The process of one execution. It may outlive the driver."""

    def __init__(self, query: Query, driver: Driver, number: int) -> None:
        world = query.world
        self.query = query
        self.world = world
        self.asleep_until = 0
        self.over = False
        """Dead, failed or reported."""
        self.task = Task(task_of(driver, number, query.judge.shadow.state.writer_id), world.identifier(b"attempt"))
        self.number = number
        self.execution = Execution(query.id, driver.run, driver.batch, number, driver.tasks)
        self._left = 1 if world.kafka.calm else world.choices.choose(ROWS_MAX)
        self._began: list[tuple[bytes, Begin]] = []
        kind = LooseProducer if world.choices.chance(world.swarm.loose) else IdempotentProducer
        self._producer: Producer = kind(world.kafka, world.choices, world.log_of)
        self._unacknowledged = 0

    def step(self) -> bool:
        """One random action."""
        if self.over:
            return False
        choices, producer = self.world.choices, self._producer
        if choices.chance(self.world.swarm.early) and self._try_to_report():
            return True
        if self._left and (producer.empty or choices.choose(2)):
            self._left -= 1
            self._write()
        elif not producer.empty:
            producer.transmit()
            if producer.failed:
                self.crash()
        elif not self._settle():
            self._end()
        return True

    def crash(self) -> None:
        """The process dies. Its requests may still arrive."""
        self.world.sometimes.happened("task crashed")
        abandon(self._producer, self.world.choices)
        self.over = True

    # -------------------------------------------------------------------------------------------------- the user code

    def _write(self) -> None:
        world, query = self.world, self.query
        choices = world.choices
        known = self._began + [one for one in query.begun if self._lives(*one) or choices.chance(100)]
        if known and choices.choose(3):
            conversation, begin = choices.pick(known)
            if begin.target not in [place.address for place in query.targets]:
                return
            body = b"r%d" % world.new_message()
            kind, last = ("t", "u")[choices.choose(2)], not choices.choose(6)
            world.sometimes.happened("row ends its dialog", last)
            row = further_row(self.task, conversation, begin, kind, body)
            self._hand(last_row(row) if last else row, conversation)
            return
        conversation = world.identifier(b"batchdialog")
        home, target = choices.pick(query.homes), choices.pick(query.targets)
        begin = Begin("near", "far", "contract", home.address, target.address, conversation)
        query.begun.append((conversation, begin))
        self._began.append((conversation, begin))
        rows = [self.task.begin(conversation, begin)]
        body, last = b"r%d" % world.new_message(), not choices.choose(8)
        row = first_row(self.task, conversation, begin, "t", body)
        rows.append(last_row(row) if last else row)
        for row in rows[:: 1 - 2 * choices.choose(2)]:
            self._hand(row, conversation)

    def _lives(self, conversation: bytes, begin: Begin) -> bool:
        home = next(place for place in self.world.places if place.address == begin.home)
        home.follow(home.journal.end)
        return home.shadow.state.endpoint(Role.INITIATOR, conversation) is not None

    def _hand(self, row: ProduceRow, conversation: bytes) -> None:
        header, _, body = row.record
        if body is not None:
            self.world.history.calls.send(conversation, body, self.world.steps, Way.BATCH)
        number, _ = read_varint(header, COUNTER_AT)
        self.execution.rows.append(Written(row.address, body is None, number, conversation, body))
        self._unacknowledged += 1
        self._producer.hand(row.address, [row.record])

    # ---------------------------------------------------------------------------------------------------- the driver

    def _settle(self) -> bool:
        """Note acknowledged rows; False when there are none."""
        arrived, self._unacknowledged = self._unacknowledged, 0
        self.task.acknowledged(arrived)
        return bool(arrived)

    def _end(self) -> None:
        if not self._try_to_report():
            self.world.fail("L1: a task whose rows are all acknowledged has nothing to report")
        self.over = True

    def _try_to_report(self) -> bool:
        report = None if self._left else self.task.report()
        if report is not None:
            self.query.executions.setdefault(self.task.attempt, []).append(self.execution)
            self.query.inbox.append(report)
            self.query.check_crowd()
            abandon(self._producer, self.world.choices)
            self.over = True
        return report is not None
