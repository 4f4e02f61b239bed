"""Owners that are ordered to end conversations (protocol.md section 6)."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Drained
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.operations import Attempt, Cleanup, Fail
from konverse.schemas.wire.records import Kind
from tests.kit.builders import conversations, identifier, records_of
from tests.kit.driver import Driver
from tests.kit.trials import successor


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("first", "second"))
    driver.commit()
    return driver


def outputs(effects: list[object]) -> list[tuple[Kind, int]]:
    """Kinds and counters of the emitted outputs."""
    emitted = [each for effect in effects if isinstance(effect, Emit) for each in records_of(effect)]
    return [(decode(header).kind, decode(header).counter) for header, _key, _body in emitted]


def endpoint_of(driver: Driver, name: str) -> Endpoint:
    endpoint = driver.state.endpoint(Role.TARGET, identifier(name))
    assert endpoint is not None
    return endpoint


def test_nothing_leaves_before_the_commit_counts_that_takes_it_back(driver: Driver) -> None:
    driver.handle(b"said")
    emitted = driver.commit()
    (home,) = [effect.address for effect in emitted if isinstance(effect, Emit)]
    assert outputs([*emitted]) == [(Kind.MESSAGE, 0)]
    first = endpoint_of(driver, "first")
    driver.owner.trial.order(first, Cleanup(first.index))
    (append,) = driver.owner.commit(driver.now_ms)
    assert driver.state.streams[home].runs[0].prefix[0] == Kind.VOID << 1
    driver.owner.emitter.restart(None, driver.now_ms)  # a new producer, which gets everything again
    assert driver.step(Drained([])) == []
    assert outputs([*driver.acknowledge(append)]) == [(Kind.VOID, 0)]


def test_an_operator_waits_for_the_handler_that_has_it(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    dialog = transaction.dialog
    driver.owner.trial.order(dialog, Cleanup(dialog.index))
    assert not driver.owner.staging.waiting
    with transaction:
        list(transaction)
    driver.owner.finish(transaction)
    driver.commit()
    driver.commit()
    assert driver.state.endpoint(dialog.role, dialog.conversation) is None


def test_cleanup_during_a_failing_handler_leaves_no_attempt_count(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    dialog = transaction.dialog
    driver.owner.trial.order(dialog, Cleanup(dialog.index))
    driver.owner.trial.fail(transaction)
    driver.commit()
    assert driver.state.endpoint(dialog.role, dialog.conversation) is dialog, "the attempt is counted first"
    driver.now_ms += 1_000
    driver.owner.trial.tick(driver.now_ms)
    driver.commit()
    assert driver.state.endpoint(dialog.role, dialog.conversation) is None
    assert driver.state.attempts.troubled == {}


def test_a_successor_knows_of_the_cleanup(driver: Driver) -> None:
    first = endpoint_of(driver, "first")
    driver.owner.trial.order(first, Cleanup(first.index))
    driver.commit()
    other = successor(driver)
    assert other.state.cleaned == driver.state.cleaned != {}
    assert not any(isinstance(operation, Attempt) for operation in other.owner.duties)


def test_only_open_conversations_are_given_up_at_an_owner(driver: Driver) -> None:
    first, second = endpoint_of(driver, "first"), endpoint_of(driver, "second")
    for one in (first, second, first):
        driver.owner.trial.order(one, Fail(one.index, -9719, "given up"))
    driver.commit()
    assert [one.state for one in (first, second)] == [State.ERROR] * 2
    driver.commit()
    assert driver.owner.commit(driver.now_ms) == []
