"""A follower folds like an owner, claims nothing, and continues from its state when it gets the partition."""

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
    Follow,
    Halted,
    Leading,
    OutOfRange,
    Phase,
    ReadJournal,
    Recover,
    SnapshotWritten,
    Stopped,
    Tick,
    Truncate,
)
from konverse.dialog.owner.view import Show
from konverse.schemas.wire.snapshot import SnapshotEnd, decode
from tests.kit.builders import Scribe, address_of, conversations, identifier, record
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
def owner() -> Driver:
    """A leading owner that makes no snapshots."""
    driver = Driver(claim="owner")
    driver.lead()
    return driver


def follower_of(owner: Driver) -> Driver:
    """A follower with the same logs, which has folded nothing."""
    follower = Driver(owner.journal, owner.data, "follower")
    follower.snapshots = owner.snapshots
    return follower


def bounds(driver: Driver, journal_start: int = 0, data_start: int = 0) -> Recover:
    return Recover(journal_start, len(driver.journal), data_start, 0, len(driver.snapshots))


def follow(driver: Driver) -> list[Effect]:
    return driver.step(Follow(bounds(driver)))


def work(driver: Driver, *names: str) -> None:
    """Conversations of three messages, each with an answer and a commit."""
    for name in names:
        driver.arrive(*conversations(name, messages=3, client=Scribe(name)))
        driver.handle(b"an answer")
        driver.commit()


def written(driver: Driver, effects: list[Effect]) -> list[Effect]:
    """Complete the snapshot that these effects begin. Returns the effects of that."""
    first = len(driver.snapshots)
    while True:
        for effect in effects:
            if isinstance(effect, AppendSnapshot):
                driver.snapshots += effect.records
                if effect.last:
                    return driver.step(SnapshotWritten(first))
        driver.now_ms += 1
        effects = driver.step(Tick())


def last_end(driver: Driver) -> SnapshotEnd:
    end = decode(driver.snapshots[-1])
    assert isinstance(end, SnapshotEnd)
    return end


def test_a_follower_folds_and_claims_nothing(owner: Driver) -> None:
    follower = follower_of(owner)
    with patch.object(snapshotting, "SNAPSHOT_EVERY_RECORDS", 10**6):
        for name in "abc":
            work(owner, name)
            assert follow(follower) == []
            assert digest(follower.state) == digest(owner.state)
    assert follower.owner.phase is Phase.FOLLOWING
    assert follower.owner.take() is None
    assert follower.owner.commit(0) == []


