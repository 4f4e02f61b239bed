"""A driver collects reports, puts BATCH, and goes on when the journal shows the winners."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from konverse.dialog.batch import driver as module
from konverse.dialog.batch.driver import (
    Again,
    BatchPhase,
    BatchRefused,
    BatchStart,
    Close,
    Decided,
    Driver,
    Put,
    QuerySeen,
    Unclear,
    observe,
)
from konverse.dialog.batch.task import Report
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.batches import ABANDONED, decode_batch
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import Kind
from tests.kit.batches import HOME, JUDGE, QUERY, TARGET, Query, task_of
from tests.kit.builders import Side, identifier

RUN, OTHER = identifier("a run"), identifier("another run")
NOTHING = QuerySeen(-1, b"", full=False, over=False, heard=0, outputs={})


@pytest.fixture
def driver() -> Driver:
    return Driver(QUERY, RUN, JUDGE, (HOME,), (TARGET,))


def report(driver: Driver, number: int, attempt: str = "attempt", rows: int = 1, at: Address = TARGET) -> Report:
    return Report(task_of(driver, number), identifier(f"{attempt} {number}"), {(at, False): (rows, 10 * rows)})


def put(driver: Driver, batch: int = 0, tasks: int = 1) -> Put:
    """Let the driver put its BATCH."""
    driver.step(BatchStart(batch, tasks))
    for number in range(tasks):
        assert driver.step(report(driver, number)) == []
    (effect,) = driver.step(NOTHING)
    assert isinstance(effect, Put)
    return effect


def refused(driver: Driver, event: object) -> str:
    (effect,) = driver.step(event)
    assert isinstance(effect, BatchRefused)
    assert driver.phase is BatchPhase.IDLE
    return effect.reason


def test_a_batch_is_put_when_each_task_has_reported(driver: Driver) -> None:
    driver.step(BatchStart(3, 2))
    assert driver.step(report(driver, 1)) == []
    assert driver.step(NOTHING) == []
    assert driver.step(report(driver, 0, rows=4)) == []
    assert driver.phase is BatchPhase.WAITING
    (effect,) = driver.step(NOTHING)
    assert isinstance(effect, Put)
    assert effect.address == JUDGE
    ((header, _, body),) = effect.records
    envelope = decode(header)
    assert (envelope.kind, envelope.writer, envelope.counter) == (Kind.BATCH, RUN, 0)
    batch = decode_batch(body or b"")
    assert (batch.query, batch.number) == (QUERY, 3)
    assert batch.attempts == (identifier("attempt 0"), identifier("attempt 1"))
    assert batch.homes == {HOME: (0, 0)}, "every partition is named"
    assert batch.targets == {TARGET: (4, 1)}


def test_a_batch_without_tasks_is_decided_too(driver: Driver) -> None:
    driver.step(BatchStart(0, 0))
    (effect,) = driver.step(NOTHING)
    assert isinstance(effect, Put)


def test_of_two_reports_of_a_task_the_first_counts(driver: Driver) -> None:
    driver.step(BatchStart(0, 2))
    driver.step(report(driver, 0, "first"))
    driver.step(report(driver, 0, "second"))
    driver.step(report(driver, 1, "first"))
    driver.step(report(driver, 1, "second"))
    assert [one.attempt for one in driver.reports.values()] == [identifier("first 0"), identifier("first 1")]


def test_a_report_counts_for_its_own_run_and_batch_alone(driver: Driver) -> None:
    driver.step(BatchStart(1, 1))
    right = report(driver, 0)
    for changes in ({"run": OTHER}, {"batch": 0}, {"query": OTHER}, {"number": 1}, {"number": -1}):
        driver.step(right._replace(task=right.task._replace(**changes)))
    assert driver.reports == {}
    driver.step(right)
    assert driver.phase is BatchPhase.WAITING


def test_a_driver_finishes_its_batch_when_the_journal_shows_the_decision(driver: Driver) -> None:
    put(driver)
    assert driver.step(NOTHING) == []
    assert driver.step(NOTHING._replace(decided=0, by=RUN, heard=1)) == [Decided(0, ours=True)]
    assert driver.phase is BatchPhase.IDLE


def test_a_batch_that_another_driver_has_decided_is_decided(driver: Driver) -> None:
    driver.step(BatchStart(2, 3))
    assert driver.step(NOTHING._replace(decided=1, by=OTHER)) == []
    assert driver.step(NOTHING._replace(decided=2, by=OTHER)) == [Decided(2, ours=False)]
    put(driver, 3)
    assert driver.step(NOTHING._replace(decided=3, by=OTHER, heard=1)) == [Decided(3, ours=False)]


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({"decided": 1, "by": OTHER}, "another run has written batch 1 since"),
        ({"decided": ABANDONED}, "the query was abandoned since"),
        ({"over": True}, "the query has ended since"),
    ],
)
def test_the_outcome_of_a_batch_with_a_forgotten_decision_is_unclear(
    driver: Driver, later: dict[str, Any], reason: str
) -> None:
    """Until the driver looks again, its BATCH may have won, and other drivers may have gone on."""
    put(driver)
    assert driver.step(NOTHING._replace(heard=1, **later)) == [Unclear(0, reason)]
    assert driver.phase is BatchPhase.IDLE


def test_an_unsent_batch_is_not_ours_once_another_run_has_decided_a_later_batch(driver: Driver) -> None:
    driver.step(BatchStart(0, 2))
    assert driver.step(NOTHING._replace(decided=1, by=OTHER)) == [Decided(0, ours=False)]


def test_a_batch_goes_again_until_the_journal_has_read_it(driver: Driver) -> None:
    first = put(driver)
    assert driver.step(Again()) == [first]
    driver.step(NOTHING._replace(decided=0, by=OTHER))
    second = put(driver, 1)
    assert [decode(header).counter for header, _, _ in second.records] == [0, 1], "the counter of none is left out"
    driver.step(NOTHING._replace(heard=1))
    (effect,) = driver.step(Again())
    assert isinstance(effect, Put)
    assert effect.records == second.records[1:]
    driver.step(NOTHING._replace(heard=2, decided=1, by=RUN))
    assert driver.step(Again()) == []


def test_a_batch_leaves_when_all_decisions_before_it_have_arrived(driver: Driver) -> None:
    driver.step(BatchStart(1, 1))
    driver.step(report(driver, 0))
    seen = NOTHING._replace(decided=0, by=OTHER)
    assert driver.step(seen._replace(outputs={HOME: (3, 3), TARGET: (4, 5)})) == []
    assert driver.step(seen._replace(outputs={HOME: (3, 9), TARGET: (4, 9)})) == []
    (effect,) = driver.step(seen._replace(outputs={HOME: (3, 9), TARGET: (5, 9)}))
    assert isinstance(effect, Put), "what was sent there since does not count"


def test_a_batch_that_was_read_and_decided_nothing_is_refused(driver: Driver) -> None:
    put(driver)
    reason = refused(driver, NOTHING._replace(heard=1))
    assert "no room" in reason
    assert "write the batch again, in smaller batches, with fewer queries" in reason


def test_a_driver_of_an_abandoned_query_gives_up(driver: Driver) -> None:
    driver.step(BatchStart(0, 1))
    assert "abandoned" in refused(driver, NOTHING._replace(decided=ABANDONED))


def test_a_query_too_many_is_refused(driver: Driver) -> None:
    driver.step(BatchStart(0, 1))
    assert "accepts no more" in refused(driver, NOTHING._replace(full=True))


def test_a_partition_that_was_not_named_is_refused(driver: Driver) -> None:
    driver.step(BatchStart(0, 1))
    assert "Name every queue" in refused(driver, report(driver, 0, at=HOME))


def test_a_batch_that_is_too_large_is_refused_before_anything_counts(driver: Driver) -> None:
    for name, most in (("BATCH_RECORDS_MAX", 3), ("BATCH_BYTES_MAX", 39), ("BODY_BYTES_MAX", 50)):
        driver.step(BatchStart(0, 2))
        driver.step(report(driver, 0, rows=2))
        driver.step(report(driver, 1, rows=2))
        with patch.object(module, name, most):
            assert "smaller batches" in (reason := refused(driver, NOTHING)) or "fewer tasks" in reason
        assert driver.step(Again()) == []


def test_nothing_happens_between_batches(driver: Driver) -> None:
    assert driver.step(NOTHING._replace(decided=ABANDONED)) == []
    assert driver.step(Again()) == []
    driver.step(BatchStart(0, 1))
    with pytest.raises(AssertionError, match="one batch at a time"):
        driver.step(BatchStart(1, 1))


def test_a_driver_observes_the_state_of_the_transmission_partition() -> None:
    judge, query = Side("transmission"), Query()
    assert observe(judge.state, QUERY, query.driver.id, (HOME, TARGET)) == NOTHING
    query.batch(to=judge, number=2)
    seen = observe(judge.state, QUERY, query.driver.id, (HOME, TARGET))
    assert seen == QuerySeen(
        2, query.driver.id, full=False, over=False, heard=1, outputs={HOME: (0, 1), TARGET: (0, 1)}
    )
    with patch.object(module, "QUERY_ENTRIES_MAX", 1):
        assert observe(judge.state, identifier("another"), RUN, ()).full
        assert not observe(judge.state, QUERY, RUN, ()).full


def test_the_query_of_a_single_write_is_closed_behind_its_batch() -> None:
    driver = Driver(RUN, RUN, JUDGE, (HOME,), (TARGET,))
    put(driver)
    assert driver.step(NOTHING._replace(decided=0, by=RUN, heard=1)) == [Decided(0, ours=True)]
    (effect,) = driver.step(Close())
    assert isinstance(effect, Put)
    ((header, _, _),) = effect.records
    envelope = decode(header)
    assert (envelope.kind, envelope.writer, envelope.counter) == (Kind.CLOSE_WRITER, RUN, 1)
    assert envelope.conversation == RUN
    several = Driver(QUERY, RUN, JUDGE, (HOME,), (TARGET,))
    with pytest.raises(AssertionError, match="only the writer of the query may close it"):
        several.step(Close())


def test_a_query_that_is_over_is_refused(driver: Driver) -> None:
    driver.step(BatchStart(0, 0))
    assert "has ended, or began too long ago" in refused(driver, NOTHING._replace(over=True))
