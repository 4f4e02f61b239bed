"""Handlers that fail or kill their process: counted, tried alone, suspended, and handled by operators."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.events import Append, DataRead, Recover, Tick
from konverse.dialog.owner.poison import KILLED, PAUSE_FACTOR, PAUSE_MS, SUSPECTS_AFTER_MS, PoisonWatch
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.schemas.limits import ATTEMPTS_MAX, TRY_FIRST_GROUPS_MAX, TRY_GROUPS_MAX
from konverse.schemas.wire.journal import CommitOperations, decode
from konverse.schemas.wire.operations import Attempt, Finish, Suspend, Try
from tests.kit.builders import (
    Pair,
    Scribe,
    address_of,
    anything,
    columns_of,
    conversations,
    identifier,
    record,
)
from tests.kit.driver import Driver
from tests.kit.trials import endpoint, fail, said, successor, suspended, taken


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


# ------------------------------------------------------------------------------------------------- handlers that fail


def test_a_handler_that_failed_is_counted_in_the_next_commit(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    transaction = driver.owner.take()
    assert transaction is not None
    transaction.send(transaction.dialog, "reply")
    driver.owner.trial.fail(transaction)
    driver.commit()
    assert said(driver) == [Attempt([0])]
    assert decode(driver.journal[-1]).operations.sends == []  # type: ignore[union-attr]
    assert (endpoint(driver, "a").attempts, endpoint(driver, "a").suspended) == (1, False)


def test_a_failed_group_rests_longer_after_each_failure_while_other_groups_are_handled(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    for attempt in range(2):
        transaction = driver.owner.take()
        assert transaction is not None
        driver.owner.trial.fail(transaction)
        driver.commit()
        driver.handle() if attempt == 0 else None
        assert driver.owner.trial.resting
        driver.now_ms += PAUSE_MS * PAUSE_FACTOR**attempt - 1
        driver.step(Tick())
        assert driver.owner.take() is None
        driver.now_ms += 1
        driver.step(Tick())
    assert taken(driver) == [identifier("a")]


def test_a_commit_in_between_resets_the_count_behaviour_209(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    for _ in range(ATTEMPTS_MAX - 1):
        fail(driver)
    driver.handle()
    driver.commit()
    assert endpoint(driver, "a").attempts == 0
    assert driver.state.attempts.troubled == {}


def test_the_fifth_failure_suspends_the_group_behaviour_207(driver: Driver) -> None:
    one = suspended(driver)
    assert said(driver) == [Attempt([0]), Suspend(0, "ValueError: no such order", ordered=False)]
    assert (one.attempts, one.suspended) == (ATTEMPTS_MAX, True)
    assert taken(driver) == []
    ((alarm, _),) = driver.owner.fold.journal.alarms
    assert f"conversation {one.id} of orders/0 is suspended after 5 failed attempts" in alarm


def test_a_group_that_did_nothing_has_not_failed(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.staging.roll_back(transaction)
    driver.commit()
    assert said(driver) == []


def test_a_conversation_that_was_ended_meanwhile_is_not_counted() -> None:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a"))
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.trial.fail(transaction)
    driver.state.forget(endpoint(driver, "a"))
    driver.commit()
    assert said(driver) == []


# ------------------------------------------------------------------------------------------------------ after a crash


def test_after_a_crash_a_try_counts_before_its_groups_are_handed_out(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    driver.commit()
    after = successor(driver)
    assert after.owner.take() is None
    (append,) = after.owner.step(Tick(), 0)[:1]
    assert isinstance(append, Append)
    assert after.owner.take() is None, "it may be lost"
    after.acknowledge(append)
    assert said(after) == [Try([0, 1])]
    assert taken(after) == [identifier("a"), identifier("b")]


def test_after_a_release_there_is_no_care(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    (append,) = driver.owner.release(0)
    driver.acknowledge(append)
    assert taken(successor(driver)) == [identifier("a")]


def test_a_release_leaves_no_try_open(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    assert after.owner.take() is not None
    (append,) = after.owner.release(0)
    after.acknowledge(append)
    assert after.state.attempts.trying == {}
    last = successor(after, "last")
    assert (last.state.attempts.suspects, endpoint(last, "a").attempts) == ({}, 0)


def test_a_crash_is_looked_for_among_64_then_one_by_one(driver: Driver) -> None:
    names = [f"{number:03}" for number in range(TRY_GROUPS_MAX + 10)]
    driver.arrive(*conversations(*names))
    driver.commit()
    tried = []
    for crash in range(6):
        driver = successor(driver, f"crash {crash}")
        driver.try_groups()
        tried.append(len(taken(driver)))
    assert tried == [TRY_GROUPS_MAX, 1, 1, 1, 1, 1]
    driver = successor(driver, "the last")
    driver.try_groups()
    assert said(driver) == [Suspend(0, KILLED, ordered=False), Try([*range(1, TRY_GROUPS_MAX + 1)])]


@pytest.mark.parametrize("handlers", [1, 3])
def test_of_the_oldest_groups_as_many_are_tried_at_a_time_as_there_are_handlers(driver: Driver, handlers: int) -> None:
    """The dead owner's handlers cannot have had more."""
    driver.arrive(*conversations(*(f"{number:03}" for number in range(TRY_FIRST_GROUPS_MAX + TRY_GROUPS_MAX))))
    driver.commit()
    after = successor(driver, handlers=handlers)
    sizes = []
    while after.owner.trial.careful:
        after.try_groups()
        (tried,) = said(after)
        assert isinstance(tried, Try)
        sizes.append(len(tried.endpoints))
        for _ in range(sizes[-1]):
            after.handle()
    first = -(-TRY_FIRST_GROUPS_MAX // handlers)
    assert sizes[:first] == [handlers] * first
    assert max(sizes[first:]) > handlers


def test_with_one_handler_a_message_that_kills_is_alone_from_the_first_try_on(driver: Driver) -> None:
    driver.arrive(*conversations(*(f"{number:03}" for number in range(TRY_GROUPS_MAX + 10))))
    driver.commit()
    for crash in range(ATTEMPTS_MAX):
        driver = successor(driver, f"crash {crash}", handlers=1)
        driver.try_groups()
        assert taken(driver) == [identifier("000")]
    driver = successor(driver, "the last", handlers=1)
    driver.try_groups()
    assert said(driver)[0] == Suspend(0, KILLED, ordered=False)


def test_a_group_whose_handler_returned_is_not_suspected(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b", "c", "d"))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    after.handle()
    failing = after.owner.take()
    assert failing is not None
    after.owner.trial.fail(failing)
    after.commit()
    last = successor(after, "last")
    assert [*last.state.attempts.suspects] == [2, 3]
    assert [endpoint(last, name).attempts for name in "bcd"] == [1, 0, 0]


def test_a_group_that_was_alone_has_an_attempt_more(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    after.handle()
    after.commit()
    assert endpoint(successor(after, "last"), "b").attempts == 1


@pytest.mark.parametrize("clean", [True, False])
def test_an_owner_that_hands_out_no_groups_counts_no_attempts_and_leaves_the_suspects_to_the_next_owner(
    driver: Driver, clean: bool
) -> None:
    """It looks after a partition for a while, and dies or gives it back."""
    driver.arrive(*conversations("a"))
    driver.commit()
    killed = successor(driver)
    killed.try_groups()
    substitute = successor(killed, "substitute", hands_out=False)
    assert not substitute.owner.trial.due
    if clean:
        (append,) = substitute.owner.release(0)
        substitute.acknowledge(append)
    last = successor(substitute, "last")
    assert (last.owner.trial.careful, [*last.state.attempts.suspects]) == (True, [0])
    assert endpoint(last, "a").attempts == 1, "by the one that was killed"
    last.try_groups()
    assert said(last) == [Try([0])]


def test_an_owner_that_hands_out_no_groups_ends_careful_mode_when_no_suspects_are_left(driver: Driver) -> None:
    substitute = successor(driver, hands_out=False)
    substitute.commit()
    assert said(substitute) == [Try([])]
    assert not substitute.state.attempts.careful


def test_while_there_are_suspects_nothing_else_is_handed_out(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    last = successor(after, "last")
    last.arrive(*conversations("c", client=Scribe("another")))
    last.try_groups()
    assert taken(last) == [identifier("a")]


def test_before_suspects_are_tried_the_others_have_their_turn(driver: Driver) -> None:
    """The process may die of them, and then all groups wait again."""
    driver.arrive(*conversations("a", "b"))
    driver.commit()
    after = successor(driver, handlers=1)
    after.try_groups()
    last = Driver(after.journal, after.data, "last")
    (append,) = last.step(Recover(0, len(after.journal), data_end=len(after.data)))
    last.acknowledge(append)
    last.try_groups()
    assert said(last) == [Try([1])], "not the suspect"
    last.handle()
    last.commit()
    assert not last.owner.trial.due
    last.now_ms += SUSPECTS_AFTER_MS
    (append,) = last.step(Tick())
    last.acknowledge(append)
    assert said(last) == [Try([0])]


def test_suspects_remain_suspects_when_an_owner_dies_trying_other_groups(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b", "c"))
    driver.commit()
    after = successor(driver, handlers=2)
    after.try_groups()
    last = Driver(after.journal, after.data, "last")
    (append,) = last.step(Recover(0, len(after.journal), data_end=len(after.data)))
    last.acknowledge(append)
    last.try_groups()
    assert said(last) == [Try([2])]
    assert [*successor(last, "and another").state.attempts.suspects] == [0, 1, 2]


def test_care_ends_when_everything_that_the_dead_owner_may_have_had_was_tried(driver: Driver) -> None:
    driver.arrive(*conversations("a"))
    driver.commit()
    driver.data += conversations("b", client=Scribe("another"))
    after = successor(driver)
    after.try_groups()
    after.handle()
    after.commit()
    assert after.owner.trial.careful, "the dead owner may have read the other one"
    assert not after.owner.trial.due
    after.step(DataRead(columns_of(after.data[1:], 1)))
    after.owner.ingest(0)
    after.try_groups()
    assert said(after) == [Try([1])]
    after.handle()
    after.commit()
    assert said(after) == [Try([])]
    assert (after.owner.trial.careful, after.state.attempts.careful) == (False, False)


def test_groups_are_tried_in_the_order_of_the_dead_owners_deliveries(driver: Driver) -> None:
    client = Scribe("client")
    driver.arrive(*conversations("a", "b", client=client))
    driver.handle()
    driver.commit()
    driver.arrive((client.message(address_of(), identifier("a"), sequence=1), record(b"1")))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    assert taken(after) == [identifier("b"), identifier("a")]


def test_a_group_that_was_to_be_suspended_is_let_go_when_its_conversation_ended_before() -> None:
    pair = Pair()
    one, other = pair.answered("a", "b")
    for _ in range(ATTEMPTS_MAX):
        pair.home.state.attempts.count(one)
    trial = PoisonWatch(pair.home.state, Staging(pair.home.state, anything, OwnerSettings()))
    trial.lead(0, 0)
    assert (one.held, other.held) == (True, True)
    pair.end_call(one.conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(one.conversation))
    pair.target.deliver(pair.home)
    pair.home.state.ready.clear()
    operations = CommitOperations()
    trial.fill(operations, 0, releasing=False)
    assert (operations.rare, other.held, [*pair.home.state.ready]) == ([], False, [other])


def test_a_group_whose_handler_only_finishes_is_removed_from_the_try(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    driver.commit()
    after = successor(driver)
    after.try_groups()
    transaction = after.owner.take()
    assert transaction is not None
    transaction.finish(transaction.dialog)
    after.owner.finish(transaction)
    after.commit()
    assert said(after) == [Finish(0)]
    assert [*after.state.attempts.trying] == [1]
    assert [*successor(after, "last").state.attempts.suspects] == [1]
