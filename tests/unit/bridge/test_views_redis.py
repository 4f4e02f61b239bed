"""When Redis's rows of a partition suffice for a view."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple, Self, cast
from uuid import UUID

import pytest

from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.redis.view import Header
from konverse.bridge.views import partitions
from konverse.bridge.views.membership import MEMBER, ConsumerGroups, Membership
from konverse.bridge.views.partitions import (
    BEHIND,
    LAST_RECORDS,
    MISSING,
    PartitionView,
    ViewReader,
    _is_fresh,
    _Present,
)
from konverse.dialog.owner.view import ViewRow
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import PartitionHalted, TopicMismatch
from konverse.schemas.wire.journal import GENESIS_HASH, Claim, Commit, CommitOperations, encode_claim, encode_commit
from tests.kit.driver import Driver
from tests.kit.trials import suspended

NOW_MS = 1_800_000_000_000


class Logs:
    """Stands in for the reader of logs: the last records of the journal, and the beginning of young data."""

    def __init__(self, *records: bytes, start: int = 0, age_s: float = 0, young_from: int = 10) -> None:
        self.records = records
        self.start = start
        self.young_from = young_from
        self.age_s = age_s

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return self.start, self.start + len(self.records)

    def read(self, _topic: str, _partition: int, start: int, end: int) -> Any:
        assert start >= self.start
        time_ms = NOW_MS - round(self.age_s * 1000)
        numbered = enumerate(self.records[start - self.start : end - self.start], start)
        yield [Message(record, time_ms, offset) for offset, record in numbered], end

    def offset_at(self, _topic: str, _partition: int, _time_ms: int) -> int:
        return self.young_from


class Message(NamedTuple):
    """A record in the form of Kafka's client."""

    data: bytes
    time_ms: int
    at: int

    def value(self) -> bytes:
        return self.data

    def offset(self) -> int:
        return self.at

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


class Groups(NamedTuple):
    """Stands in for Kafka's consumer groups: what they tell about each owner."""

    told: Membership

    def membership(self, *_: object) -> Membership:
        return self.told


OWNER = b"o" * 16
COMMIT = Commit(1, OWNER, 3, GENESIS_HASH, 10, CommitOperations())
LEFT = encode_commit(replace(COMMIT, release=True))
LEADS = encode_commit(COMMIT)
ANOTHER = encode_commit(replace(COMMIT, owner=b"x" * 16))


QUEUE = Queue("orders", "orders", "queue", 1, OWNER, OWNER, OWNER)
CLAIM = encode_claim(Claim(2, OWNER, 1, OWNER, OWNER, OWNER, clean=True))


@pytest.mark.parametrize(
    ("reader", "shown", "fresh"),
    [
        (Logs(LEADS, LEADS), 1, True),
        (Logs(LEADS, LEADS), 0, True),
        (Logs(LEADS, LEADS, age_s=3_600), 1, True),
        (Logs(LEADS, LEADS, age_s=3_600), 0, False),
        (Logs(LEADS, LEFT, age_s=3_600), 0, True),
        (Logs(LEADS, young_from=11), 0, False),
        (Logs(LEADS, ANOTHER), 0, False),
        (Logs(ANOTHER, CLAIM), 1, True),
        (Logs(CLAIM, young_from=0), 0, True),
        (Logs(CLAIM, young_from=1), 0, False),
        (Logs(*[LEADS, *[CLAIM] * LAST_RECORDS]), LAST_RECORDS, False),
        (Logs(LEADS, start=5), 5, True),
        (Logs(CLAIM, start=5), 5, False),
        (Logs(LEADS, b"garbage"), 0, True),
        (Logs(b"garbage"), 0, False),
        (Logs(), 7, False),
    ],
    ids=[
        "it shows all",
        "what it wrote since changed nothing",
        "dead and all is shown",
        "dead and something is not shown",
        "it left in order",
        "old data was not ingested",
        "another owner leads",
        "it has just begun",
        "nothing was ever ingested",
        "nothing was ingested yet",
        "nobody has committed for long",
        "what is older was deleted",
        "and nothing says how far it ingested",
        "a stranger's record after it",
        "a stranger's record alone",
        "no journal",
    ],
)
def test_redis_counts_when_the_last_owner_has_shown_it(reader: Logs, shown: int, *, fresh: bool) -> None:
    header = Header(shown, 1, OWNER.hex(), 0, 0, complete=True)
    now = _Present(NOW_MS, 600.0, cast("ConsumerGroups", Groups(MEMBER)))
    assert _is_fresh(cast("LogReader", reader), (QUEUE, 0), header, now) is fresh


