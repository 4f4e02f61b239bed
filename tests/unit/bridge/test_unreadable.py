"""A partition that cannot be read does not hide the others from operators."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from konverse.bridge.admin import instructions, operations
from konverse.bridge.admin.instructions import Instructions, Suspended
from konverse.bridge.admin.operations import Operations
from konverse.bridge.cli import show
from konverse.bridge.redis.view import Header
from konverse.bridge.views import reading_state
from konverse.bridge.views.membership import Membership
from konverse.bridge.views.partitions import BEHIND, PartitionView
from konverse.bridge.views.reading_state import ReadingState, reading_states
from konverse.dialog.fold.journal import JournalHead
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.wire.instruction import Instruction
from tests.kit.builders import log_of
from tests.kit.driver import Driver
from tests.kit.trials import suspended

NOW_MS = 1_800_000_000_000
QUEUE = Queue("Orders", "konverse.sales.Orders", "queue", 3, bytes(16), bytes(16), bytes(16))


class World:
    """The states of the partitions; None: the logs of the partition contradict themselves."""

    def __init__(self, *states: Driver | None) -> None:
        self.states = states

    def follower(self, _kafka: object, _queue: Queue, partition: int) -> Any:
        return Follower(self.states[partition])


class Follower:
    """The fold of one partition."""

    def __init__(self, driver: Driver | None) -> None:
        self._driver = driver
        self.head = JournalHead(log_of()) if driver is None else driver.owner.fold.head

    @property
    def state(self) -> Any:
        return self.catch_up()

    def catch_up(self) -> Any:
        if self._driver is None:
            raise PartitionHalted("the journal contradicts itself")
        return self._driver.state

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def troubled() -> Driver:
    """An owner with a suspended conversation."""
    made = Driver()
    made.lead()
    suspended(made)
    return made


def idle() -> Driver:
    """An owner without a conversation."""
    made = Driver()
    made.lead()
    return made


def operating(monkeypatch: pytest.MonkeyPatch, *states: Driver | None) -> tuple[Any, list[Instruction]]:
    """Operations in this world, and the instructions that they write."""
    written: list[Instruction] = []
    giving: Any = Instructions.__new__(Instructions)
    giving._kafka = None
    giving._catalog = SimpleNamespace(all=lambda _kind: [replace(QUEUE, partitions=len(states))])
    giving.write = lambda *said, **_: written.extend(said)
    made: Any = Operations.__new__(Operations)
    made._check_open, made._kafka, made._database, made._instructions = (lambda: None), None, "sales", giving
    for module in (instructions, operations):
        monkeypatch.setattr(module, "kafka_time_ms", lambda _kafka: NOW_MS)
    monkeypatch.setattr(operations, "Follower", World(*states).follower)
    monkeypatch.setattr(operations, "wait_until_resumed", lambda *_: None)
    return made, written


def listed(made: Any) -> list[Suspended]:
    return [one for found in made.suspended() for one in found]


def test_suspended_conversations_of_other_partitions_are_listed_and_resumed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, written = operating(monkeypatch, troubled(), None, troubled())
    assert [one.partition for one in listed(made)] == [0, 2]
    assert [one.partition for one in made.resume_all(older_than=0)] == [0, 2]
    assert len(written) == 2
    assert caplog.messages == ["a partition was not searched: the journal contradicts itself"] * 2


def test_an_error_is_raised_when_the_readable_partitions_have_no_suspended_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = operating(monkeypatch, None, idle())
    with pytest.raises(PartitionHalted, match="contradicts itself"):
        listed(made)
    with pytest.raises(PartitionHalted, match="contradicts itself"):
        made.resume_all(older_than=0)
    assert written == []


def test_the_reading_states_of_the_other_partitions_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_state, "Follower", World(idle(), None, idle()).follower)
    monkeypatch.setattr(reading_state, "stalled", lambda *_: None)
    monkeypatch.setattr(
        reading_state,
        "reading_of",
        lambda _kafka, _queue, _number, one, _groups: ReadingState(one.head.owner, False, 1, 0, 9, 0),
    )
    kafka: Any = SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=9.0))
    states = [*reading_states(kafka, QUEUE)]
    assert [state.unreadable for state in states] == ["", "the journal contradicts itself", ""]
    assert [state.reader for state in states] == [True, False, True]


def test_the_view_of_a_queue_says_which_partitions_are_unreadable_and_which_come_from_the_logs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lives = ReadingState(b"o" * 16, False, NOW_MS, 0.0, 9.0, 0)
    halted = ReadingState(b"", True, 0, 0.0, 9.0, 0, unreadable="the journal contradicts itself")
    header = Header(7, 1, "", 0, 0, complete=True)
    views = [PartitionView(header, []), PartitionView(None, []), PartitionView(header, [], BEHIND)]
    show._show_queue(QUEUE, [lives, halted, lives], views, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Orders/")] == [
        "Orders/1: it cannot be read: the journal contradicts itself",
        "Orders/2: Redis is behind the logs; the rows come from the logs",
    ]
    assert not any("NO READER" in line for line in lines)
    assert any("UNREADABLE" in line for line in lines)


def test_the_view_of_a_queue_says_that_it_does_not_know_whether_a_silent_owner_lives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue, header = replace(QUEUE, partitions=1), Header(7, 1, "", 0, 0, complete=True)
    silent = ReadingState(b"o" * 16, False, NOW_MS, 42.0, 90.0, 0, membership=Membership(unknown="Grant DESCRIBE"))
    show._show_queue(queue, [silent], [PartitionView(header, [])], as_json=False)
    told = capsys.readouterr().out
    assert "NOT KNOWN" in told
    assert "NO READER" not in told
    assert "Orders/0: whether its owner lives is not known: Grant DESCRIBE" in told
    show._show_queue(queue, [silent], [PartitionView(header, [])], as_json=True)
    (shown,) = json.loads(capsys.readouterr().out)["partitions"].values()
    assert (shown["owner"], shown["reader"], shown["reader_unknown"]) == ((b"o" * 16).hex(), None, "Grant DESCRIBE")
