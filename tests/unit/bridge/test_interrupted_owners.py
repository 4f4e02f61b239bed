"""Exceptions from outside, as of Ctrl-C, while a reader drives its owners: no partition waits for ever.

Kafka's client drops the report whose callback an exception interrupts, and `poll` raises the exception.
"""

from __future__ import annotations

import dis
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType, SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from konverse.bridge.catalog.judge import Rules
from konverse.bridge.owner import driver, effects, journal, snapshots
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.journal import JournalAppender
from konverse.bridge.owner.snapshots import SnapshotTopic
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.owner.events import (
    LEADING,
    Append,
    Appended,
    AppendSnapshot,
    JournalRead,
    ReadJournal,
    Recover,
    SnapshotWritten,
)
from konverse.dialog.owner.settings import OwnerSettings
from konverse.schemas.catalog.objects import Queue
from tests.kit.builders import anything, identifier

QUEUE: Final = Queue("Orders", "orders", "queue", 1, identifier("queue"), identifier("data"), identifier("journal"))
POLLS_MAX: Final = 1_000
"""A driver that polls more often than this waits for ever."""
CALLS: Final = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}
TRACED: Final = {module.__file__ for module in (driver, effects, journal, snapshots)}


class Kafka:
    """Journals in memory, and the clients that write them."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(append_timeout_s=15.0, silence_timeout_s=60.0, connect_timeout_s=1.0)
        self.alarms, self.journals = LogThrottle(), defaultdict[int, list[bytes]](list)
        self.admin = SimpleNamespace(list_offsets=lambda asked: {place: Future[Any]() for place in asked})
        self.interrupted_reports: list[BaseException] = []
        """Raised as the next callbacks begin."""
        self.silent = False
        """Whether no record is reported, as when reports are lost for another reason."""

    def journal_producer(self, _timeout_s: float | None = None) -> Client:
        return Client(self)

    def data_producer(self, **_: Any) -> Client:
        return Client(self)

    def consumer(self, **_: Any) -> Any:
        return SimpleNamespace(close=lambda: None)

    def words(self, error: Any, _need: object) -> str:
        return str(error)


class Client:
    """A producer that writes records at once, and reports them when it is polled."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._reports: deque[Callable[[], None]] = deque()
        self._polls = 0

    def produce(self, _topic: str, record: bytes, _key: None, partition: int, report: Any, *_: Any) -> None:
        journal = self._kafka.journals[partition]
        journal.append(record)
        offset = len(journal) - 1
        message = SimpleNamespace(offset=lambda: offset, timestamp=lambda: (1, offset))
        self._reports.append(lambda: report(None, message))

    def poll(self, _wait_s: float) -> int:
        self._polls += 1
        assert self._polls < POLLS_MAX, "it waits for ever"
        while self._reports and not self._kafka.silent:
            report = self._reports.popleft()
            if self._kafka.interrupted_reports:
                raise self._kafka.interrupted_reports.pop()
            report()
        return 0

    def purge(self) -> None:
        self._reports.clear()

    def flush(self, _wait_s: float) -> int:
        return 0

    def __len__(self) -> int:
        return len(self._reports)


