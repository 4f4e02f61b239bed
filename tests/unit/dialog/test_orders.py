"""Operators suspend, skip or end a group at any time: behind its handler, and before the next handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konverse.dialog.owner.commands import Order
from konverse.dialog.owner.events import Tick
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Attempt, Cleanup, Resume, Skip, Suspend, Withdraw
from tests.kit.builders import Scribe, address_of, conversations, identifier, record
from tests.kit.driver import Driver
from tests.kit.trials import endpoint, fail, said, successor, suspended, taken


def leading(**settings: Any) -> Driver:
    """An owner with a journaled conversation of three messages."""
    driver = Driver(**settings)
    driver.lead()
    driver.arrive(*conversations("a", messages=3))
    driver.commit()
    return driver


def idle() -> tuple[Driver, Callable[[], None]]:
    """Everything was received."""
    driver = leading()
    driver.handle()
    driver.commit()
    return driver, lambda: None


def waiting() -> tuple[Driver, Callable[[], None]]:
    return leading(), lambda: None


def with_a_handler() -> tuple[Driver, Callable[[], None]]:
    """A handler takes one message at a time, and commits behind the order."""
    driver = leading(max_messages=1)
    transaction = driver.owner.take()
    assert transaction is not None

    def committed() -> None:
        assert not driver.owner.trial.due, "the handler has it"
        with transaction:
            list(transaction)
        driver.owner.finish(transaction)
        driver.commit()
        assert taken(driver) == [], "nobody gets it before the order"

    return driver, committed


def failing() -> tuple[Driver, Callable[[], None]]:
    """A handler raises behind the order."""
    driver = leading()
    transaction = driver.owner.take()
    assert transaction is not None

    def failed() -> None:
        driver.owner.trial.fail(transaction, "ValueError: no")
        driver.commit()
        assert said(driver) == [Attempt([0])]
        driver.now_ms += 60_000
        driver.owner.trial.tick(driver.now_ms)
        assert taken(driver) == []

    return driver, failed


def on_trial() -> tuple[Driver, Callable[[], None]]:
    """An owner has died, and the group is suspected; the next owner has not handed it out."""
    driver = successor(leading())
    driver.try_groups()
    last = successor(driver, "last")
    return last, lambda: None


def in_an_open_try() -> tuple[Driver, Callable[[], None]]:
    """The TRY that names it counts, and no handler has taken it."""
    driver = successor(leading())
    driver.try_groups()
    return driver, lambda: None


def parked() -> tuple[Driver, Callable[[], None]]:
    driver = Driver()
    driver.lead()
    suspended(driver)
    return driver, lambda: None


STATES = [idle, waiting, with_a_handler, failing, on_trial, in_an_open_try, parked]
Place = Callable[[], tuple[Driver, Callable[[], None]]]


def give(place: Place, order: Callable[[Endpoint], Order]) -> tuple[Driver, Endpoint]:
    """Journal the order, behind the group's current work."""
    driver, goes_on = place()
    one = endpoint(driver, "a")
    driver.owner.trial.order(one, order(one))
    goes_on()
    assert driver.owner.trial.due
    driver.commit()
    return driver, one


def ordered(one: Endpoint) -> Suspend:
    return Suspend(one.index, "look into it", ordered=True)


@pytest.mark.parametrize("place", STATES[:-1])
def test_a_group_is_suspended_and_resumed_from_every_unsuspended_state(place: Place) -> None:
    driver, one = give(place, ordered)
    assert ordered(one) in said(driver)
    assert (one.suspended, one.trouble and one.trouble.reason) == (True, "look into it")
    assert taken(driver) == []
    driver.owner.trial.order(one, Resume(one.index))
    driver.commit()
    assert (one.suspended, one.attempts) == (False, 0)
    driver.arrive(*conversations("b", client=Scribe("another")))
    if driver.owner.trial.careful:
        driver.try_groups()
    expected = [identifier("a")] if one.waits else []
    assert sorted(taken(driver)) == sorted([*expected, identifier("b")][: 1 if driver.state.attempts.suspects else 2])


@pytest.mark.parametrize("place", STATES)
def test_a_conversation_is_ended_with_an_error_in_every_state_of_its_group(place: Place) -> None:
    driver, one = give(place, lambda one: EndOperation(one.index, 4711, "no longer wanted"))
    assert said(driver)[0] == Withdraw(one.index), "as after any END WITH ERROR"
    assert (one.state, driver.state.unread) == (State.DISCONNECTED_OUTBOUND, 0)
    assert not driver.owner.trial.due or driver.owner.trial.careful
    assert taken(driver) == []


@pytest.mark.parametrize("place", STATES)
def test_a_conversation_is_cleaned_up_in_every_state_of_its_group(place: Place) -> None:
    driver, _ = give(place, lambda one: Cleanup(one.index))
    assert driver.state.endpoint(Role.TARGET, identifier("a")) is None


