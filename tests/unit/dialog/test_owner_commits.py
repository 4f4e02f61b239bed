"""Commit: one record, its expected offset, and the judgement at any other offset (protocol.md section 4)."""

from __future__ import annotations

import hashlib
from typing import cast

import pytest

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Append, Appended, Drained, Effect, Halted, Phase, ReadJournal, Stopped, Tick
from konverse.schemas.limits import COMMIT_GROUPS_MAX, LOOK_AHEAD_RECORDS_MAX, UNCOMMITTED_MS_MAX
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, decode, encode_commit
from tests.kit.builders import conversations, identifier, record, records_of
from tests.kit.digests import digest
from tests.kit.driver import Driver


@pytest.fixture
def driver() -> Driver:
    """Leads, at journal offset 0, with three conversations of two messages ingested."""
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", "b", "c", messages=2))
    return driver


def commit_of(effect: Effect) -> Commit:
    assert isinstance(effect, Append)
    record = decode(effect.records[0])
    assert isinstance(record, Commit)
    return record


def emits(effects: list[Effect]) -> list[bytes | None]:
    return [output[2] for effect in effects if isinstance(effect, Emit) for output in records_of(effect)]


def in_flight(driver: Driver, *replies: bytes) -> Effect:
    """A handler has replied, and the commit is on its way."""
    driver.handle(*replies or (b"reply",))
    (append,) = driver.owner.commit(driver.now_ms)
    return append


def stale() -> bytes:
    """A commit of another process that is not the owner."""
    return encode_commit(Commit(1, identifier("a zombie"), 1, GENESIS_HASH, 0, CommitOperations()))


def taken_over(driver: Driver) -> Driver:
    """Another process reads the journal as it is and claims."""
    other = Driver(driver.journal, driver.data, "other")
    other.lead()
    return other


# ---------------------------------------------------------------------------------------------------------- contents