class Logs:
    """The driver's reads: the journals, as no data are written."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def bounds(self, partition: int) -> Recover:
        return Recover(0, len(self._kafka.journals[partition]))

    def answer(self, partition: int, question: ReadJournal) -> JournalRead:
        span = range(question.start, question.end)
        return JournalRead([JournalRecord(at, self._kafka.journals[partition][at], at) for at in span], question.end)

    def close(self) -> None: ...


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


def driven(kafka: Any) -> Any:
    made: Any = OwnerDriver(kafka, QUEUE, Rules(anything), OwnerSettings())
    made._reading = Logs(kafka)
    return made


def appender() -> Any:
    """The attributes of an owner that appending reads."""
    return SimpleNamespace(staging=SimpleNamespace(overtaken=[]), identity=SimpleNamespace(partition=0))


def interrupted_at(place: int, work: Callable[[], object]) -> bool:
    """Interrupt `work` after the call of this number in the driver's modules. False: it makes fewer calls.

    The interpreter handles signals where a function begins and after calls, not between any two bytecodes.
    """
    left, called = [place], dict[FrameType, bool]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left[0] -= called.get(frame, False)
            called[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]] in CALLS
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_owner_that_was_interrupted_anywhere_goes_on_or_is_reported_as_stopped(kafka: Kafka) -> None:
    """Interrupted at each place of a take-over, a commit and a release in turn."""
    place, stops = 0, 0
    while True:
        one, taken = driven(kafka), list[int | None]()

        def work(one: Any = one, taken: list[int | None] = taken) -> None:
            taken.append(one.take_over(0))
            one.pump()
            one.give_back(0)

        if not interrupted_at(place, work):
            break
        one.pump()
        one.pump()
        stopped, owner = one.stopped(), one.owners.get(0)
        stops += len(stopped)
        if stopped:
            assert owner in (None, stopped[0][1])
        elif owner is not None:
            assert (owner.phase, owner.committing, len(taken)) == (LEADING, False, 1)
        one.close()
        place += 1
    assert place > 50, "the whole of it was interrupted"
    assert stops > 10
    assert driven(kafka).take_over(0) == 0


def test_a_commit_whose_report_was_interrupted_does_not_keep_its_partition(kafka: Kafka) -> None:
    one = driven(kafka)
    one.take_over(0)
    kafka.interrupted_reports.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        one.give_back(0)
    assert one.owners == {}
    assert [effect.clean for _, _, effect in one.stopped()] == [False]
    assert driven(kafka).take_over(0) == 0


def test_an_interrupt_between_reports_loses_no_outcome(kafka: Kafka) -> None:
    """An ordinary Ctrl-C: the program closes the reader, and its work is committed."""
    one = driven(kafka)
    one.take_over(0)
    (owner,) = one.owners.values()
    poll, cut = one._appender._producer.poll, [KeyboardInterrupt()]

    def interrupted(wait_s: float) -> int:
        if owner.committing and cut:
            raise cut.pop()
        return int(poll(wait_s))

    one._appender._producer.poll = interrupted
    one._run(owner, lambda: owner.release(0))
    with pytest.raises(KeyboardInterrupt):
        one.pump()
    one.close()
    assert (one.stopped(), owner.counters.commits) == ([], 1)


def test_an_append_has_an_unknown_outcome_when_no_report_comes_in_time(
    kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driven(kafka)
    one.take_over(0)
    kafka.silent = True
    monkeypatch.setattr(one._appender, "_reported_within_s", 0.0)
    one.give_back(0)
    assert [effect.reason for _, _, effect in one.stopped()] == ["the outcome of an append to the journal is unknown"]


@pytest.mark.parametrize("end", [OwnerDriver.close, lambda one: one.give_back(0, 1, 2)])
def test_partitions_that_are_given_back_together_wait_for_kafka_together(
    kafka: Kafka, end: Callable[[OwnerDriver], None]
) -> None:
    """Each release is in its journal before the first one is confirmed: without Kafka they take one timeout in all."""
    one, released = driven(kafka), list[int]()
    for number in range(3):
        one.take_over(number)
    before = {number: len(journal) for number, journal in kafka.journals.items()}
    poll = one._appender._producer.poll

    def first(wait_s: float) -> int:
        released.append(sum(len(journal) > before[number] for number, journal in kafka.journals.items()))
        return int(poll(wait_s))

    one._appender._producer.poll = first
    end(one)
    assert (released[0], one.owners, one.stopped()) == (3, {}, [])


@pytest.mark.parametrize("interrupted", [0, 1, 2])
def test_an_interrupt_of_one_release_leaves_the_others_committed(kafka: Kafka, interrupted: int) -> None:
    one = driven(kafka)
    for number in range(3):
        one.take_over(number)
    owners, release = dict(one.owners), one.owners[interrupted].release

    def cut(now_ms: int) -> Any:
        release(now_ms)
        raise KeyboardInterrupt

    one.owners[interrupted].release = cut
    with pytest.raises(KeyboardInterrupt):
        one.give_back(0, 1, 2)
    assert one.owners == {}
    assert {number: owner.counters.commits for number, owner in owners.items()} == {
        number: int(number != interrupted) for number in range(3)
    }
    assert [number for number, _, _ in one.stopped()] == [interrupted]


def test_a_client_of_kafka_drops_an_interrupted_report_and_runs_empty() -> None:
    """The rule rests on this. The client here has no broker: a purge makes it report."""
    words = iter([KeyboardInterrupt()])

    def interrupted(*_: object) -> str:
        raise next(words)

    client = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 60_000, "log_level": 0})
    kafka: Any = SimpleNamespace(
        journal_producer=lambda: client, words=interrupted, settings=SimpleNamespace(append_timeout_s=60.0)
    )
    appending, owner = JournalAppender(kafka, "journal"), appender()
    appending.append(owner, Append([b"record"]))
    assert (list(appending.poll(0)), len(client)) == ([], 1)
    client.purge()
    with pytest.raises(KeyboardInterrupt):
        appending.poll(60.0)
    assert (list(appending.poll(0)), len(client)) == ([(owner, Appended(None))], 0)


def test_an_append_that_was_interrupted_between_its_records_has_an_unknown_outcome(
    kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    appending, owner = JournalAppender(kafka, "journal"), appender()
    produce, records = Client.produce, list[bytes]()

    def cut(client: Client, topic: str, record: bytes, *rest: Any) -> None:
        records.append(record)
        if len(records) == 2:
            raise KeyboardInterrupt
        produce(client, topic, record, *rest)

    monkeypatch.setattr(Client, "produce", cut)
    with pytest.raises(KeyboardInterrupt):
        appending.append(owner, Append([b"part 1", b"part 2", b"part 3"]))
    assert list(appending.poll(0)) == [(owner, Appended(None))]


def test_a_snapshot_of_which_a_report_was_interrupted_is_not_written(kafka: Any) -> None:
    """Its outcome is known nevertheless: otherwise the owner would never make another one."""
    topic, owner = SnapshotTopic(kafka, "snapshots"), driven(kafka)._fresh(0)
    topic.append(owner, AppendSnapshot([b"chunk", b"end"], last=True))
    kafka.interrupted_reports.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        topic.poll()
    assert list(topic.poll()) == [(owner, SnapshotWritten(None))]