@pytest.mark.parametrize("place", [place for place in STATES if place not in (idle, with_a_handler)])
def test_the_first_message_is_skipped_and_the_others_are_handed_out(place: Place) -> None:
    driver, one = give(place, lambda one: Skip(one.index))
    assert (len(one.queue), one.suspended, one.attempts) == (2, False, 0)
    if driver.owner.trial.careful:
        assert driver.owner.take() is None, "the TRY in which it was does not name it any more"
        driver.try_groups()
    assert next(iter(driver.handle())).sequence == 1


def test_a_message_unseen_by_the_operator_is_not_skipped() -> None:
    """The handler has received the first message; the order does not mean the second one."""
    driver = leading(max_messages=1)
    one = endpoint(driver, "a")
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.trial.order(one, Skip(one.index))
    with transaction:
        list(transaction)
    driver.owner.finish(transaction)
    driver.commit()
    driver.commit()
    assert said(driver) == []
    assert [message.sequence for message in driver.handle()] == [1]


def test_nothing_is_skipped_where_nothing_waits() -> None:
    driver, _ = idle()
    one = endpoint(driver, "a")
    driver.owner.trial.order(one, Skip(one.index))
    assert driver.owner.commit(0) == [] or said(driver) == []
    driver.arrive((Scribe("client").message(address_of(), identifier("a"), sequence=3), record(b"3")))
    assert not one.suspended


def test_the_other_conversations_of_a_group_continue_when_one_is_ended() -> None:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", "b"))
    one, other = endpoint(driver, "a"), endpoint(driver, "b")
    driver.state.move(other, one.group_id)
    driver.commit()
    driver.owner.trial.order(one, EndOperation(one.index, 0, ""))
    assert taken(driver) == []
    driver.commit()
    assert taken(driver) == [other.conversation]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(ordered, id="suspend"),
        pytest.param(lambda one: EndOperation(one.index, 0, ""), id="end"),
        pytest.param(lambda one: Cleanup(one.index), id="clean up"),
    ],
)
def test_an_order_for_a_new_group_member_is_carried_out_once_the_first_member_is_gone(
    order: Callable[[Endpoint], Order],
) -> None:
    """The lock of a group is its own, whichever member is still there."""
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("a", "b", "c"))
    driver.commit()
    one, other, third = (endpoint(driver, name) for name in "abc")
    driver.owner.trial.order(one, Cleanup(one.index))
    for joins in (other, third):
        driver.state.move(joins, one.group_id)
    driver.owner.trial.order(other, order(other))
    driver.commit()
    assert driver.state.endpoint(Role.TARGET, identifier("a")) is None
    assert driver.owner.trial.due, "the group is not taken for busy"
    assert taken(driver) == []
    driver.commit()
    assert other.suspended or other.state in (State.DISCONNECTED_OUTBOUND, State.CLOSED)
    assert taken(driver) == ([] if third.suspended else [third.conversation])


def test_a_busy_conversation_is_reached_behind_the_transaction_that_has_it() -> None:
    """It has more messages whenever its handler finishes. No handler gets it again before the order."""
    driver = leading(max_messages=1)
    one = endpoint(driver, "a")
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.trial.order(one, ordered(one))
    with transaction:
        list(transaction)
    driver.owner.finish(transaction)
    (append,) = driver.owner.commit(0)
    assert driver.owner.take() is None, "also while that commit is on its way"
    driver.acknowledge(append)
    (append,) = driver.step(Tick())
    driver.acknowledge(append)
    assert one.suspended


@pytest.mark.parametrize("again", [Skip, Resume])
@pytest.mark.parametrize("place", STATES)
def test_a_second_order_takes_effect_before_a_handler_gets_messages_released_by_the_first(
    place: Place, again: type[Skip | Resume]
) -> None:
    driver, goes_on = place()
    one = endpoint(driver, "a")
    for order in (again(one.index), ordered(one), EndOperation(one.index, 0, "")):
        driver.owner.trial.order(one, order)
    goes_on()
    while one.state is not State.DISCONNECTED_OUTBOUND:
        assert driver.owner.trial.due
        driver.commit()
        assert taken(driver) == []


def test_an_order_for_a_conversation_that_has_ended_has_no_effect() -> None:
    driver = leading()
    one = endpoint(driver, "a")
    transaction = driver.owner.take()
    assert transaction is not None
    driver.owner.trial.order(one, ordered(one))
    with transaction:
        transaction.end(transaction.dialog)
    driver.owner.finish(transaction)
    driver.commit()
    assert one.state is State.DISCONNECTED_OUTBOUND
    driver.commit()
    assert said(driver) == []
    assert driver.owner.commit(0) == []


def test_an_operator_suspends_a_group_after_one_failure_without_further_attempts() -> None:
    driver = leading()
    fail(driver)
    one = endpoint(driver, "a")
    driver.owner.trial.order(one, ordered(one))
    driver.commit()
    assert (one.suspended, one.attempts < ATTEMPTS_MAX) == (True, True)
