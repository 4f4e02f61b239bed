"""An owner's duties that fall due with time (protocol.md section 5, rule 4)."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.events import Append, DataEnd, DataRead, ReadDataEnd, Tick
from konverse.schemas.limits import PRUNE_EVERY_MS, TIME_LAG_MS_MAX, WRITER_HORIZON_MS
from konverse.schemas.wire.journal import Commit, decode
from konverse.schemas.wire.operations import Prune
from tests.kit.builders import columns_of, conversations
from tests.kit.driver import Driver

MONTH_MS = WRITER_HORIZON_MS + PRUNE_EVERY_MS


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.lead()
    return made


def appended(driver: Driver) -> list[Commit]:
    """The commits that a tick makes; they are acknowledged."""
    commits = []
    for effect in driver.step(Tick()):
        if isinstance(effect, Append):
            driver.acknowledge(effect)
            (record,) = effect.records
            commit = decode(record)
            assert isinstance(commit, Commit)
            commits.append(commit)
    return commits


def test_an_owner_with_nothing_to_say_commits_now_and_then(driver: Driver) -> None:
    driver.now_ms = TIME_LAG_MS_MAX // 2
    assert appended(driver) == []
    driver.now_ms += 1
    assert len(appended(driver)) == 1


def test_an_owner_gives_signs_of_life() -> None:
    driver = Driver(alive_every_ms=1_000)
    driver.lead()
    for second in range(1, 4):
        driver.now_ms = second * 1_001 - 1
        assert appended(driver) == []
        driver.now_ms += 1
        assert len(appended(driver)) == 1


def test_an_owner_that_slept_ingests_nothing_before_it_has_the_time(driver: Driver) -> None:
    driver.now_ms = TIME_LAG_MS_MAX + 1
    driver.step(DataRead(columns_of(conversations("a"))))
    assert driver.owner.ingest(driver.now_ms) == 0
    appended(driver)
    assert driver.owner.ingest(driver.now_ms) == 0, "data is judged by the time before the last commit"
    appended(driver)
    assert driver.owner.ingest(driver.now_ms) == 1


def test_data_is_judged_by_the_time_of_the_journal_before_the_last_commit(driver: Driver) -> None:
    """A record's time is its offset: the CLAIM is at 0."""
    driver.arrive(*conversations("a"))
    assert driver.state.now_ms == 0
    driver.commit()
    driver.arrive(*conversations("b"))
    driver.commit()
    assert (driver.owner.fold.head.now_ms, driver.state.now_ms) == (2, 1)


def test_a_prune_waits_for_all_data_that_stood_in_the_log_when_it_was_due(driver: Driver) -> None:
    driver.owner.fold.head.now_ms = MONTH_MS
    assert ReadDataEnd() in driver.step(Tick())
    assert ReadDataEnd() not in driver.step(Tick()), "it is on its way"
    driver.step(DataEnd(2))
    assert rare(driver, "a") == []
    assert rare(driver, "b") == [Prune(MONTH_MS - WRITER_HORIZON_MS)]
    assert rare(driver, "c") == []
    assert ReadDataEnd() not in driver.step(Tick()), "the next one is due a day later"


def test_a_prune_whose_question_is_not_answered_is_asked_for_again(driver: Driver) -> None:
    driver.owner.fold.head.now_ms = MONTH_MS
    driver.step(Tick())
    driver.step(DataEnd(None))
    assert rare(driver, "a") == []
    assert ReadDataEnd() in driver.step(Tick())


def rare(driver: Driver, name: str) -> list[object]:
    """The rare operations of the commit of one more conversation."""
    driver.arrive(*conversations(name))
    (append,) = driver.owner.commit(driver.now_ms)
    assert isinstance(append, Append)
    commit = decode(append.records[0])
    assert isinstance(commit, Commit)
    driver.acknowledge(append)
    return list(commit.operations.rare)
