"""An owner that learns of deleted data reports the loss in its journal, and goes on (protocol.md section 7.6)."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.events import (
    Append,
    DataGone,
    DataRead,
    Effect,
    Feed,
    Follow,
    Halted,
    Leading,
    Phase,
    ReadData,
    Recover,
    SnapshotWritten,
    Stopped,
    Tick,
)
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import SNAPSHOT_RETRY_MS, TIME_LAG_MS_MAX
from konverse.schemas.wire.journal import Commit, decode
from konverse.schemas.wire.operations import Attempt, Lost
from konverse.schemas.wire.records import Kind
from konverse.schemas.wire.snapshot import SnapshotEnd
from konverse.schemas.wire.snapshot import decode as decode_snapshot
from tests.kit.builders import (
    Row,
    Scribe,
    address_of,
    begin_block,
    columns_of,
    conversations,
    identifier,
    log_of,
    record,
)
from tests.kit.digests import digest
from tests.kit.driver import Driver

GONE: Row = (None, record(b"deleted"))


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with patch.object(snapshotting, "SNAPSHOT_CHUNK_BYTES_MAX", 200):
        yield


@pytest.fixture
def driver() -> Driver:
    """Leads, with a committed conversation of two messages."""
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", messages=2))
    driver.commit()
    return driver


def delete(driver: Driver, count: int = 3) -> int:
    """Append `count` records and delete them before they are read. Returns the new beginning of the log."""
    driver.data += [GONE] * count
    return len(driver.data)


def commit_of(effect: Effect) -> Commit:
    assert isinstance(effect, Append)
    said = decode(effect.records[0])
    assert isinstance(said, Commit)
    return said


def said(effects: list[Effect]) -> tuple[list[Lost], int]:
    """The losses and `ingest_to` of a commit. The owner asks to be fed from there."""
    feed, append = [effect for effect in effects if isinstance(effect, Feed | Append)]
    commit = commit_of(append)
    assert feed == Feed()
    return [operation for operation in commit.operations.rare if isinstance(operation, Lost)], commit.ingest_to


def lose(driver: Driver, count: int = 3) -> list[Effect]:
    """Delete records, and let the owner report it."""
    _, append = driver.step(DataGone(delete(driver, count)))
    return driver.acknowledge(append)


def reader_of(driver: Driver, claim: str = "a reader") -> Driver:
    reader = Driver(driver.journal, driver.data, claim)
    reader.snapshots = driver.snapshots
    return reader


def bounds(driver: Driver, data_start: int) -> Recover:
    return Recover(0, len(driver.journal), data_start, 0, len(driver.snapshots), len(driver.data))


def state_of(driver: Driver, name: str = "a") -> str:
    endpoint = driver.state.endpoint(Role.TARGET, identifier(name))
    return "gone" if endpoint is None else endpoint.state.code


# -------------------------------------------------------------------------------------------------- leading owners


def test_an_owner_reports_deleted_records_and_continues_after_them(driver: Driver) -> None:
    effects = driver.step(DataGone(delete(driver)))
    assert said(effects) == ([Lost(2, 5)], 5)
    driver.acknowledge(effects[-1])
    assert state_of(driver) == "ER"
    driver.arrive(*conversations("b", client=Scribe("b")))
    driver.commit()
    assert state_of(driver, "b") == "CO"
    assert driver.owner.fold.state.ingest_to == 6


def test_an_alarm_names_the_deleted_records(driver: Driver) -> None:
    driver.step(DataGone(delete(driver)))
    ((alarm, _),) = driver.owner.fold.journal.alarms
    assert "LOST: the records 2 to 4 of orders/0 were deleted" in alarm


def test_data_read_before_a_loss_is_ingested_first(driver: Driver) -> None:
    client = Scribe("b")
    rows = conversations("b", messages=2, client=client)
    driver.data += rows
    driver.step(DataRead(columns_of(rows, 2)))
    assert driver.owner.fold.state.ingest_to == 2
    assert said(driver.step(DataGone(delete(driver)))) == ([Lost(4, 7)], 7)
    endpoint = driver.state.endpoint(Role.TARGET, identifier("b"))
    assert endpoint is not None
    assert ([entry[2] for entry in endpoint.queue], endpoint.state.code) == ([b"0", b"1"], "ER")


def test_a_commit_on_its_way_comes_before_it(driver: Driver) -> None:
    driver.handle(b"an answer")
    (append,) = driver.owner.commit(0)
    assert driver.step(DataGone(delete(driver))) == []
    effects = driver.acknowledge(append)
    assert said(effects) == ([Lost(2, 5)], 5)


def test_a_commit_that_was_judged_by_the_journal_comes_before_it_too(driver: Driver) -> None:
    driver.handle(b"an answer")
    (append,) = driver.owner.commit(0)
    driver.step(DataGone(delete(driver)))
    driver.write(b"garbage")
    assert said(driver.acknowledge(append)) == ([Lost(2, 5)], 5)


def test_an_owner_whose_commit_on_its_way_does_not_count_says_nothing(driver: Driver) -> None:
    driver.handle(b"an answer")
    (append,) = driver.owner.commit(0)
    driver.step(DataGone(delete(driver)))
    reader_of(driver).lead()
    (stopped,) = driver.acknowledge(append)
    assert isinstance(stopped, Stopped)


def test_an_owner_that_slept_lets_time_come_first(driver: Driver) -> None:
    """Data that it then ingests is judged by the partition's time, which must not be old."""
    driver.now_ms = 10 * TIME_LAG_MS_MAX
    effects = driver.step(DataGone(delete(driver)))
    while not any(isinstance(effect, Feed) for effect in effects):
        (append,) = [effect for effect in effects if isinstance(effect, Append)]
        assert (commit_of(append).ingest_to, driver.owner.fold.state.ingest_to) == (2, 2)
        effects = driver.acknowledge(append)
    assert said(effects) == ([Lost(2, 5)], 5)
    assert not driver.owner.upkeep.late(driver.now_ms)


