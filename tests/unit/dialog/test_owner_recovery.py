"""Recover and claim: the journal is folded, a CLAIM is appended, read back and judged (protocol.md section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import (
    Append,
    Appended,
    DataRead,
    Drained,
    Effect,
    Halted,
    Leading,
    OutOfRange,
    Phase,
    ReadData,
    ReadJournal,
    Recover,
    Stopped,
    Tick,
    ViewLost,
)
from konverse.dialog.owner.view import Show
from konverse.dialog.rules.attempts import claimed
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, Commit, decode, encode_claim, encode_commit
from konverse.schemas.wire.records import End, Kind
from tests.kit.builders import (
    Scribe,
    address_of,
    columns_of,
    conversations,
    identifier,
    log_of,
    record,
    records_of,
)
from tests.kit.digests import digest
from tests.kit.driver import Driver


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def worked() -> Driver:
    """An owner that received, answered and committed, and then died."""
    driver = Driver(claim="before")
    driver.lead()
    driver.arrive(*conversations("a", "b", messages=3))
    driver.handle(b"an answer")
    driver.commit()
    return driver


def successor(worked: Driver, claim: str = "me") -> Driver:
    return Driver(worked.journal, worked.data, claim)


def claim_of(effect: Effect) -> Claim:
    assert isinstance(effect, Append)
    record = decode(effect.records[0])
    assert isinstance(record, Claim)
    return record


def claim(epoch: int, owner: str, **changes: Any) -> bytes:
    log = log_of()
    ids = (log.incarnation, log.data_topic_id, log.journal_topic_id)
    return encode_claim(Claim(epoch, identifier(owner), FOLD_VERSION, *ids, clean=False)._replace(**changes))


# --------------------------------------------------------------------------------------------------------- recovery


def test_an_empty_journal_is_claimed_at_once(driver: Driver) -> None:
    (effect,) = driver.owner.step(Recover(0, 0), 0)
    log = log_of()
    assert claim_of(effect) == Claim(
        *(1, identifier("me"), FOLD_VERSION, log.incarnation, log.data_topic_id, log.journal_topic_id), clean=True
    )
    assert driver.owner.phase is Phase.CLAIMING


def test_a_claim_that_is_read_back_first_leads(driver: Driver) -> None:
    (append,) = driver.recover()
    effects = driver.acknowledge(append)
    assert effects[0] == Leading(0)
    assert driver.owner.phase is Phase.LEADING
    assert driver.owner.fold.head.owner == identifier("me")


def test_recovery_comes_to_the_state_of_the_owner_before(worked: Driver) -> None:
    next_owner = successor(worked)
    (append,) = next_owner.recover()
    next_owner.state.now_ms = worked.state.now_ms  # that of the later CLAIM
    assert digest(next_owner.state) == digest(worked.state)
    assert claim_of(append).epoch == 2
    assert next_owner.acknowledge(append)[0] == Leading(6)


def test_a_journal_is_read_in_pieces_and_so_is_the_data_that_it_needs(worked: Driver) -> None:
    owner = successor(worked).owner
    assert owner.step(Recover(0, 2), 0) == [ReadJournal(0, 2)]
    reader = successor(worked)
    assert owner.step(reader.journal_read(0, 1), 0) == [ReadJournal(1, 2)]
    assert owner.step(reader.journal_read(1, 2), 0) == [ReadData(0, 6)]
    assert owner.step(DataRead(columns_of(worked.data[:4])), 0) == [ReadData(4, 6)]
    (append,) = owner.step(DataRead(columns_of(worked.data[4:], 4)), 0)
    assert claim_of(append).epoch == 2
    owner.fold.state.now_ms = worked.state.now_ms  # that of the later CLAIM
    assert digest(owner.fold.state) == digest(worked.state)


def test_data_that_comes_in_the_middle_of_the_journal_is_folded_before_it_is_read_on(worked: Driver) -> None:
    worked.arrive(*conversations("z"))
    worked.commit()
    owner = successor(worked).owner
    reader = successor(worked)
    assert owner.step(Recover(0, 3), 0) == [ReadJournal(0, 3)]
    assert owner.step(reader.journal_read(0, 2), 0) == [ReadData(0, 6)]
    assert owner.step(DataRead(columns_of(worked.data[:6])), 0) == [ReadJournal(2, 3)]
    assert owner.step(reader.journal_read(2, 3), 0) == [ReadData(6, 7)]


def test_unreceived_messages_are_ready_for_the_next_owner(worked: Driver) -> None:
    next_owner = successor(worked)
    next_owner.lead()
    next_owner.try_groups()
    messages = next_owner.handle()
    assert [(message.dialog.conversation, message.sequence) for message in messages] == [
        (identifier("b"), number) for number in range(3)
    ]
    assert next_owner.owner.take() is None


def test_an_error_that_was_not_received_is_ready_again() -> None:
    driver = Driver(claim="before")
    driver.lead()
    driver.arrive(*conversations("a"))
    driver.handle()
    detail = End(identifier("client"), address_of("replies"))
    error = Scribe("home").end(address_of(), identifier("a"), detail, Kind.ERROR)
    driver.arrive((error, record(b"<Error/>")))
    driver.commit()
    next_owner = successor(driver)
    next_owner.lead()
    next_owner.try_groups()
    assert [(message.body, message.sequence) for message in next_owner.handle()] == [(b"<Error/>", -1)]


def test_outputs_waiting_in_the_outbox_are_emitted_again_by_the_next_owner(worked: Driver) -> None:
    leading, emit = successor(worked).lead()[:2]
    assert isinstance(leading, Leading)
    assert isinstance(emit, Emit)
    assert [output[2] for output in records_of(emit)] == [b"an answer"]


def test_the_whole_view_is_written_by_a_new_owner(worked: Driver) -> None:
    (show,) = [effect for effect in successor(worked).lead() if isinstance(effect, Show)]
    assert (show.whole, len(show.rows), show.claim_offset, show.journal_offset) == (True, 2, 2, 2)


def test_a_journal_whose_beginning_is_gone_halts(driver: Driver) -> None:
    (halted,) = driver.step(Recover(5, 9))
    assert isinstance(halted, Halted)
    assert "the journal of orders/0 begins at 5 and there is no intact snapshot" in halted.reason
    assert driver.owner.phase is Phase.HALTED


def test_a_log_that_is_cut_while_it_is_read_stops(worked: Driver) -> None:
    owner = successor(worked).owner
    owner.step(Recover(0, 2), 0)
    (stopped,) = owner.step(OutOfRange(beginning=True), 0)
    assert isinstance(stopped, Stopped)
    assert "must be recovered again" in stopped.reason
    assert (stopped.clean, stopped.fenced) == (False, False)


def test_a_data_log_that_ends_before_the_ingested_offset_halts_the_partition(worked: Driver) -> None:
    next_owner = successor(worked)
    owner = next_owner.owner
    owner.step(Recover(0, 2), 0)
    assert owner.step(next_owner.journal_read(0, 2), 0) == [ReadData(0, 6)]
    (halted,) = owner.step(OutOfRange(beginning=False), 0)
    assert isinstance(halted, Halted)
    assert "a log of orders/0 ends before an offset that was read" in halted.reason


def test_a_data_log_without_the_beginning_that_the_journal_has_ingested_halts(worked: Driver) -> None:
    next_owner = successor(worked)
    owner = next_owner.owner
    owner.step(Recover(0, 2, data_start=1), 0)
    (halted,) = owner.step(next_owner.journal_read(0, 2), 0)
    assert isinstance(halted, Halted)
    assert "its beginning was deleted" in halted.reason


def test_a_data_log_that_is_truncated_while_it_is_read_stops(worked: Driver) -> None:
    next_owner = successor(worked)
    owner = next_owner.owner
    owner.step(Recover(0, 2), 0)
    owner.step(next_owner.journal_read(0, 2), 0)
    (stopped,) = owner.step(OutOfRange(beginning=True), 0)
    assert isinstance(stopped, Stopped)


def test_an_undecodable_record_raises_an_alarm_and_nothing_else(worked: Driver) -> None:
    worked.journal.insert(1, b"\x00 not a record")
    next_owner = successor(worked)
    effects = next_owner.lead()
    assert isinstance(effects[0], Leading)
    assert next_owner.recovered == digest(worked.state)
    ((alarm, _),) = next_owner.owner.fold.journal.alarms
    assert "journal record 1 of orders/0 is undecodable" in alarm


def test_an_undecodable_record_at_the_end_of_the_journal_is_passed_too(worked: Driver) -> None:
    worked.journal.append(b"garbage")
    next_owner = successor(worked)
    assert isinstance(next_owner.lead()[0], Leading)
    assert next_owner.owner.fold.head.offset == 3


def test_a_changed_journal_halts(worked: Driver) -> None:
    worked.arrive(*conversations("z"))
    worked.commit()
    first = decode(worked.journal[1])
    assert isinstance(first, Commit)
    ((index, message_type, _),) = first.operations.sends
    first.operations.sends = [(index, message_type, [b"another answer"[:9]])]
    worked.journal[1] = encode_commit(first)
    (halted,) = successor(worked).recover()
    assert isinstance(halted, Halted)
    assert "commit 2 of orders/0 does not follow" in halted.reason


def test_a_data_log_that_contradicts_the_journal_halts(worked: Driver) -> None:
    worked.data[0] = (None, worked.data[0][1])
    (halted,) = successor(worked).recover()
    assert isinstance(halted, Halted)
    assert "the data log was changed or cut" in halted.reason


def test_a_log_of_newer_rules_is_neither_folded_nor_claimed(worked: Driver) -> None:
    worked.journal.append(claim(2, "a newer process", fold_version=FOLD_VERSION + 1))
    (halted,) = successor(worked).recover()
    assert isinstance(halted, Halted)
    assert f"this process has only {FOLD_VERSION}" in halted.reason


# ------------------------------------------------------------------------------------------------------------ claim


def test_a_claim_says_whether_the_owner_before_released() -> None:
    before = Driver(claim="before")
    before.lead()
    (claimed,) = successor(before).recover()
    assert not claim_of(claimed).clean
    (append,) = before.owner.release(0)
    before.acknowledge(append)
    (claimed,) = successor(before).recover()
    assert claim_of(claimed).clean


def test_a_claim_of_unknown_outcome_stops(driver: Driver) -> None:
    driver.recover()
    (stopped,) = driver.step(Appended(None))
    assert stopped == Stopped("the outcome of an append to the journal is unknown")
    assert driver.owner.phase is Phase.STOPPED


def test_a_claim_is_read_back_from_the_last_record_that_was_read(worked: Driver) -> None:
    next_owner = successor(worked)
    (mine,) = next_owner.recover()
    assert next_owner.owner.step(Appended(next_owner.write(mine)), 0) == [ReadJournal(2, 3)]
    assert next_owner.owner.phase is Phase.READING_BACK


def test_a_claim_that_comes_second_is_lost(driver: Driver) -> None:
    (mine,) = driver.recover()
    driver.write(claim(1, "faster"))
    (stopped,) = driver.acknowledge(mine)
    assert stopped == Stopped("another process claimed the partition first", fenced=True)


def test_the_first_claim_leads_despite_later_claims(driver: Driver) -> None:
    (mine,) = driver.recover()
    offset = driver.write(mine)
    driver.write(claim(1, "slower"))
    effects = driver.step(Appended(offset))
    assert isinstance(effects[0], Leading)
    assert driver.owner.fold.head.offset == 0, "what stands behind the claim is not verified yet"


def test_a_claim_that_was_written_twice_counts_once(driver: Driver) -> None:
    (mine,) = driver.recover()
    driver.write(mine)
    effects = driver.acknowledge(mine)
    assert isinstance(effects[0], Leading)
    assert (driver.owner.fold.head.claim_offset, driver.owner.fold.head.offset) == (0, 1)


def test_commits_of_the_owner_before_that_came_meanwhile_are_folded(worked: Driver) -> None:
    next_owner = successor(worked)
    (mine,) = next_owner.recover()
    worked.arrive(*conversations("late"))
    worked.handle(b"a late answer")
    worked.commit()
    leading = next_owner.acknowledge(mine)[0]
    assert leading == Leading(7)
    claimed(worked.state, clean=False)
    next_owner.state.now_ms = worked.state.now_ms  # that of the later CLAIM
    assert digest(next_owner.state) == digest(worked.state)


def test_a_claim_that_is_acknowledged_in_the_past_halts(worked: Driver) -> None:
    next_owner = successor(worked)
    next_owner.recover()
    (halted,) = next_owner.step(Appended(1))
    assert isinstance(halted, Halted)
    assert "acknowledged offset 1 in the journal of orders/0, although 1 was already read" in halted.reason


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.HALTED])
def test_nothing_has_an_effect_on_an_owner_that_is_done(driver: Driver, phase: Phase) -> None:
    driver.lead()
    driver.arrive(*conversations("a"))
    driver.owner.phase = phase
    gone = OutOfRange(beginning=True)
    for event in (Recover(0, 0), Appended(9), Drained([]), Tick(), ViewLost(), gone, driver.journal_read(0, 1)):
        assert driver.owner.step(event, 10_000) == []
    assert driver.owner.take() is None
    assert driver.owner.commit(0) == []
    assert driver.owner.release(0) == []
    assert driver.owner.ingest(0) == 0


def test_nothing_is_handed_out_or_committed_before_the_claim_counts(worked: Driver) -> None:
    next_owner = successor(worked)
    next_owner.recover()
    assert next_owner.owner.take() is None
    assert next_owner.owner.commit(0) == []
    assert next_owner.owner.step(Tick(), 10_000) == []
    assert next_owner.owner.ingest(0) == 0


# ------------------------------------------------------------------------------------------------- data while leading


def test_data_after_a_possible_gap_is_read_again_from_the_fold_position(driver: Driver) -> None:
    driver.lead()
    step = driver.owner.step
    rows = conversations("a", "b", messages=2)
    assert step(DataRead(columns_of(rows[2:], 2)), 0) == [ReadData(0, len(rows))]
    assert driver.owner.ingest(driver.now_ms) == 0
    assert step(DataRead(columns_of(rows)), 0) == []
    assert step(DataRead(columns_of(rows[2:], 2)), 0) == [], "nothing is missing before what it has"
    assert driver.owner.ingest(driver.now_ms) == len(rows)


def test_a_hole_in_the_log_is_believed_when_the_log_was_read_there(driver: Driver) -> None:
    """Markers of transactions leave holes."""
    driver.lead()
    step = driver.owner.step
    columns = columns_of(conversations("a"), 3)
    (question,) = step(DataRead(columns), 0)
    assert question == ReadData(0, columns.next_offset)
    assert step(DataRead(columns._replace(start=0)), 0) == []
    assert driver.owner.ingest(driver.now_ms) == len(columns.offsets)


def test_a_short_read_of_skipped_data_is_followed_by_a_read_of_the_rest(driver: Driver) -> None:
    driver.lead()
    step = driver.owner.step
    rows = conversations("a", "b", messages=2)
    assert step(DataRead(columns_of(rows[3:], 3)), 0) == [ReadData(0, 4)]
    assert step(DataRead(columns_of(rows[:1])), 0) == [ReadData(1, 4)]
    assert driver.owner.ingest(driver.now_ms) == 1
    assert step(DataRead(columns_of(rows[1:], 1)), 0) == []
    assert driver.owner.ingest(driver.now_ms) == 3
