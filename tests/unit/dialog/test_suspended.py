"""Suspended groups, and the orders of operators."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.partition import Partition
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Resume, Skip, Suspend, Try
from konverse.schemas.wire.records import End, Kind, Suffix
from tests.kit.builders import (
    GROUP,
    Pair,
    Scribe,
    address_of,
    conversations,
    identifier,
    log_of,
    record,
)
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.kit.trials import endpoint, fail, said, successor, suspended, taken


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def test_a_suspended_conversation_stays_suspended_for_the_next_owner_with_its_messages_in_order(driver: Driver) -> None:
    suspended(driver)
    after = successor(driver)
    after.try_groups()
    assert said(after) == [Try([])]
    assert taken(after) == []
    assert [entry[2] for entry in endpoint(after, "a").queue] == [b"0", b"1", b"2"]


def test_a_snapshot_holds_failed_attempts_and_suspensions(driver: Driver) -> None:
    suspended(driver)
    driver.arrive(*conversations("b", client=Scribe("another")))
    fail(driver)
    restored = Partition(log_of())
    restore(restored, b"".join(Freeze(driver.state).pieces()))
    assert digest(restored) == digest(driver.state)
    one, other = restored.live()
    assert (one.suspended, one.held, other.attempts, restored.attempts.failing) == (True, True, 1, 1)


def test_messages_of_suspended_groups_take_no_room_from_the_others(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended(driver)
    monkeypatch.setattr("konverse.dialog.owner.owner.LOOK_AHEAD_RECORDS_MAX", 3)
    assert driver.owner.has_room
    driver.arrive(*conversations("b", messages=3, client=Scribe("another")))
    assert not driver.owner.has_room


def test_a_conversation_that_joins_a_suspended_group_is_suspended_with_it() -> None:
    pair = Pair()
    (one,) = pair.answered("a")
    pair.home.commit(rare=[Suspend(one.index, "why", ordered=False)])
    (other,) = pair.answered("b")
    assert (other.group_id, other.suspended, other.held) == (GROUP, True, True)
    pair.home.commit(rare=[Resume(other.index)])
    assert [(member.suspended, member.held) for member in (one, other)] == [(False, False)] * 2


def test_a_forgotten_endpoint_leaves_no_failures_to_the_next_one_at_its_index(driver: Driver) -> None:
    suspended(driver)
    driver.state.forget(endpoint(driver, "a"))
    driver.arrive(*conversations("b", client=Scribe("another")))
    assert endpoint(driver, "b").index == 0
    assert not endpoint(driver, "b").suspended
    assert driver.state.attempts.troubled == {}


def test_an_operator_resumes_and_everything_begins_anew(driver: Driver) -> None:
    one = suspended(driver)
    driver.owner.trial.order(one, Resume(one.index))
    driver.commit()
    assert said(driver) == [Resume(0)]
    assert (one.attempts, one.suspended) == (0, False)
    assert [message.body for message in driver.handle()] == [b"0", b"1", b"2"]


def test_an_operator_skips_the_first_message(driver: Driver) -> None:
    one = suspended(driver)
    driver.owner.trial.order(one, Skip(one.index))
    driver.commit()
    assert [(message.body, message.sequence) for message in driver.handle()] == [(b"1", 1), (b"2", 2)]
    assert (driver.state.unread, driver.state.unread_bytes) == (2, 2)


def over(driver: Driver, kind: Kind) -> None:
    """The peer's END or ERROR of conversation `a` arrives."""
    detail = End(identifier("client"), address_of("replies"))
    suffix = Suffix(ERROR if kind is Kind.ERROR else END_DIALOG, detail=detail)
    driver.arrive((Scribe("home").end(address_of(), identifier("a"), detail, kind, suffix=suffix), record(b"why")))


def test_an_error_that_came_since_is_not_skipped(driver: Driver) -> None:
    one = suspended(driver)
    driver.owner.trial.order(one, Skip(one.index))
    over(driver, Kind.ERROR)
    driver.commit()
    assert said(driver) == [Skip(0)]
    assert [message.body for message in driver.handle()] == [b"why", b"0", b"1", b"2"]


def test_an_end_is_not_skipped(driver: Driver) -> None:
    one = suspended(driver)
    over(driver, Kind.END)
    for _ in range(3):
        driver.owner.trial.order(one, Skip(one.index))
        driver.commit()
        for _ in range(ATTEMPTS_MAX):
            fail(driver)
    driver.owner.trial.order(one, Skip(one.index))
    driver.commit()
    assert (driver.state.unread, one.suspended) == (1, False)
    assert [message.type for message in driver.handle()] == [END_DIALOG]


def test_an_operator_ends_the_conversation(driver: Driver) -> None:
    one = suspended(driver)
    driver.owner.trial.order(one, EndOperation(one.index, 4711, "poison"))
    driver.commit()
    assert (one.state.code, driver.state.unread) == ("DO", 0)


def test_the_second_of_two_orders_for_a_group_is_judged_by_the_result_of_the_first(driver: Driver) -> None:
    one = suspended(driver)
    driver.owner.trial.order(one, Skip(one.index))
    driver.owner.trial.order(one, Resume(one.index))
    driver.commit()
    assert said(driver) == [Skip(0)]
    driver.commit()
    assert said(driver) == []