def test_where_nothing_of_it_is_gone_only_the_reader_is_at_the_wrong_place(driver: Driver) -> None:
    assert driver.step(DataGone(0)) == [Feed()]
    assert driver.owner.commit(0) == []
    assert not driver.owner.fold.journal.alarms


def test_a_loss_is_reported_once(driver: Driver) -> None:
    lose(driver)
    assert driver.step(DataGone(5)) == [Feed()]
    assert driver.owner.commit(0) == []


def test_an_owner_that_does_not_lead_yet_does_not_report_a_loss(driver: Driver) -> None:
    reader = reader_of(driver)
    reader.recover()
    assert reader.owner.phase is Phase.CLAIMING
    assert reader.owner.step(DataGone(5), 0) == []


def test_other_operations_on_an_endpoint_forgotten_by_a_loss_precede_the_loss_in_the_commit(driver: Driver) -> None:
    """A side that has ended and waits for its peer is forgotten, although its handler may just have failed."""
    client, here = Scribe("b"), address_of()
    block = begin_block(home="orders", target="replies", group=identifier("b"))
    reply = Scribe("its target").message(here, identifier("b"), role=Role.TARGET)
    driver.arrive((client.begin(identifier("b"), block), record()), (reply, record(b"reply")))
    driver.handle()
    transaction = driver.owner.take()
    assert transaction is not None
    index = transaction.dialog.index
    driver.owner.trial.fail(transaction)
    driver.arrive((client.write(Kind.END_CALL, here, identifier("b")), record()))
    effects = driver.step(DataGone(delete(driver)))
    assert said(effects) == ([Lost(5, 8)], 8)
    assert commit_of(effects[-1]).operations.rare == [Attempt([index]), Lost(5, 8)]
    assert driver.state.endpoint(Role.INITIATOR, identifier("b")) is None
    assert digest(folded(driver, effects[-1])) == digest(driver.state)


def folded(driver: Driver, effect: Effect) -> Partition:
    """A reader's state with this commit."""
    driver.acknowledge(effect)
    reader = reader_of(driver)
    reader.step(Follow(bounds(driver, 0)))
    return reader.state


# --------------------------------------------------------------------------------------------------------- recovery


def snapshot(driver: Driver) -> SnapshotEnd:
    """The last snapshot in the topic."""
    end = decode_snapshot(driver.snapshots[-1])
    assert isinstance(end, SnapshotEnd)
    return end


def with_snapshot(driver: Driver) -> SnapshotEnd:
    """A snapshot of the state with the next commit."""
    with patch.multiple(snapshotting, SNAPSHOT_EVERY_RECORDS=0, RECORDS_PER_ENDPOINT=0):
        driver.handle(b"an answer")
        driver.commit()
    driver.make_snapshot()
    return snapshot(driver)


def recover(driver: Driver, data_start: int) -> tuple[Driver, list[Effect]]:
    """Another owner recovers from logs without the deleted data."""
    reader = reader_of(driver)
    return reader, reader.step(bounds(driver, data_start))


def test_the_first_owner_reports_records_deleted_before_its_claim() -> None:
    driver = Driver()
    reader, (claim,) = recover(driver, delete(driver))
    assert said(reader.acknowledge(claim)[1:]) == ([Lost(0, 3)], 3)


def test_a_snapshot_whose_data_are_gone_is_enough_where_no_commit_behind_it_needs_them(driver: Driver) -> None:
    assert with_snapshot(driver).ingest_to == 2
    reader, (claim,) = recover(driver, delete(driver))
    effects = reader.acknowledge(claim)
    assert effects[0] == Leading(2)
    append = next(effect for effect in effects if isinstance(effect, Append))
    assert said([effect for effect in effects if isinstance(effect, Feed | Append)]) == ([Lost(2, 5)], 5)
    reader.acknowledge(append)
    assert state_of(reader) == "ER"


def test_recovery_halts_if_a_commit_after_every_snapshot_needs_deleted_data(driver: Driver) -> None:
    with_snapshot(driver)
    driver.arrive(*conversations("b", client=Scribe("b")))
    driver.commit()
    reader, (halted,) = recover(driver, delete(driver))
    assert isinstance(halted, Halted)
    assert "does not hold offset 2 any more, which its journal has ingested" in halted.reason
    assert reader.owner.phase is Phase.HALTED