def test_a_commit_records_the_ingest_position_receives_sends_and_ends(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    messages = list(transaction)
    transaction.send(messages[0].dialog, "reply", b"one")
    transaction.end(messages[0].dialog)
    driver.owner.finish(transaction)
    driver.handle(b"two", b"three")
    (append,) = driver.owner.commit(0)
    commit = commit_of(append)
    assert (commit.epoch, commit.owner, commit.number, commit.ingest_to) == (1, identifier("me"), 1, 6)
    assert commit.previous_hash == GENESIS_HASH
    assert commit.operations.receive_endpoints == [0, 1]
    assert commit.operations.receive_positions == [2 << 2, 2 << 2]
    assert commit.operations.sends == [(0, "reply", [b"one"]), (1, "reply", [b"two", b"three"])]
    assert [end.endpoint for end in commit.operations.ends] == [0]
    assert not commit.release


def test_commits_are_numbered_and_chained(driver: Driver) -> None:
    first = in_flight(driver)
    driver.acknowledge(first)
    second = commit_of(in_flight(driver))
    assert second.number == 2
    assert second.previous_hash == hashlib.sha256(cast("Append", first).records[0]).digest()


def test_there_is_nothing_to_commit_when_nothing_happened() -> None:
    driver = Driver()
    driver.lead()
    assert driver.owner.commit(0) == []


def test_ingestion_without_handled_messages_is_committed(driver: Driver) -> None:
    (append,) = driver.owner.commit(0)
    assert commit_of(append).ingest_to == 6
    driver.acknowledge(append)
    assert driver.owner.commit(0) == []


def test_one_commit_at_a_time(driver: Driver) -> None:
    append = in_flight(driver)
    driver.handle(b"another")
    assert driver.owner.committing
    assert driver.owner.commit(0) == []
    driver.acknowledge(append)
    assert not driver.owner.committing
    (append,) = driver.owner.commit(0)
    assert commit_of(append).operations.sends == [(1, "reply", [b"another"])]


def test_acknowledged_outputs_are_journaled(driver: Driver) -> None:
    (emit, *_) = driver.acknowledge(in_flight(driver))
    assert isinstance(emit, Emit)
    driver.step(Drained([emit.address]))
    (append,) = driver.owner.commit(0)
    assert commit_of(append).output_acks == [(emit.address, 1)]
    driver.acknowledge(append)
    assert driver.owner.commit(0) == []
    assert not driver.state.streams[emit.address].waiting


def test_the_live_state_is_the_fold_of_the_journal_after_every_commit(driver: Driver) -> None:
    """I3: handed-out, rolled-back and in-flight work leaves no trace in it."""
    for reply in (b"1", b"2", b"3"):
        rolled_back = driver.owner.take()
        assert rolled_back is not None
        list(rolled_back)
        driver.owner.staging.roll_back(rolled_back)
        driver.handle(reply)
        driver.commit()
        other = Driver(driver.journal, driver.data, "a reader")
        other.recover()
        assert digest(other.state) == digest(driver.state)


# ------------------------------------------------------------------------------------------- the offset that it gets


def test_a_commit_directly_behind_the_last_record_counts_without_reading(driver: Driver) -> None:
    append = in_flight(driver)
    effects = driver.owner.step(Appended(driver.write(append)), 0)
    assert not [effect for effect in effects if isinstance(effect, ReadJournal)]
    assert emits(effects) == [b"reply"]
    assert (driver.owner.fold.head.number, driver.owner.fold.head.offset) == (1, 1)
    assert driver.owner.counters.commits == 1


def test_nothing_is_emitted_before_the_commit_counts(driver: Driver) -> None:
    append = in_flight(driver)
    assert driver.owner.emitter.pending() == []
    assert emits(driver.step(Tick())) == []
    assert emits(driver.acknowledge(append)) == [b"reply"]


def test_an_append_of_unknown_outcome_stops(driver: Driver) -> None:
    in_flight(driver)
    assert driver.step(Appended(None)) == [Stopped("the outcome of an append to the journal is unknown")]
    assert driver.owner.phase is Phase.STOPPED
    assert driver.owner.counters.commits == 0


def test_records_that_do_not_count_may_stand_before_the_commit(driver: Driver) -> None:
    append = in_flight(driver)
    driver.write(stale())
    driver.write(b"garbage")
    assert emits(driver.acknowledge(append)) == [b"reply"]
    assert driver.owner.phase is Phase.LEADING
    assert (driver.owner.fold.head.number, driver.owner.fold.head.offset) == (1, 3)
    assert "journal record 2 of orders/0 is undecodable" in driver.owner.fold.journal.alarms[0].text


def test_after_a_gap_was_judged_the_next_commit_needs_no_reading(driver: Driver) -> None:
    append = in_flight(driver)
    driver.write(b"garbage")
    driver.acknowledge(append)
    append = in_flight(driver)
    effects = driver.owner.step(Appended(driver.write(append)), 0)
    assert emits(effects) == []
    assert driver.owner.fold.head.number == 2
    assert not [effect for effect in effects if isinstance(effect, ReadJournal)]


def test_a_gap_is_read_from_the_last_verified_record_to_our_own(driver: Driver) -> None:
    append = in_flight(driver)
    driver.write(stale())
    assert driver.owner.step(Appended(driver.write(append)), 0) == [ReadJournal(1, 3)]


def test_a_gap_can_be_read_in_pieces(driver: Driver) -> None:
    append = in_flight(driver)
    for _ in range(3):
        driver.write(stale())
    driver.owner.step(Appended(driver.write(append)), 0)
    assert driver.owner.step(driver.journal_read(1, 2), 0) == [ReadJournal(2, 5)]
    assert driver.owner.step(driver.journal_read(2, 4), 0) == [ReadJournal(4, 5)]
    assert emits(driver.owner.step(driver.journal_read(4, 5), 0)) == [b"reply"]


def test_a_valid_claim_before_the_commit_stops(driver: Driver) -> None:
    append = in_flight(driver)
    taken_over(driver)
    (stopped,) = driver.acknowledge(append)
    assert stopped == Stopped("another process has claimed the partition", fenced=True)
    assert driver.owner.counters.commits == 0


def test_a_claim_behind_the_commit_does_not_take_it_back(driver: Driver) -> None:
    append = in_flight(driver)
    offset = driver.write(append)
    other = taken_over(driver)
    assert emits(driver.step(Appended(offset))) == [b"reply"]
    assert driver.owner.phase is Phase.LEADING
    append = in_flight(driver)
    (stopped,) = driver.acknowledge(append)
    assert cast("Stopped", stopped).fenced
    assert digest(other.state) != digest(driver.state)


def test_a_copy_of_the_commit_that_came_earlier_is_the_one_that_counts(driver: Driver) -> None:
    """A producer that is not idempotent may write twice, and acknowledge the second record."""
    append = in_flight(driver)
    driver.write(stale())
    driver.write(append)
    effects = driver.acknowledge(append)
    assert emits(effects) == [b"reply"]
    assert (driver.owner.fold.head.number, driver.owner.fold.head.offset) == (1, 3)
    assert driver.owner.counters.commits == 1


def test_a_copy_before_a_foreign_claim_counts_and_then_the_partition_is_lost(driver: Driver) -> None:
    append = in_flight(driver)
    driver.write(append)
    other = taken_over(driver)
    effects = driver.acknowledge(append)
    assert cast("Stopped", effects[-1]).fenced
    assert driver.owner.counters.commits == 1
    assert other.owner.fold.head.number == 1


def test_a_commit_that_is_not_where_it_was_acknowledged_is_unknown_as_it_may_still_arrive(driver: Driver) -> None:
    append = in_flight(driver)
    driver.write(stale())
    driver.write(stale())
    (stopped,) = driver.step(Appended(2))
    assert isinstance(stopped, Stopped)
    assert not stopped.fenced, "no other process has claimed the partition"
    assert "outcome of an append to the journal is unknown" in stopped.reason
    driver.write(append)
    assert taken_over(driver).owner.fold.head.number == 1, "the copy counts for the next owner"


@pytest.mark.parametrize("offset", [0, 1])
def test_an_offset_that_was_given_before_halts(driver: Driver, offset: int) -> None:
    driver.acknowledge(in_flight(driver))
    in_flight(driver)
    (halted,) = driver.step(Appended(offset))
    assert isinstance(halted, Halted)
    assert f"acknowledged offset {offset} in the journal of orders/0, although 1 was already read" in halted.reason
    assert driver.owner.phase is Phase.HALTED


def test_a_commit_before_ours_that_does_not_chain_halts(driver: Driver) -> None:
    """Our own epoch, owner and number with another history: the log contradicts itself."""
    append = in_flight(driver)
    driver.write(encode_commit(Commit(1, identifier("me"), 1, b"x" * 32, 6, CommitOperations())))
    (halted,) = driver.acknowledge(append)
    assert isinstance(halted, Halted)


# ------------------------------------------------------------------------------------------------- time and look-ahead


def test_ingested_records_are_committed_within_the_time_limit(driver: Driver) -> None:
    driver.now_ms = UNCOMMITTED_MS_MAX - 1
    assert driver.step(Tick()) == []
    driver.now_ms = UNCOMMITTED_MS_MAX
    (append,) = driver.step(Tick())
    assert commit_of(append).ingest_to == 6
    assert driver.step(Tick()) == []


def test_records_ingested_while_a_commit_is_in_flight_are_committed_after_it(driver: Driver) -> None:
    (append,) = driver.owner.commit(0)
    driver.arrive((None, record()))
    driver.now_ms = 10 * UNCOMMITTED_MS_MAX
    assert driver.step(Tick()) == []
    driver.acknowledge(append)
    (append,) = [effect for effect in driver.step(Tick()) if isinstance(effect, Append)]
    assert commit_of(append).ingest_to == 7


def test_no_further_commit_is_due_after_a_commit_of_all_ingested_records(driver: Driver) -> None:
    driver.commit()
    driver.now_ms = 10 * UNCOMMITTED_MS_MAX
    assert [effect for effect in driver.step(Tick()) if isinstance(effect, Append)] == []


def test_no_more_is_ingested_than_the_look_ahead() -> None:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("d", messages=LOOK_AHEAD_RECORDS_MAX))
    assert driver.state.unread == LOOK_AHEAD_RECORDS_MAX
    assert not driver.owner.has_room
    driver.arrive((None, record()))
    assert driver.state.ingest_to == LOOK_AHEAD_RECORDS_MAX
    driver.handle()
    driver.commit()
    assert driver.owner.has_room
    assert driver.owner.ingest(0) == 1


