"""The stand on a real Kafka: the bridge's drivers, as programs use them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.client.sender import Sender
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.journal import JournalAppender
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.records import Record
from konverse.deploy import LocalStack
from konverse.dialog.owner.events import Appended
from konverse.dialog.session.rotation import AgeWatch
from konverse.dialog.session.session import Session
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError, OutcomeUnknown, SteppedDown
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.limits import SESSION_IDLE_MS_MAX
from konverse.schemas.wire.envelope import HEADER, decode
from konverse.schemas.wire.records import Kind
from tests.kit.builders import Scribe
from tests.kit.oracle import read_raw
from tests.kit.pausing import paused
from tests.kit.shop import DEADLINE_S, connected, pumped, until
from tests.kit.topics import set_config

from .stand import HOME, ORDERS, OTHERS, Written

QUEUES = {HOME: "Home", ORDERS: "Orders", OTHERS: "Others"}
SERVICES = {number: f"//{name}" for number, name in QUEUES.items()}
TYPE = "t"
CONTRACT = "c"

SETTLE_S = 10.0

SILENCE_S = 1.5
"""Shorter than an owner waits for its journal."""

QUIET_S = 0.5
"""A reader that has received nothing for this long gets nothing."""


class Real:
    """A connection, and readers where a test asks for them."""

    def __init__(self, bootstrap: str, broker: Broker, stack: LocalStack | None) -> None:
        self.broker = broker
        self._bootstrap = bootstrap
        self._stack = stack
        """The local stack, when no other test uses it."""
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._losing: int | None = None
        self._begun: list[UUID] = []
        self._readers = dict.fromkeys(QUEUES, 0)
        """Queue → number of readers opened."""
        broker.admin.create_message_type(TYPE)
        broker.admin.create_contract(CONTRACT, {TYPE: "ANY"})
        for number, name in QUEUES.items():
            broker.admin.create_queue(name, partitions=1)
            broker.admin.create_service(SERVICES[number], queue=name, contracts=[CONTRACT])

    @property
    def sender(self) -> Sender:
        """The connection's sender. It exists once a dialog has begun."""
        assert self.broker._client.sender is not None
        return self.broker._client.sender

    @property
    def session(self) -> Session:
        return self.sender.session

    def _reader(self, queue: int, **options: Any) -> Reader:
        self._readers[queue] += 1
        return self.broker.reader(QUEUES[queue], partitions=[0], **options)

    def _queue(self, queue: int) -> Queue:
        return self.broker.catalog.get(Queue, QUEUES[queue])

    # ----------------------------------------------------------------------------------------------- the application

    def begin(self, queue: int = ORDERS) -> Dialog:
        dialog = self.broker.begin_dialog(SERVICES[HOME], SERVICES[queue], CONTRACT)
        self._begun.append(dialog.id)
        return dialog

    def send(self, dialog: Any, body: bytes) -> None:
        dialog.send(TYPE, body)

    def end(self, dialog: Any) -> None:
        dialog.end()

    # ----------------------------------------------------------------------------------------------------- the driver

    def let_go(self) -> None:
        until(self._rests, "the driver has nothing to do, or waits for owners or a refusal")

    def _rests(self) -> bool:
        try:
            self.broker.flush(0.05)
        except OutcomeUnknown:
            with self.sender._producer.lock:
                lanes = [lane for lane in self.session.lanes.values() if not lane.parked]
                waits = any(lane.window.outstanding or lane.window.sent < lane.next for lane in lanes)
                return not (waits or self.sender._renewal.age or self.sender._producer._failure)
        except KonverseError:
            return True
        return True

    def flush(self) -> None:
        with self._owners():
            self.broker.flush(DEADLINE_S)

    @contextmanager
    def _owners(self, *queues: int) -> Iterator[None]:
        """Run owners of these queues; without arguments, of all queues."""
        with ExitStack() as exits:
            readers = [exits.enter_context(self._reader(queue)) for queue in queues or QUEUES]
            with pumped(*readers):
                yield

    def receive(self, queue: int = ORDERS) -> list[tuple[str, bytes]]:
        received: list[tuple[str, bytes]] = []
        with self._reader(queue, timeout=QUIET_S) as reader:
            for transaction in reader:
                with transaction:
                    messages = list(transaction)
                    if self._losing == queue:
                        self._lose(reader._driver._appender)
                received += [(message.type, message.body) for message in messages]
        return received

    def _lose(self, appending: JournalAppender) -> None:
        """Lose the next answer of the journal."""
        self._losing = None
        poll = appending.poll

        def without_answer(wait_s: float) -> Any:
            outcomes = poll(wait_s)
            if outcomes:
                appending.poll = poll  # type: ignore[method-assign]
                answers = [(owner, Appended(None)) for owner, _ in outcomes]
                outcomes.clear()
                outcomes.extend(answers)
            return outcomes

        appending.poll = without_answer  # type: ignore[method-assign]

    # -------------------------------------------------------------------------------------------------------- events

    def written(self, queue: int = ORDERS) -> list[Written]:
        found = []
        for record in read_raw(self._bootstrap, self._queue(queue).topic, 0):
            envelope = decode(dict(record.headers)[HEADER] or b"")
            if envelope.writer in self.session.ids:
                where = self.session.ids.index(envelope.writer)
                found.append(Written(where, envelope.kind, envelope.counter, record.value))
        return found

    @contextmanager
    def silence(self) -> Iterator[None]:
        assert self._stack is not None, "a server that others use is never stopped"
        with paused(self._stack.pids["kafka"]):
            yield

    def flushed(self) -> bool:
        try:
            self.broker.flush(SILENCE_S)
        except OutcomeUnknown:
            return False
        return True

    def commit_in_silence(self, queue: int = ORDERS) -> tuple[list[bytes], bool, bool]:
        with self._reader(queue) as reader:
            transaction = next(iter(reader))
            with self.silence():
                with transaction:
                    bodies = [message.body for message in transaction]
                early = _settled(reader, SILENCE_S)
            return bodies, early, _settled(reader, DEADLINE_S)

    @contextmanager
    def failing_producer(self) -> Iterator[None]:
        sender = self.sender
        with (turn := threading.Lock()):
            sender._producer._serving.take(turn)
            yield
            sender._producer._client.flush(DEADLINE_S)
            with sender._producer.lock:
                sender._producer._fail("a test says so")

    def doubt(self) -> None:
        with self.sender._producer.lock:
            self.sender._renewal.give_up()
        before = len(self.session.ids)
        until(lambda: len(self.session.ids) > before or self._wait(), "another id")

    def _wait(self) -> bool:
        """Wait like a caller, so that the session gets its id."""
        try:
            self.broker.flush(0.05)
        except KonverseError:
            return False
        return False

    def grow_old(self) -> None:
        with self.sender._producer.lock:
            self.session.ageing = AgeWatch(now_ms() - SESSION_IDLE_MS_MAX)
        until(lambda: self.sender._renewal.age, "the sender notices the age of its id")

    def close_from_outside(self, queue: int = ORDERS) -> None:
        address = self._queue(queue).address(0)
        stranger = Scribe("stranger")
        header = stranger.close(address, self.session.writer)
        producer = Producer({"bootstrap.servers": self._bootstrap})
        producer.produce(address.topic, None, stranger.id, address.partition, headers=[(HEADER, header)])
        assert producer.flush(DEADLINE_S) == 0

    def asked_from_outside(self) -> dict[int, int]:
        token = self.sender._token(None)
        with connected(self._bootstrap, self.broker.database) as another, self._owners(ORDERS):
            missing = another.outcome(token, timeout=DEADLINE_S).missing
        return {self._begun.index(conversation): number for conversation, number in missing.items()}

    def delete_unread(self, queue: int = ORDERS) -> None:
        place = TopicPartition(self._queue(queue).topic, 0, -1)
        self._admin.delete_records([place])[place].result(DEADLINE_S)

    def refuse(self, queue: int, *, refuses: bool) -> None:
        most = "1" if refuses else "10485760"
        set_config(self._admin, self._queue(queue).topic, "max.message.bytes", most)

    def lose_answer(self, queue: int = ORDERS) -> None:
        self._losing = queue

    def claimed_again(self, queue: int = ORDERS) -> int:
        found = self._queue(queue)
        judge = JournalJudge((found.incarnation, found.data_topic_id, found.journal_topic_id))
        for record in read_raw(self._bootstrap, journal_topic(found.topic), 0):
            judge.judge(Record(record.offset, None, record.value, 0))
        return len(judge.claims) - self._readers[queue]

    def answer(self, body: bytes, *, fails: bool, queue: int = ORDERS) -> None:
        with self._reader(queue) as reader:
            if fails:
                _fail_once(reader._driver._outputs)
            with next(iter(reader)) as transaction:
                for message in list(transaction):
                    transaction.send(message.dialog, TYPE, body)
            reader.settle()

    def answers(self) -> list[tuple[int, bytes]]:
        records = read_raw(self._bootstrap, self._queue(HOME).topic, 0)
        decoded = [(decode(dict(record.headers)[HEADER] or b""), record.value) for record in records]
        return [(one.counter, body) for one, body in decoded if one.kind is Kind.MESSAGE]

    def bounds(self, queue: int = ORDERS) -> tuple[int, int]:
        reader = LogReader(self.broker._kafka)
        try:
            return reader.ends(self._queue(queue).topic, 0)
        finally:
            reader.close()

    @contextmanager
    def strangers_transaction(self, queue: int = ORDERS) -> Iterator[None]:
        stranger = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": uuid.uuid4().hex})
        stranger.init_transactions(DEADLINE_S)
        stranger.begin_transaction()
        stranger.produce(self._queue(queue).topic, b"never there", partition=0)
        stranger.flush(DEADLINE_S)
        yield
        stranger.abort_transaction(DEADLINE_S)
        until(lambda: self.bounds(queue)[1] == self._last(queue), "Kafka writes the mark behind its answer")

    def _last(self, queue: int) -> int:
        """The end of the data log, including open transactions."""
        everything = {"group.id": "konverse.contracts", "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **everything})
        try:
            return consumer.get_watermark_offsets(TopicPartition(self._queue(queue).topic, 0), DEADLINE_S)[1]
        finally:
            consumer.close()

    def overtaken(self, queue: int = ORDERS) -> tuple[list[bytes], bool]:
        with self._reader(queue) as first:
            bodies: list[bytes] = []
            try:
                with next(iter(first)) as transaction:
                    bodies += [message.body for message in transaction]
                    with self._reader(queue) as second:
                        until(lambda: _leads(second), "another owner")
                first.settle(SETTLE_S)
            except SteppedDown:
                return bodies, False
        return bodies, True


def _settled(reader: Reader, timeout_s: float) -> bool:
    try:
        reader.settle(timeout_s)
    except OutcomeUnknown:
        return False
    return True


def _leads(reader: Reader) -> bool:
    reader.keep_up()
    return bool(reader.owners)


def _fail_once(outputs: Outputs) -> None:
    """After the next outputs are in Kafka, treat the producer as failed."""
    pump = outputs.pump

    def failing() -> None:
        pump()
        if outputs._handed:
            outputs._producer.flush(DEADLINE_S)
            outputs.pump = pump  # type: ignore[method-assign]
            outputs.replace_producer()

    outputs.pump = failing  # type: ignore[method-assign]


@contextmanager
def opened(bootstrap: str, database: str, stack: LocalStack | None = None) -> Iterator[Real]:
    """A stand in a database of its own."""
    with connected(bootstrap, database, redis=None) as broker:
        yield Real(bootstrap, broker, stack)