def test_a_follower_reads_each_record_once(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    owner.write(b"garbage")
    follow(follower)
    owner.write(b"more garbage")
    at = len(owner.journal)
    assert follower.owner.step(Follow(bounds(owner)), 0) == [ReadJournal(at - 1, at)]
    assert len(follower.owner.fold.journal.alarms) == 1


def test_a_follower_accumulates_no_ready_changed_or_forgotten_endpoints(owner: Driver) -> None:
    follower = follower_of(owner)
    for name in "abc":
        work(owner, name)
        follow(follower)
        state = follower.state
        assert [*state.ready, *state.changed, *state.forgotten] == []
        assert not any(endpoint.changed for endpoint in state.live())


def test_a_follower_that_becomes_owner_keeps_its_state_and_claims(owner: Driver) -> None:
    follower = follower_of(owner)
    work(owner, "a")
    follow(follower)
    state, at = follower.state, len(owner.journal)
    owner.arrive(*conversations("b", messages=3, client=Scribe("b")))
    owner.commit()
    assert follower.owner.step(bounds(owner), 0) == [ReadJournal(at, at + 1)]
    (claim,) = follower.step(follower.journal_read(at, at + 1))
    assert isinstance(claim, Append)
    effects = follower.acknowledge(claim)
    assert effects[0] == Leading(6)
    assert follower.state is state
    other = follower_of(owner)
    follow(other)
    assert digest(state) == digest(other.state)
    follower.commit()  # names the groups in handlers, because no owner released the partition
    assert len(follower.handle()) == 3


def test_the_view_of_a_new_owner_that_followed_learns_of_every_change(owner: Driver) -> None:
    follower = follower_of(owner)
    client = Scribe("a")
    owner.arrive(*conversations("a", client=client))
    owner.commit()
    follow(follower)
    (claim,) = follower.recover()
    (show,) = [effect for effect in follower.acknowledge(claim) if isinstance(effect, Show)]
    assert show.whole
    follower.arrive((client.message(address_of(), identifier("a"), sequence=1), record(b"another")))
    (show,) = [effect for effect in follower.commit() if isinstance(effect, Show)]
    assert (show.whole, len(show.rows)) == (False, 1)


def test_a_follower_overtaken_by_a_truncation_stops_without_being_fenced(owner: Driver) -> None:
    for event in (Follow(bounds(owner, 2)), bounds(owner, 2), OutOfRange(beginning=True)):
        follower = follower_of(owner)
        follow(follower)
        (stopped,) = follower.step(event)
        assert isinstance(stopped, Stopped)
        assert "truncated" in stopped.reason
        assert not stopped.fenced


def test_a_log_that_lost_its_end_halts_its_follower(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    (halted,) = follower.step(OutOfRange(beginning=False))
    assert isinstance(halted, Halted)


# --------------------------------------------------------------------------------------------------------- snapshots


def test_a_follower_makes_snapshots_and_deletes_nothing(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    offsets = []
    for name in "abc":
        work(owner, name)
        assert written(follower, follow(follower)) == []
        offsets.append(last_end(follower).offset)
        follow(follower)
        work(owner, f"{name} again")
    assert offsets == sorted(set(offsets))
    assert len(follower.owner.snapshots._durable) == snapshotting.KEPT
    after = follower_of(owner)
    follow(after)
    assert digest(after.state) == digest(owner.state)


def test_a_follower_makes_no_snapshot_while_the_owner_makes_snapshots(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    for name in "abc":
        owner.arrive(*conversations(name, messages=3, client=Scribe(name)))
        owner.commit()
        owner.make_snapshot()
        assert follow(follower) == []
        assert not follower.owner.snapshots.busy


def test_a_follower_that_becomes_owner_abandons_its_unfinished_snapshot(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    work(owner, "a")
    follow(follower)
    assert follower.owner.snapshots.busy
    follower.recover()
    assert not follower.owner.snapshots.busy
    assert follower.state.on_touch is None


def test_no_snapshot_is_deleted_because_there_is_one_of_a_follower(owner: Driver) -> None:
    follower = follower_of(owner)
    follow(follower)
    work(owner, "a")
    written(follower, follow(follower))
    old = last_end(follower).offset
    for again in (False, True):  # by the follower itself, and by an owner that recovers from its snapshot
        new = follower_of(owner) if again else follower
        new.lead()
        assert len(new.owner.snapshots._durable) == 1
        new.commit()
        work(new, f"b {again}")
        (truncate,) = new.make_snapshot()
        assert isinstance(truncate, Truncate)
        assert (truncate.journal, truncate.snapshots) == (old + 1, 0)
        if not again:
            del owner.snapshots[len(owner.snapshots) // 2 :]  # as if the last one were lost


def test_a_snapshot_whose_logs_are_gone_is_passed_over(owner: Driver) -> None:
    late = follower_of(owner)
    follow(late)
    with patch.object(snapshotting, "SNAPSHOT_EVERY_RECORDS", 10**6):
        work(owner, "a")
    begun = follow(late)
    work(owner, "b")
    owner.make_snapshot()
    newer = last_end(owner)
    written(late, begun)
    assert last_end(late).offset < newer.offset
    after = follower_of(owner)
    with patch.multiple(snapshot_search, FIRST_WINDOW=1, GROWTH=1):
        (claim,) = after.step(bounds(owner, newer.offset + 1, newer.ingest_to))
    assert isinstance(claim, Append)
    assert digest(after.state) == digest(owner.state)