def test_the_commit_that_says_it_begins_a_snapshot(driver: Driver) -> None:
    """Recovery from anything before it is impossible."""
    assert not driver.owner.snapshots.busy
    lose(driver)
    at = len(driver.journal) - 1
    driver.make_snapshot()
    assert (snapshot(driver).offset, snapshot(driver).ingest_to) == (at, 5)
    driver.arrive(*conversations("b", client=Scribe("b")))
    driver.commit()
    assert not driver.owner.snapshots.busy, "one is enough"
    reader, (claim,) = recover(driver, 5)
    assert isinstance(claim, Append)
    assert digest(reader.state) == digest(driver.state)


def test_a_snapshot_that_could_not_be_written_is_made_again(driver: Driver) -> None:
    lose(driver)
    driver.step(SnapshotWritten(None))
    assert not driver.owner.snapshots.busy
    driver.now_ms = SNAPSHOT_RETRY_MS
    idle(driver)
    driver.make_snapshot()
    assert snapshot(driver).ingest_to == 5


def test_one_that_was_under_way_is_followed_by_another_although_nothing_happens(driver: Driver) -> None:
    """The older one is from before the loss, so recovery from it needs lost data."""
    with patch.multiple(snapshotting, SNAPSHOT_EVERY_RECORDS=0, RECORDS_PER_ENDPOINT=0):
        driver.handle(b"an answer")
        driver.commit()
    lose(driver)
    driver.make_snapshot()
    assert snapshot(driver).ingest_to == 2
    idle(driver)
    driver.make_snapshot()
    assert snapshot(driver).ingest_to == 5
    assert driver.step(Tick()) == []


def idle(driver: Driver) -> None:
    """Time passes, and requires a commit."""
    (append,) = driver.step(Tick())
    driver.acknowledge(append)


# --------------------------------------------------------------------------------------------------------- readers


def test_a_follower_reaches_the_owners_state_after_a_loss(driver: Driver) -> None:
    reader = reader_of(driver)
    reader.step(Follow(bounds(driver, 0)))
    lose(driver)
    driver.arrive(*conversations("b", client=Scribe("b")))
    driver.commit()
    reader.step(Follow(bounds(driver, 0)))
    assert digest(reader.state) == digest(driver.state)


def test_a_fold_that_has_read_deleted_records_ingests_none_of_them(driver: Driver) -> None:
    client = Scribe("b")
    rows = conversations("b", messages=3, client=client)
    fold = Fold(log_of())
    fold.feed_data(columns_of([*driver.data, *rows[:2]]))
    fold.feed_data(columns_of([*rows[2:], *conversations("c", client=Scribe("c"))], 4))
    driver.data += rows
    driver.step(DataRead(columns_of(rows[:1], 2)))
    _, append = driver.step(DataGone(5))
    driver.acknowledge(append)
    driver.arrive(*conversations("c", client=Scribe("c")))
    driver.commit()
    fold.feed_journal([JournalRecord(offset, data, offset) for offset, data in enumerate(driver.journal)])
    assert fold.advance() is None
    assert fold.state.statistics.lost == 2
    assert digest(fold.state) == digest(driver.state)


def test_no_data_are_asked_for_across_a_hole(driver: Driver) -> None:
    rows = conversations("b", messages=2, client=Scribe("b"))
    driver.data += rows
    driver.step(DataRead(columns_of(rows, 2)))
    _, append = driver.step(DataGone(delete(driver)))
    driver.acknowledge(append)
    driver.arrive(*conversations("c", client=Scribe("c")))
    driver.commit()
    owner = reader_of(driver).owner
    owner.step(Recover(0, len(driver.journal)), 0)
    assert owner.step(driver.journal_read(0, len(driver.journal)), 0) == [ReadData(0, 4)]
    assert owner.step(DataRead(columns_of(driver.data[:4])), 0) == [ReadData(7, 8)]
    (claim,) = owner.step(DataRead(columns_of(driver.data[7:], 7)), 0)
    assert isinstance(claim, Append)
    assert digest(owner.fold.state) == digest(driver.state)


def test_a_loss_reported_by_a_replaced_owner_has_no_effect(driver: Driver) -> None:
    """Its own data was truncated by the owner that came after it."""
    after = reader_of(driver, "after")
    after.lead()
    after.try_groups()
    after.arrive(*conversations("b", messages=3, client=Scribe("b")))
    after.handle(b"an answer")
    after.commit()
    effects = driver.step(DataGone(5))
    assert said(effects) == ([Lost(2, 5)], 5)
    (stopped,) = driver.acknowledge(effects[-1])
    assert isinstance(stopped, Stopped)
    assert stopped.fenced
    reader = reader_of(after)
    reader.step(Follow(bounds(after, 0)))
    assert digest(reader.state) == digest(after.state)
    assert (reader.state.statistics.lost, state_of(reader)) == (0, "CO")