def test_no_more_is_ingested_than_fits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.owner.owner.LOOK_AHEAD_BYTES_MAX", 100)
    driver = Driver()
    driver.lead()
    rows = conversations("d", messages=3)
    driver.arrive(*[(header, record(b"x" * 60)) for header, _ in rows[:2]])
    assert (driver.state.unread_bytes, driver.owner.has_room) == (120, False)
    driver.arrive(rows[2])
    assert driver.state.unread == 2
    driver.handle()
    driver.commit()
    assert driver.state.unread_bytes == 0
    assert driver.owner.ingest(0) == 1


def test_no_more_is_ingested_when_the_outbox_is_full(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr("konverse.dialog.owner.owner.OUTBOX_RECORDS_MAX", 2)
    driver.handle(b"1")
    driver.commit()
    assert driver.owner.has_room
    driver.handle(b"2")
    driver.commit()
    assert not driver.owner.has_room


def test_nothing_is_ingested_where_nothing_was_read(driver: Driver) -> None:
    assert driver.owner.ingest(0) == 0


@pytest.mark.parametrize(("batch", "full_at"), [(1, 1), (2, 2), (10**9, None)])
def test_a_commit_is_full_at_the_batch(batch: int, full_at: int | None) -> None:
    driver = Driver(batch=batch)
    driver.lead()
    driver.arrive(*conversations("a", "b", "c"))
    for number in (1, 2, 3):
        driver.handle()
        assert driver.owner.staging.full is (full_at is not None and number >= full_at)
    assert driver.owner.staging.batch <= COMMIT_GROUPS_MAX


def test_transactions_are_counted(driver: Driver) -> None:
    driver.handle()
    driver.handle()
    driver.commit()
    assert (driver.owner.counters.transactions, driver.owner.counters.commits) == (2, 1)
    assert driver.owner.counters.journal_bytes == len(driver.journal[-1])
