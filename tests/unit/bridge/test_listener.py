"""An operator's instruction acts on the conversation and message that the operator saw, in another process."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, Message

from konverse.bridge.admin import instructions
from konverse.bridge.admin import listener as module
from konverse.bridge.admin.instructions import INSTRUCTION_CONFIG, Instructions, ensure_topic
from konverse.bridge.admin.listener import InstructionListener, follow
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.reader.operations import ReaderOperations, awaits_operator
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.owner.events import Phase
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import (
    AccessDenied,
    BrokerClosed,
    DialogNotFound,
    InvalidState,
    OutcomeUnknown,
    TopicMismatch,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.instruction import Action, Instruction, encode
from tests.kit.driver import Driver
from tests.kit.trials import suspended

ONE, ANOTHER = UUID(int=1), UUID(int=2)


class Reader:
    """A reader with one conversation, suspended or not, whose first message has number 16."""

    def __init__(self, raises: Exception | None = None, *, suspended: bool = True, role: Role = Role.TARGET) -> None:
        self.queue = SimpleNamespace(name="Orders")
        self.done: list[Any] = []
        self.closed = False
        self.kept_up = 0
        self.outcomes: list[bool | None] = []
        self._raises = raises
        self.side = SimpleNamespace(
            id=ONE,
            role=role,
            first=(7, "//sales/Order", b"", 0),
            rings=False,
            waits=True,
            suspended=suspended,
            committed=State.CONVERSING,
        )

    @property
    def operations(self) -> Reader:
        return self

    def sides(self, conversation: UUID, role: Role | None = None) -> list[Any]:
        if isinstance(self._raises, BrokerClosed):
            raise self._raises
        if conversation != ONE or role not in (None, self.side.role):
            raise DialogNotFound("it lives elsewhere")
        return [(None, self.side)]

    def counts(self, sides: list[Any], _waits: object) -> bool | None:
        assert sides == [(None, self.side)]
        return self.outcomes.pop(0)

    def keep_up(self) -> None:
        self.kept_up += 1

    def suspend(self, conversation: UUID, *, reason: str, role: Role | None) -> None:
        self._do(role, "suspend", conversation, reason)

    def resume(self, conversation: UUID, *, role: Role | None) -> None:
        self._do(role, "resume", conversation)

    def skip(self, conversation: UUID, *, role: Role | None) -> None:
        self._do(role, "skip", conversation)

    def end(
        self,
        conversation: UUID,
        *,
        error: int = 0,
        description: str = "",
        cleanup: bool = False,
        role: Role | None = None,
    ) -> None:
        self._do(role, "end", conversation, "cleanup" if cleanup else error, description)

    def fail(self, conversation: UUID) -> None:
        self._do(None, "fail", conversation)

    def _do(self, role: Role | None, *what: Any) -> None:
        if self._raises:
            raise self._raises
        assert role in (None, self.side.role)
        self.done.append(what)


def instruction(action: Action, **changed: Any) -> Instruction:
    return Instruction("sales", "Orders", ONE.bytes, 16, action)._replace(**changed)


@pytest.mark.parametrize(
    ("said", "done"),
    [
        (instruction(Action.RESUME), ("resume", ONE)),
        (instruction(Action.SKIP), ("skip", ONE)),
        (instruction(Action.END, error=4711, description="x"), ("end", ONE, 4711, "x")),
        (instruction(Action.CLEANUP, first=0), ("end", ONE, "cleanup", "")),
        (instruction(Action.FAIL, first=0), ("fail", ONE)),
        (instruction(Action.SUSPEND, first=0, description="why"), ("suspend", ONE, "why")),
    ],
)
def test_an_instruction_for_a_conversation_of_this_reader_is_carried_out(
    said: Instruction, done: tuple[Any, ...]
) -> None:
    reader: Any = Reader()
    assert follow(reader, said)
    assert reader.done == [done]


@pytest.mark.parametrize("action", [Action.RESUME, Action.SKIP, Action.END, Action.SUSPEND])
def test_an_instruction_for_one_side_leaves_the_other_side_of_the_queue_alone(action: Action) -> None:
    """Both sides live in one queue, each in a partition of another process."""
    reader: Any = Reader()
    assert follow(reader, instruction(action, role=Role.INITIATOR)) is None
    assert reader.done == []
    assert follow(reader, instruction(action, role=Role.TARGET)) is not None
    assert len(reader.done) == 1


@pytest.mark.parametrize("action", [Action.SKIP, Action.END])
def test_skip_and_end_also_apply_to_conversations_that_are_not_suspended(action: Action) -> None:
    reader: Any = Reader(suspended=False)
    assert follow(reader, instruction(action))
    assert [what for what, *_ in reader.done] == [action.value.lower()]


def test_a_conversation_that_is_not_suspended_is_not_resumed() -> None:
    reader: Any = Reader(suspended=False)
    assert not follow(reader, instruction(Action.RESUME))
    assert reader.done == []


@pytest.mark.parametrize("changed", [{"queue": "Shop"}, {"conversation": ANOTHER.bytes}, {"first": 14}])
def test_an_instruction_for_another_queue_conversation_or_earlier_message_is_not_carried_out(
    changed: dict[str, Any],
) -> None:
    reader: Any = Reader()
    assert not follow(reader, instruction(Action.SKIP, **changed))
    assert reader.done == []


def test_an_outdated_instruction_is_dropped_and_a_closed_reader_leaves_it_to_others() -> None:
    changed: Any = Reader(InvalidState("its first message is its EndDialog or Error"))
    assert follow(changed, instruction(Action.SKIP))
    closed: Any = Reader(BrokerClosed("closed"))
    assert not follow(closed, instruction(Action.SKIP))


def test_a_cleanup_instruction_for_a_conversation_elsewhere_is_left_to_other_readers() -> None:
    for error in (DialogNotFound("it lives elsewhere"), BrokerClosed("closed")):
        reader: Any = Reader(error)
        assert not follow(reader, instruction(Action.CLEANUP, first=0))


@pytest.fixture
def listener() -> Any:
    """An InstructionListener without a thread, with one instruction."""
    found: Any = InstructionListener.__new__(InstructionListener)
    found._kept, found._followed = {5: (math.inf, instruction(Action.RESUME))}, {}
    found._commands, found._unreported = {}, {}
    found._now_ms = 0
    found._topic, found._database, found._position, found._cut = "konverse.instructions", "sales", None, False
    found._topic_id, found._look_at, found._prepared, found._unfit = b"", 0.0, False, LogThrottle()
    return found


class Log:
    """Stands in for a reader of the topic; `records` are the instructions that it holds."""

    def __init__(self, *records: Instruction) -> None:
        self.records = [*records]

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, len(self.records)

    def offset_at(self, *_: Any) -> int:
        return 0

    def read(self, _topic: str, _partition: int, start: int, end: int) -> Iterator[tuple[list[Any], int]]:
        if start < end:
            yield [self._message(place) for place in range(start, end)], end

    def _message(self, place: int) -> Any:
        value = encode(self.records[place])
        return SimpleNamespace(
            value=lambda: value, key=lambda: None, offset=lambda: place, timestamp=lambda: (1, 1_000_000)
        )


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kafka_time_ms", lambda _kafka: 1_000_000)


@pytest.mark.usefixtures("_clock")
def test_after_the_end_of_the_topic_was_cut_later_instructions_are_read(
    listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listener._kafka = None
    log = Log(*[instruction(Action.RESUME)] * 3)
    listener._read(log)
    assert listener._position == 3
    del log.records[1:]
    listener._read(log)
    assert sorted(listener._kept) == [0, 1, 2, 5], "a new leader may report an earlier end for a moment"
    for _ in range(3):
        listener._read(log)
    assert (listener._position, [*listener._kept]) == (1, [0])
    log.records.append(instruction(Action.SKIP))
    listener._read(log)
    assert listener._kept[1][1].action is Action.SKIP
    (line,) = caplog.messages
    assert line.startswith("topic konverse.instructions ends at 1 although it was read to 3")


class TopicsOfOne:
    """Stands in for Kafka's topics: one that may be deleted, with an id for each creation."""

    def __init__(self, misfit: str = "") -> None:
        self.id: bytes | None = b"1"
        self.made = 1
        self.misfit = misfit

    def partitions(self, _name: str) -> int | None:
        return None if self.id is None else 1

    def ensure(self, *_: Any, **__: Any) -> None:
        self.made += 1
        self.id = str(self.made).encode()

    def check(self, *_: Any, **__: Any) -> None:
        if self.misfit:
            raise TopicMismatch(self.misfit)

    def topic_id(self, name: str) -> bytes:
        if self.id is None:
            raise TopicMismatch(f"topic {name} does not exist any more")
        return self.id


