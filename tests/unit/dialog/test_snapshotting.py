"""When snapshots are made, which one an owner recovers from, and which records may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from konverse.dialog.owner import recovery as snapshot_search
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.events import (
    Append,
    AppendSnapshot,
    Effect,
    Halted,
    ReadSnapshots,
    Recover,
    SnapshotsHeld,
    SnapshotsRead,
    SnapshotWritten,
    Tick,
    Truncate,
)
from konverse.dialog.rules.attempts import claimed
from konverse.schemas.limits import SNAPSHOT_RETRY_MS
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, decode, encode
from tests.kit.builders import Scribe, conversations, identifier
from tests.kit.digests import digest
from tests.kit.driver import Driver

EVERY = 3


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    with patch.multiple(
        snapshotting, SNAPSHOT_EVERY_RECORDS=EVERY, RECORDS_PER_ENDPOINT=0, SNAPSHOT_CHUNK_BYTES_MAX=200
    ):
        yield


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def work(driver: Driver, name: str) -> None:
    """A conversation of three messages, one of them answered. The next commit begins a snapshot."""
    driver.arrive(*conversations(name, messages=3, client=Scribe(name)))
    driver.handle(b"an answer")
    driver.commit()


def successor(driver: Driver) -> Driver:
    after = Driver(driver.journal, driver.data, "after")
    after.snapshots = driver.snapshots
    return after


def change(driver: Driver, at: int, **values: object) -> None:
    """Change values in a record of the snapshot topic."""
    driver.snapshots[at] = encode(decode(driver.snapshots[at])._replace(**values))  # type: ignore[arg-type]


def ends(driver: Driver) -> list[int]:
    return [at for at, data in enumerate(driver.snapshots) if isinstance(decode(data), SnapshotEnd)]


def test_a_snapshot_is_due_after_so_many_records_and_commits(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    driver.commit()
    assert driver.step(Tick()) == []
    driver.arrive(*conversations("b", client=Scribe("b")))
    driver.commit()
    driver.make_snapshot()
    assert [decode(data).number for data in driver.snapshots[:-1]] == [*range(len(driver.snapshots) - 1)]
    assert driver.step(Tick()) == [], "one is enough"


def test_no_record_of_a_snapshot_leaves_before_its_commit_counts(driver: Driver) -> None:
    driver.arrive(*conversations("a", messages=4))
    (append,) = driver.owner.commit(0)
    for _ in range(5):
        assert driver.step(Tick()) == []
    driver.acknowledge(append)
    assert any(isinstance(effect, AppendSnapshot) for _ in range(9) for effect in driver.step(Tick()))


def test_an_owner_recovers_from_the_newest_snapshot(driver: Driver) -> None:
    for name in ("a", "b"):
        work(driver, name)
        driver.make_snapshot()
    driver.arrive(*conversations("c", client=Scribe("c")))
    driver.commit()
    after = successor(driver)
    with patch.object(snapshot_search, "FIRST_WINDOW", 2):  # the search goes back twice
        after.lead()
    assert len(after.owner.snapshots._durable) == 1
    assert after.recovered == digest(driver.state)
    assert after.owner.fold.head.number == driver.owner.fold.head.number


@pytest.mark.parametrize("values", [{"sha256": bytes(32)}, {"size": 1}, {"incarnation": identifier("another")}])
def test_a_snapshot_that_is_not_intact_or_not_ours_is_passed_over(driver: Driver, values: dict[str, object]) -> None:
    for name in ("a", "b"):
        work(driver, name)
        driver.make_snapshot()
    older, newer = ends(driver)
    expected = decode(driver.snapshots[older])
    assert isinstance(expected, SnapshotEnd)
    change(driver, newer, **values)
    after = successor(driver)
    after.lead()
    assert after.owner.snapshots._durable[0].journal_offset == expected.offset
    assert after.recovered == digest(driver.state)


def test_a_missing_chunk_and_garbage_are_passed_over(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    driver.snapshots[0] = b"garbage"
    after = successor(driver)
    after.lead()
    assert len(after.owner.snapshots._durable) == 0
    assert after.recovered == digest(driver.state)


def test_without_an_intact_snapshot_a_truncated_journal_halts(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    change(driver, 0, data=b"changed")
    (halted,) = successor(driver).step(Recover(2, len(driver.journal), 0, 0, len(driver.snapshots)))
    assert isinstance(halted, Halted)
    assert "no intact snapshot" in halted.reason


def test_a_snapshot_by_newer_rules_halts(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    change(driver, ends(driver)[0], fold_version=FOLD_VERSION + 1)
    (halted,) = successor(driver).step(Recover(0, len(driver.journal), 0, 0, len(driver.snapshots)))
    assert isinstance(halted, Halted)
    assert "needs fold rules 2" in halted.reason


def test_a_snapshot_from_behind_a_stale_end_of_the_journal_is_good(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    after = successor(driver)
    (claim,) = after.step(Recover(0, 1, 0, 0, len(driver.snapshots)))
    assert isinstance(claim, Append)
    after.acknowledge(claim)
    claimed(driver.state, clean=False)
    after.state.now_ms = driver.state.now_ms  # that of the later CLAIM
    assert digest(after.state) == digest(driver.state)


def truncations(driver: Driver, names: str) -> list[Effect]:
    out: list[Effect] = []
    for name in names:
        work(driver, name)
        out += [effect for effect in driver.make_snapshot() if isinstance(effect, Truncate)]
    return out


def test_records_before_the_older_of_two_snapshots_may_be_deleted(driver: Driver) -> None:
    effects = truncations(driver, "abc")
    older = [decode(driver.snapshots[at]) for at in ends(driver)[:2]]
    firsts = [0, ends(driver)[0] + 1]
    assert [(e.journal - 1, e.snapshots) for e in effects if isinstance(e, Truncate)] == [
        (end.offset, first) for end, first in zip(older, firsts, strict=True) if isinstance(end, SnapshotEnd)
    ]


def test_data_that_wait_for_a_handler_stay(driver: Driver) -> None:
    driver.arrive(*conversations("waits", messages=1))
    assert driver.owner.take() is not None, "and its handler takes its time"
    (truncate,) = truncations(driver, "ab")
    assert isinstance(truncate, Truncate)
    assert truncate.data == 0


def test_a_snapshot_whose_fate_is_unknown_frees_nothing_and_is_tried_again_later(driver: Driver) -> None:
    work(driver, "a")
    effects: list[Effect] = []
    while not any(isinstance(effect, AppendSnapshot) and effect.last for effect in effects):
        effects = driver.step(Tick())
    assert driver.step(SnapshotWritten(None)) == []
    assert len(driver.owner.snapshots._durable) == 0
    work(driver, "b")
    assert not any(isinstance(effect, AppendSnapshot) for _ in range(9) for effect in driver.step(Tick()))
    driver.now_ms += SNAPSHOT_RETRY_MS
    driver.arrive(*conversations("c", client=Scribe("c")))  # one record; the earlier ones still count
    driver.commit()
    driver.make_snapshot()
    assert len(driver.owner.snapshots._durable) == 1


def test_records_folded_by_a_new_owner_after_the_snapshot_count_towards_the_next_snapshot(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    for name in ("b", "c"):  # not enough for each owner, and too much for both
        with patch.object(snapshotting, "SNAPSHOT_EVERY_RECORDS", 100):
            work(driver, name)
    after = successor(driver)
    after.lead()
    after.arrive(*conversations("d", client=Scribe("d")))
    after.commit()
    after.make_snapshot()
    assert len(after.owner.snapshots._durable) == 2


def test_the_search_asks_for_the_end_first() -> None:
    owner = Driver().owner
    assert owner.step(Recover(0, 0, 0, 5, 100), 0) == [ReadSnapshots(84, 100)]
    assert owner.step(SnapshotsRead([], 100), 0) == [ReadSnapshots(5, 84)]
    assert owner.step(SnapshotsRead([], 40), 0) == [ReadSnapshots(40, 84)], "a short read"
    (append,) = owner.step(SnapshotsRead([], 84), 0)
    assert isinstance(append, Append)


def test_chunks_are_no_larger_than_a_record_may_be(driver: Driver) -> None:
    work(driver, "a")
    driver.make_snapshot()
    sizes = [len(record.data) for data in driver.snapshots if isinstance(record := decode(data), Chunk)]
    assert len(sizes) > 1
    assert max(sizes) <= 200


# ------------------------------------------------------------------------------------ the topic no longer holds it


def saved_twice(driver: Driver) -> list[Effect]:
    effects: list[Effect] = []
    for name in ("a", "b"):
        work(driver, name)
        effects = driver.make_snapshot()
    return effects


@pytest.mark.parametrize(("start", "end"), [(1, 10), (0, 0)], ids=["records deleted", "topic made again"])
def test_an_owner_saves_its_state_at_once_when_its_last_snapshot_is_gone(driver: Driver, start: int, end: int) -> None:
    assert [type(effect) for effect in saved_twice(driver)] == [Truncate]
    newest = driver.owner.snapshots.newest
    assert driver.step(SnapshotsHeld(newest, newest + start, newest + end)) == []
    assert driver.owner.snapshots.urgent
    (alarm,) = driver.owner.fold.journal.alarms
    assert "the last snapshot of" in alarm.text
    assert "was deleted from its topic" in alarm.text
    driver.commit()  # though there is nothing else to commit
    assert driver.make_snapshot() == [], "nothing is deleted before there are two again"
    assert not driver.owner.snapshots.urgent
    assert driver.owner.snapshots.newest > newest


@pytest.mark.parametrize("late", [False, True], ids=["it is still there", "a later one was written meanwhile"])
def test_nothing_is_urgent_while_the_last_snapshot_is_there(driver: Driver, *, late: bool) -> None:
    saved_twice(driver)
    newest = driver.owner.snapshots.newest
    start, end, asked = (0, 0, newest - 1) if late else (newest, newest + 1, newest)
    driver.step(SnapshotsHeld(asked, start, end))
    assert not driver.owner.snapshots.urgent
    assert not driver.owner.fold.journal.alarms
