"""Conversations that an owner ends because their service was dropped (behaviour 20)."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from konverse.dialog.owner import commands as orders
from konverse.dialog.owner import drops as dropping
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Phase
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import ATTEMPTS_MAX
from konverse.schemas.system_messages import END_DIALOG, read_error
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.journal import Commit, EndOperation
from konverse.schemas.wire.journal import decode as decode_journal
from konverse.schemas.wire.operations import Try
from konverse.schemas.wire.records import End, Kind, Suffix
from tests.kit.builders import Scribe, address_of, conversations, identifier, record, records_of
from tests.kit.driver import Driver
from tests.kit.trials import fail, said, successor

NAMES = ("first", "second", "third")


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations(*NAMES))
    driver.commit()
    return driver


def endpoint_of(driver: Driver, name: str) -> Endpoint:
    endpoint = driver.state.endpoint(Role.TARGET, identifier(name))
    assert endpoint is not None
    return endpoint


def drop(driver: Driver) -> None:
    driver.owner.staging.dropping.find(lambda _name: False, lambda _name: True)


def test_the_conversations_of_a_dropped_service_end_and_the_far_sides_get_an_error(driver: Driver) -> None:
    drop(driver)
    sent = [each for effect in driver.commit() if isinstance(effect, Emit) for each in records_of(effect)]
    errors = [body or b"" for header, _key, body in sent if decode(header).kind is Kind.ERROR]
    assert [read_error(body)[0] for body in errors] == [-8470] * 3
    assert {endpoint_of(driver, name).state for name in NAMES} == {State.DISCONNECTED_OUTBOUND}
    assert driver.state.unread == 0
    assert driver.owner.take() is None
    assert driver.owner.commit(0) == [], "and that was all"


def test_conversations_of_existing_services_continue(driver: Driver) -> None:
    exists = Mock(return_value=True)
    driver.owner.staging.dropping.find(exists, lambda _name: True)
    exists.assert_called_once_with(endpoint_of(driver, "first").service)
    assert driver.owner.commit(0) == []
    assert driver.state.unread == 3


def test_a_conversation_in_a_handler_ends_only_after_the_handler_has_finished(driver: Driver) -> None:
    transaction = driver.owner.take()
    assert transaction is not None
    drop(driver)
    driver.commit()
    assert transaction.dialog.state.code == "CO"
    assert not driver.owner.staging.waiting, "nothing can be said before the handler is done"
    assert [message.body for message in transaction] == [b"0"]
    driver.owner.finish(transaction)
    driver.commit()
    driver.commit()
    assert transaction.dialog.state is State.DISCONNECTED_OUTBOUND


@pytest.mark.parametrize("attempts", [1, ATTEMPTS_MAX])
def test_failed_and_suspended_conversations_of_a_dropped_service_end_too(attempts: int) -> None:
    """Also suspended groups, which no handler gets."""
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("first"))
    driver.commit()
    for attempt in range(1, attempts + 1):
        transaction = driver.owner.take()
        assert transaction is not None
        if attempt == attempts:
            drop(driver)
        driver.owner.trial.fail(transaction)
        driver.commit()
        driver.now_ms += 60_000
        driver.owner.trial.tick(driver.now_ms)
    assert endpoint_of(driver, "first").suspended == (attempts == ATTEMPTS_MAX)
    driver.commit()
    assert endpoint_of(driver, "first").state is State.DISCONNECTED_OUTBOUND


def test_a_conversation_that_has_ended_by_itself_is_not_ended_again(driver: Driver) -> None:
    drop(driver)
    transaction = driver.owner.take()
    assert transaction is not None
    transaction.end(transaction.dialog)
    driver.owner.finish(transaction)
    driver.commit()
    assert {endpoint_of(driver, name).state for name in NAMES} == {State.DISCONNECTED_OUTBOUND}
    driver.commit()
    commit = decode_journal(driver.journal[-1])
    assert isinstance(commit, Commit)
    assert commit.operations.ends == [], "nothing ends twice"
    assert driver.owner.commit(0) == []
    assert driver.owner.phase is Phase.LEADING


def over(driver: Driver) -> None:
    """The peer of the first conversation has ended, so its next end forgets it."""
    detail = End(identifier("client"), address_of("replies"))
    suffix = Suffix(END_DIALOG, detail=detail)
    driver.arrive((Scribe("home").end(address_of(), identifier("first"), detail, suffix=suffix), record()))
    driver.commit()


def test_after_a_crash_groups_possibly_held_by_handlers_are_tried_before_their_drop(driver: Driver) -> None:
    over(driver)
    after = successor(driver)
    drop(after)
    after.commit()
    assert after.owner.phase is Phase.LEADING
    assert said(after) == [Try([0, 1, 2])]
    for _ in NAMES:
        after.handle()
    after.commit()
    after.commit()
    assert after.owner.phase is Phase.LEADING
    assert after.state.endpoint(Role.TARGET, identifier("first")) is None
    assert endpoint_of(after, "second").state is State.DISCONNECTED_OUTBOUND


def test_of_whom_an_operator_says_something_in_the_same_commit_comes_with_the_next_one() -> None:
    driver = Driver()
    driver.lead()
    driver.arrive(*conversations("first"))
    driver.commit()
    for _ in range(ATTEMPTS_MAX):
        fail(driver)
    first = endpoint_of(driver, "first")
    assert first.suspended
    over(driver)
    drop(driver)
    driver.owner.trial.order(first, EndOperation(first.index, 4711, "poison"))
    driver.commit()
    assert driver.owner.phase is Phase.LEADING
    assert driver.state.endpoint(Role.TARGET, identifier("first")) is None
    assert driver.owner.commit(0) == []


def test_nothing_ends_while_the_outbox_is_full(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "OUTBOX_RECORDS_MAX", 0)
    drop(driver)
    assert driver.owner.commit(0) == []
    monkeypatch.undo()
    driver.commit()
    assert endpoint_of(driver, "first").state is State.DISCONNECTED_OUTBOUND


def test_so_many_end_in_one_commit_and_no_more(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "COMMIT_GROUPS_MAX", 2)
    drop(driver)
    for left in (1, 0):
        driver.commit()
        alive = [name for name in NAMES if endpoint_of(driver, name).state is not State.DISCONNECTED_OUTBOUND]
        assert len(alive) == left


def test_so_many_bytes_of_descriptions_go_into_one_commit_and_no_more(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "COMMIT_BYTES_TARGET", 1_000)
    for name in NAMES:
        endpoint = endpoint_of(driver, name)
        driver.owner.trial.order(endpoint, EndOperation(endpoint.index, 7, "é" * 400))
    for left in (1, 0):
        driver.commit()
        alive = [name for name in NAMES if endpoint_of(driver, name).state is not State.DISCONNECTED_OUTBOUND]
        assert len(alive) == left