@pytest.mark.parametrize(
    ("reader", "shown", "fresh"),
    [
        (Logs(LEADS, LEADS, age_s=60), 0, False),
        (Logs(LEADS, LEADS, age_s=60), 1, True),
        (Logs(LEADS, b"garbage", age_s=60), 0, True),
        (Logs(LEADS, LEFT, age_s=60), 0, True),
        (Logs(LEADS, LEADS, age_s=1), 0, True),
    ],
    ids=[
        "something is not shown",
        "all is shown",
        "a stranger wrote after it",
        "it released the partition",
        "its last record is a sign of life",
    ],
)
def test_redis_must_show_all_of_an_owner_that_has_left_its_group(reader: Logs, shown: int, *, fresh: bool) -> None:
    header = Header(shown, 1, OWNER.hex(), 0, 0, complete=True)
    now = _Present(NOW_MS, 600.0, cast("ConsumerGroups", Groups(Membership(left=True))))
    assert _is_fresh(cast("LogReader", reader), (QUEUE, 0), header, now) is fresh


class Store:
    """Stands in for the view of a queue in Redis: a header of the owner, and one row."""

    def __init__(self, row: ViewRow, *, complete: bool = True) -> None:
        self._row = row
        self._header = Header(1, 1, OWNER.hex(), 1, 1, complete=complete)

    def whole(self, _partition: int) -> tuple[Header, list[ViewRow]] | None:
        return (self._header, [self._row]) if self._header.complete else None

    def header(self, _partition: int) -> Header:
        return self._header

    def missing(self, _partition: int) -> None:
        return None

    def find(self, conversation: bytes) -> list[tuple[int, ViewRow]]:
        return [(0, self._row)] if conversation == self._row.conversation.bytes else []


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """An owner whose partition the logs hold. Its only conversation is suspended."""
    made = Driver()
    made.lead()
    suspended(made)

    class Follower:
        """Folds the logs."""

        def __init__(self, *_: Any) -> None:
            self.head = made.owner.fold.head

        def catch_up(self) -> Any:
            return made.state

        def __enter__(self) -> Self:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    monkeypatch.setattr(partitions, "Follower", Follower)
    monkeypatch.setattr(partitions, "kafka_time_ms", lambda _kafka: NOW_MS)
    return made


def view_reader(logs: Logs) -> Any:
    """A ViewReader of these logs."""
    reader: Any = ViewReader.__new__(ViewReader)
    reader._reader = logs
    reader._groups = Groups(MEMBER)
    reader._kafka = SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=600.0))
    reader._topics = SimpleNamespace(same_queue=lambda _queue: None)
    return reader


@pytest.mark.parametrize(
    ("logs", "complete", "reason"),
    [
        (Logs(LEADS, LEADS), True, ""),
        (Logs(LEADS, ANOTHER), True, BEHIND),
        (Logs(LEADS, LEADS, LEFT, age_s=3_600), True, ""),
        (Logs(LEADS, LEADS, LEADS, age_s=3_600), True, BEHIND),
        (Logs(LEADS, LEADS), False, MISSING),
    ],
)
@pytest.mark.parametrize("way", ["read", "find"])
def test_people_see_the_state_of_the_logs_where_redis_is_behind(
    driver: Driver, logs: Logs, complete: bool, reason: str, way: str
) -> None:
    (row,) = partitions.rows_of(driver.state, 0)
    assert row.suspended
    outdated: Any = Store(row._replace(suspended=False), complete=complete)
    reader = view_reader(logs)
    view: PartitionView
    if way == "read":
        view = reader.read(outdated, QUEUE, 0)
    else:
        ((partition, view),) = reader.find(outdated, QUEUE, row.conversation.bytes)
        assert partition == 0
    assert view.reason == reason
    (shown,) = view.rows
    assert shown.suspended == bool(reason)
    assert view.header is not None
    assert view.header.owner == (driver.owner.claim_id if reason else OWNER).hex()


def test_a_conversation_that_redis_does_not_show_yet_is_found_in_the_logs(driver: Driver) -> None:
    (row,) = partitions.rows_of(driver.state, 0)
    empty: Any = Store(row._replace(conversation=UUID(int=7)))
    ((_, view),) = view_reader(Logs(LEADS, ANOTHER)).find(empty, QUEUE, row.conversation.bytes)
    assert view.rows == [row._replace(journal_offset=driver.owner.fold.head.offset)]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("young_from", "overdue"), [(10, False), (11, True)])
def test_data_that_no_owner_has_ingested_is_noticed(young_from: int, overdue: bool, driver: Driver) -> None:
    (row,) = partitions.rows_of(driver.state, 0)
    store: Any = Store(row)
    assert view_reader(Logs(LEADS, young_from=young_from)).read(store, QUEUE, 0).overdue == overdue


def test_a_partition_that_cannot_be_read_does_not_hide_the_others(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = partitions.rows_of(driver.state, 0)
    store: Any = Store(row)
    reader = view_reader(Logs(LEADS, ANOTHER))

    def halted(_: object) -> Any:
        raise PartitionHalted("the journal contradicts itself")

    monkeypatch.setattr("konverse.bridge.views.partitions.Follower.catch_up", halted)
    ((_, error),) = reader.find(store, QUEUE, row.conversation.bytes)
    assert isinstance(error, PartitionHalted)

    def deleted(_: Queue) -> None:
        raise TopicMismatch("topic orders does not exist")

    reader._topics.same_queue = deleted
    ((_, error),) = reader.find(store, QUEUE, row.conversation.bytes)
    assert isinstance(error, TopicMismatch)
