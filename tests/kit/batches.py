"""A batch query of Spark for tests of the pure core: rows of its tasks, BATCH records and decisions."""

from __future__ import annotations

from typing import Final

from konverse.dialog.batch.driver import Driver
from konverse.dialog.batch.task import ProduceRow, Task, TaskOf, ending
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.batches import Batch, encode_batch, encode_winners
from konverse.schemas.wire.envelope import encode
from konverse.schemas.wire.records import NO_SEQUENCE, Begin, Decision, Kind, Suffix
from tests.kit.builders import Scribe, Side, address_of, begin_block, identifier

QUERY: Final = identifier("query")
RUN: Final = identifier("run")
JUDGE: Final = address_of("transmission")
JUDGE_WRITER: Final = identifier("judge")
HOME: Final = address_of("replies")
TARGET: Final = address_of("orders")

ReceivedMessages = tuple[bytes, bytes | None]
"""Header and body, the arguments of `Side.take`."""


class Query:
    """A batch query: executions of its tasks, and the records that its driver and its judge write."""

    def __init__(self) -> None:
        self.driver = Scribe("run")
        self.judge = Scribe("judge")

    @staticmethod
    def task(
        number: int = 0, attempt: str = "attempt", batch: int = 0, run: bytes = RUN, judge_writer: bytes = JUDGE_WRITER
    ) -> Task:
        """One execution of task `number`."""
        return Task(TaskOf(QUERY, JUDGE, judge_writer, run, batch, number), identifier(attempt))

    @staticmethod
    def first(task: Task, conversation: bytes, body: bytes = b"") -> ReceivedMessages:
        """A row with the first message of a dialog."""
        return taken(first_row(task, conversation, begin_block(group=conversation), "order", body))

    @staticmethod
    def message(task: Task, conversation: bytes, body: bytes = b"") -> ReceivedMessages:
        """A row with a further message of a dialog."""
        return taken(further_row(task, conversation, begin_block(group=conversation), "order", body))

    def batch(self, *attempts: Task, to: Side, number: int = 0, homes: tuple[Address, ...] = (HOME,)) -> None:
        """BATCH arrives at the judge. Its targets are the partitions that the attempts wrote to, and `TARGET`."""
        places = {place for task in attempts for place, begins in task.counts if not begins} | {TARGET}
        targets = {at: tuple(task.counts.get((at, False), (0, 0))[0] for task in attempts) for at in sorted_(places)}
        begun = {at: tuple(task.counts.get((at, True), (0, 0))[0] for task in attempts) for at in homes}
        body = encode_batch(Batch(QUERY, number, tuple(task.attempt for task in attempts), begun, targets))
        to.take(self.driver.write(Kind.BATCH, to.address, QUERY), body)

    def decide(self, side: Side, winners: list[tuple[Task, int]], batch: int = 0, *, begins: bool = False) -> None:
        """The final decision about a batch arrives at `side`."""
        self.tell(side, Decision(QUERY, batch, begins, final=True), winners)

    def tell(self, side: Side, decision: Decision, winners: list[tuple[Task, int]]) -> None:
        """A decision arrives at `side`. `winners` holds a task and its number of rows."""
        body = encode_winners(tuple((task.attempt, count) for task, count in winners))
        side.take(self.judge.write(Kind.DECISION, side.address, QUERY, suffix=Suffix(detail=decision)), body)


def task_of(driver: Driver, number: int, judge_writer: bytes = JUDGE_WRITER) -> TaskOf:
    """Task `number` of the driver's current batch."""
    return TaskOf(driver.query, driver.judge, judge_writer, driver.run, driver.batch, number)


def first_row(task: Task, conversation: bytes, begin: Begin, message_type: str, body: bytes) -> ProduceRow:
    """A row with the first message of a dialog. Its BEGIN is in the same batch or an earlier one."""
    prefix, suffix = task.opening(conversation, begin, message_type)
    return _row(task, begin.target, (prefix, suffix), begin.key or conversation, body)


def further_row(task: Task, conversation: bytes, begin: Begin, message_type: str, body: bytes) -> ProduceRow:
    """A row with a further message of a dialog."""
    prefix, suffix = task.prefix(begin.target, conversation), task.suffix(message_type, begin.home)
    return _row(task, begin.target, (prefix, suffix), begin.key or conversation, body)


def last_row(row: ProduceRow) -> ProduceRow:
    """The same row, marked as the last message of its dialog."""
    header, key, body = row.record
    return ProduceRow(row.address, (ending(header), key, body))


def _row(task: Task, to: Address, parts: tuple[bytes, bytes], key: bytes, body: bytes) -> ProduceRow:
    """A row from the two constant parts of its header, as `konverse.spark.write.rows` makes many rows at once."""
    prefix, suffix = parts
    return ProduceRow(to, (encode(prefix, task.numbers(to, 1, len(body)), NO_SEQUENCE, suffix), key, body))


def taken(row: ProduceRow) -> ReceivedMessages:
    """Header and body of a row, as the partition ingests them."""
    header, _, body = row.record
    return header, body


def sorted_(places: set[Address]) -> list[Address]:
    """The partitions in order of topic and number."""
    return sorted(places, key=lambda place: (place.topic, place.partition))