@pytest.mark.usefixtures("_clock")
def test_a_topic_that_was_deleted_is_created_and_read_from_its_beginning(
    listener: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WATCH_EVERY_S", 0.0)
    listener._kafka, listener._topics = None, TopicsOfOne()
    log = Log(*[instruction(Action.RESUME)] * 3)
    assert not listener._is_replaced()
    listener._read(log)
    listener._topics.id, log.records = None, [instruction(Action.SKIP)] * 4
    assert listener._is_replaced(), "it was created, and its records have the offsets of the old ones"
    listener._read(log)
    assert listener._topics.id == b"2"
    assert [one.action for _, one in listener._kept.values()] == [Action.SKIP] * 4
    assert not listener._is_replaced()
    (line,) = caplog.messages
    assert "was deleted and created again" in line


def test_a_setting_of_the_topic_that_does_not_fit_is_logged_and_the_topic_is_read(
    listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listener._topics = TopicsOfOne("topic konverse.instructions has cleanup.policy=compact")
    assert not listener._is_replaced()
    assert caplog.messages == ["topic konverse.instructions has cleanup.policy=compact"]


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({}, True),
        ({"retention.ms": "604800000"}, True),
        ({"retention.ms": "-1"}, True),
        ({"retention.ms": "60000"}, False),
        ({"cleanup.policy": "compact"}, False),
        ({"message.timestamp.type": "CreateTime"}, False),
        ({"min.insync.replicas": "2"}, False),
    ],
    ids=str,
)
def test_an_existing_topic_must_keep_instructions_and_have_the_time_of_kafka(
    settings: dict[str, str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = {**INSTRUCTION_CONFIG, "max.message.bytes": "1048588", "min.insync.replicas": "1", **settings}
    kafka: Any = SimpleNamespace(settings=SimpleNamespace(bootstrap="127.0.0.1:1"))
    for name, answer in {"partitions": 1, "config": actual, "_replicas": 1}.items():
        monkeypatch.setattr(Topics, name, lambda *_, answer=answer: answer)
    with nullcontext() if fits else pytest.raises(TopicMismatch, match="konverse needs"):
        ensure_topic(Topics(kafka), "konverse.instructions")


def test_settings_that_a_process_may_not_read_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topics, "partitions", lambda *_: 1)

    def config(*_: Any) -> Any:
        raise AccessDenied("no DESCRIBE_CONFIGS")

    monkeypatch.setattr(Topics, "config", config)
    kafka: Any = SimpleNamespace(settings=SimpleNamespace(bootstrap="127.0.0.1:1"))
    ensure_topic(Topics(kafka), "konverse.instructions")


Answer = Message | KafkaError | None
WRITTEN = Message(topic="konverse.instructions", partition=0, offset=7, value=b"")


@pytest.mark.parametrize(
    ("answers", "error", "text"),
    [
        ([None], OutcomeUnknown, "is unknown: Kafka gave no answer"),
        ([KafkaError(KafkaError._TIMED_OUT)], OutcomeUnknown, "is unknown: Kafka answered: .*imed out"),
        (
            [KafkaError(KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)],
            OutcomeUnknown,
            "is unknown: Kafka answered: .*in-sync replicas",
        ),
        ([KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)], TopicMismatch, "not written to .*[Uu]nknown topic"),
        ([KafkaError(KafkaError.INVALID_RECORD)], TopicMismatch, "not written to .*failed to validate"),
        ([WRITTEN, KafkaError(KafkaError.INVALID_RECORD)], OutcomeUnknown, "failed to validate"),
        ([KafkaError(KafkaError.INVALID_RECORD), None], OutcomeUnknown, "failed to validate"),
    ],
)
def test_the_error_for_an_instruction_without_an_acknowledgement_says_what_kafka_answered(
    answers: list[Answer], error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka(Settings(kafka="kafka://127.0.0.1:1"))
    writing: Any = Instructions.__new__(Instructions)
    writing._kafka, writing._settings, writing._topics = kafka, kafka.settings, None
    for name in ("ensure_topic", "check_readable"):
        monkeypatch.setattr(instructions, name, lambda *_: None)
    monkeypatch.setattr(instructions, "append", lambda *_: answers)
    with pytest.raises(error, match=text):
        writing.write(*[instruction(Action.RESUME)] * len(answers))


def test_a_followed_instruction_is_kept_until_its_result_is_in_the_journal(listener: Any) -> None:
    reader = Reader()
    listener._readers = SimpleNamespace(open=lambda: [reader])
    reader.outcomes = [False, False, True]
    for _ in range(4):
        assert listener._kept
        listener._obey()
    assert reader.done == [("resume", ONE)], "and not done twice"
    assert reader.kept_up == 3, "its only thread may be in a handler"
    assert (listener._kept, listener._followed) == ({}, {})


@pytest.mark.parametrize(
    ("action", "keys", "lines"),
    [
        (Action.CLEANUP, (b"command", b"command"), 1),
        (Action.FAIL, (b"command", b"command"), 1),
        (Action.RESUME, (b"one side", b"other side"), 2),
        (Action.RESUME, (b"", b""), 2),
    ],
    ids=str,
)
def test_a_command_for_both_sides_is_logged_once_and_two_commands_twice(
    listener: Any, action: Action, keys: tuple[bytes, bytes], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    orders, shop = Reader(), Reader()
    shop.queue.name = "Shop"
    listener._kept = {}
    first = 16 if action is Action.RESUME else 0
    for place, (reader, key) in enumerate(zip((orders, shop), keys, strict=True)):
        listener._keep(place, 0, instruction(action, queue=reader.queue.name, first=first), key)
    listener._readers = SimpleNamespace(open=lambda: [orders, shop])
    orders.outcomes, shop.outcomes = [True], [True]
    with caplog.at_level(logging.INFO):
        listener._obey()
        listener._obey()
    assert (len(orders.done), len(shop.done)) == (1, 1)
    assert sum("requested by an operator" in message for message in caplog.messages) == lines


def test_a_copy_of_an_instruction_is_carried_out_but_not_logged_again(
    listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A retry of the operator's producer has written it."""
    orders, said = Reader(), instruction(Action.CLEANUP, first=0)
    listener._kept, listener._readers = {}, SimpleNamespace(open=lambda: [orders])
    orders.outcomes = [True, True]
    with caplog.at_level(logging.INFO):
        for place in (5, 6):
            listener._keep(place, 0, said, b"command")
            listener._obey()
            listener._obey()
    assert (len(orders.done), len(caplog.messages), listener._unreported) == (2, 1, {})


def test_a_command_is_logged_again_when_other_records_have_its_offsets(
    listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic was cut or made again, so what was known of its offsets is forgotten."""
    orders, said = Reader(), instruction(Action.CLEANUP, first=0)
    listener._kept, listener._readers = {}, SimpleNamespace(open=lambda: [orders])
    listener._keep(5, 0, said, b"command")
    listener._begin_anew()
    listener._keep(0, 0, said, b"command")
    orders.outcomes = [True]
    with caplog.at_level(logging.INFO):
        listener._obey()
        listener._obey()
    assert (len(orders.done), len(caplog.messages)) == (1, 1)


def test_of_one_command_for_several_queues_the_first_instruction_is_logged_and_of_the_next_command_too(
    listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """This process reads the second queue alone: another process logs the command, and this one a later command."""
    shop = Reader()
    shop.queue.name = "Shop"
    listener._readers = SimpleNamespace(open=lambda: [shop])
    listener._kept = {}
    listener._keep(5, 1_000_000, instruction(Action.CLEANUP, queue="Orders", first=0), b"command")
    listener._keep(6, 1_060_000, instruction(Action.CLEANUP, queue="Shop", first=0), b"command")  # a minute later
    shop.outcomes = [True, True]
    with caplog.at_level(logging.INFO):
        listener._obey()
        listener._obey()
        assert len(shop.done) == 1
        assert not caplog.messages
        listener._keep(7, 1_060_000, instruction(Action.CLEANUP, queue="Shop", first=0), b"next command")
        listener._obey()
    assert len(shop.done) == 2
    (line,) = caplog.messages
    assert "CLEANUP, requested by an operator" in line


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ({"first": 7}, [8]),
        ({"first": 6}, [7, 8]),
        ({"first": 9, "description": "END"}, [5, 6, 7, 8]),
        ({"first": 9, "queue": "Shop"}, [5, 6, 7, 8]),
        ({"first": 9, "conversation": ANOTHER.bytes}, [5, 6, 7, 8]),
        ({"first": 9, "database": "stock"}, [5, 6, 7, 8]),
        ({"first": 9, "role": Role.INITIATOR}, [5, 6, 7, 8]),
    ],
)
def test_an_instruction_reported_as_done_is_forgotten_with_its_earlier_copies(
    listener: Any, done: dict[str, Any], left: list[int]
) -> None:
    told = instruction(Action.SUSPEND, first=0, description="look into it")
    listener._kept = dict.fromkeys((5, 6, 7, 8), (math.inf, told))
    listener._done(instruction(Action.DONE, description="SUSPEND")._replace(**done))
    assert [*listener._kept] == left


class Kept(dict[int, Any]):
    """Instructions by their offsets; counts how often a caller iterates over all of them."""

    passes = 0

    def items(self) -> Any:
        self.passes += 1
        return super().items()


@pytest.mark.usefixtures("_clock")
def test_many_instructions_reported_as_done_at_once_are_forgotten_in_one_pass(listener: Any) -> None:
    """A command for a whole database writes thousands of each."""
    listener._kafka, listener._kept = None, Kept()
    told = [instruction(Action.CLEANUP, first=0, conversation=UUID(int=number).bytes) for number in range(50)]
    done = [one._replace(action=Action.DONE, first=at, description="CLEANUP") for at, one in enumerate(told[:-1])]
    listener._read(Log(*told, *done, told[0]))
    assert [*listener._kept] == [49, 99], "the last one was not done, and the first one was given again"
    assert listener._kept.passes == 1


@pytest.mark.parametrize("closed", [True, False])
def test_an_instruction_lost_with_its_partition_is_followed_again_when_the_partition_returns(
    listener: Any, closed: bool
) -> None:
    lost, again = Reader(), Reader()
    readers = [lost]
    listener._readers = SimpleNamespace(open=lambda: [one for one in readers if not one.closed])
    listener._obey()
    lost.outcomes, again.outcomes = [None], [True]
    lost.closed = closed
    readers[:] = [again]
    listener._obey()
    listener._obey()
    assert (lost.done, again.done) == ([("resume", ONE)], [("resume", ONE)])
    assert listener._kept == {}


def test_an_order_counts_when_its_commit_does() -> None:
    """And never when its owner no longer leads."""
    driver = Driver()
    driver.lead()
    endpoint = suspended(driver)
    operating: Any = ReaderOperations.__new__(ReaderOperations)
    operating._lock, operating._check_open = threading.RLock(), lambda: None
    operating._driver = SimpleNamespace(owners={0: driver.owner})
    sides = operating.sides(endpoint.id)
    operating.resume(endpoint.id)
    assert operating.counts(sides, awaits_operator) is False, "it was not even said"
    (append,) = driver.owner.commit(0)
    assert operating.counts(sides, awaits_operator) is False, "it is on its way"
    driver.acknowledge(append)
    assert operating.counts(sides, awaits_operator) is True
    driver.owner.phase = Phase.STOPPED
    assert operating.counts(sides, awaits_operator) is None
