"""Transactions on several conversation groups (behaviour 85)."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import GroupLocked, InvalidState, TransactionTooLarge
from konverse.schemas.groups import own_group
from konverse.schemas.limits import ATTEMPTS_MAX, BODY_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.wire.journal import SYSTEM_BITS, EndOperation
from konverse.schemas.wire.operations import Attempt, Move, Suspend
from tests.kit.builders import Scribe, conversations
from tests.kit.driver import Driver
from tests.kit.hosts import host_of
from tests.kit.trials import said


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.lead()
    return driver


def taken(driver: Driver) -> Transaction:
    transaction = driver.owner.take()
    assert transaction is not None, "no group is free and ready"
    return transaction


def next_group(transaction: Transaction) -> Transaction:
    part = transaction.next_group()
    assert part is not None, "no other group is free and ready"
    return part


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]


def test_two_groups_are_two_and_locked_until_the_end_behaviour_85(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    assert one.dialog is not other.dialog
    assert (one.dialog.held, other.dialog.held) == (True, True)
    assert one.next_group() is None
    assert driver.owner.take() is None


def test_all_is_committed_together(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b", messages=2))
    one = taken(driver)
    other = next_group(one)
    assert offsets(list(one)) + offsets(list(other)) == [0, 1, 2, 3]
    one.send(one.dialog, "reply", b"one")
    other.end(other.dialog, error=3, description="no")
    driver.owner.finish(one)
    driver.commit()
    assert driver.owner.staging.out == 0
    assert [endpoint.state.code for endpoint in driver.state.live()] == ["CO", "DO"]
    driver.arrive(*conversations("c", client=Scribe("another")))
    assert taken(driver).dialog.index == 2


def test_unreceived_messages_of_a_second_group_are_received_again(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    list(one)
    assert not one.idle
    driver.owner.finish(one)
    driver.commit()
    again = taken(driver)
    assert again.dialog is other.dialog
    assert offsets(list(again)) == [1]


def test_a_transaction_of_which_a_further_group_alone_did_something_is_not_idle(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    assert one.idle
    list(other)
    assert not one.idle


def test_rolled_back_all_wait_as_before(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    list(next_group(one))
    driver.owner.staging.roll_back(one)
    assert driver.owner.staging.out == 0
    assert {taken(driver).dialog.index, taken(driver).dialog.index} == {0, 1}


def test_a_failure_counts_for_each_of_its_groups(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    for _ in range(ATTEMPTS_MAX):
        one = taken(driver)
        next_group(one)
        driver.owner.trial.fail(one)
        driver.commit()
        driver.now_ms += 60_000
        driver.owner.trial.tick(driver.now_ms)
    operations = said(driver)
    assert [operation for operation in operations if isinstance(operation, Attempt)] == [Attempt([0]), Attempt([1])]
    assert [operation for operation in operations if isinstance(operation, Suspend)] == [
        Suspend(0, "", ordered=False),
        Suspend(1, "", ordered=False),
    ]
    assert driver.owner.take() is None


def test_of_a_transaction_on_several_groups_all_is_overtaken_or_nothing(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    list(one)
    list(other)
    driver.owner.finish(one)
    driver.state.endings += 1
    other.dialog.committed = State.DISCONNECTED_OUTBOUND  # by a session's END
    operations, _ = driver.owner.staging.merge()
    assert (operations.receive_endpoints, len(driver.owner.staging.overtaken)) == ([], 2)


def test_something_moves_from_one_of_its_groups_to_another(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    list(one)
    other.move(other.dialog, UUID(bytes=one.dialog.group_id))
    driver.owner.finish(one)
    driver.commit()
    assert said(driver) == [Move(1, one.dialog.group_id)]
    assert taken(driver).dialogs == [one.dialog, other.dialog]


def test_its_with_block_ends_all_and_it_has_none_of_its_own(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    outcomes: list[bool] = []
    host_of(driver.owner.staging).done = lambda _, commits: outcomes.append(commits)
    with taken(driver) as one:
        with next_group(one) as other:
            other.send(other.dialog, "reply", b"")
        other.send(other.dialog, "reply", b"")
        assert outcomes == []
    assert outcomes == [True]
    with pytest.raises(InvalidState, match="is over"):
        other.send(other.dialog, "reply", b"")
    with pytest.raises(InvalidState, match="is over"):
        one.next_group()


def test_a_handler_that_raises_group_locked_steps_back(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    ended: list[Transaction] = []
    host_of(driver.owner.staging).done = lambda transaction, _: ended.append(transaction)
    other = taken(driver)
    with pytest.raises(GroupLocked), taken(driver) as one:
        one.move(one.dialog, UUID(bytes=other.dialog.group_id))
    assert [transaction.more and transaction.more.steps_back for transaction in ended] == [True]


def test_all_groups_together_fit_into_one_commit(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    for part in (one, next_group(one)):
        for _ in range(TRANSACTION_BYTES_MAX // BODY_BYTES_MAX // 2 + 1):
            part.send(part.dialog, "reply", bytes(BODY_BYTES_MAX))
    outcomes: list[bool] = []
    host_of(driver.owner.staging).done = lambda _, commits: outcomes.append(commits)
    with pytest.raises(TransactionTooLarge), one:
        pass
    assert outcomes == [False]


def test_a_transaction_has_so_many_groups_and_no_more(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.owner.staging.TRANSACTION_GROUPS_MAX", 2)
    driver.arrive(*conversations("a", "b", "c"))
    one = taken(driver)
    next_group(one)
    with pytest.raises(TransactionTooLarge, match="2 conversation groups"):
        one.next_group()


def test_ends_of_further_groups_are_in_the_commit(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one = taken(driver)
    other = next_group(one)
    other.end(other.dialog)
    driver.owner.finish(one)
    operations, _ = driver.owner.staging.merge()
    assert operations.ends == [EndOperation(other.dialog.index, 0, "")]


def test_a_savepoint_is_one_of_all_groups_of_the_transaction(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b", "c", messages=2))
    one = taken(driver)
    other = next_group(one)
    other.receive(1)
    other.savepoint("here")
    later = next_group(one)
    for part in (one, other, later):
        list(part)
        part.send(part.dialog, "reply", b"undone")
    one.rollback("here")
    assert (one.received, later.received) == ({}, {})
    assert other.received == {other.dialog.index: 1 << SYSTEM_BITS}
    assert not any(part.sends or part.size_bytes for part in (one, other, later))
    assert all(part.dialog.held for part in (one, other, later))


def test_a_move_behind_a_savepoint_is_undone_and_the_group_stays_locked(driver: Driver) -> None:
    driver.arrive(*conversations("a", "b"))
    one, other = driver.state.live()
    transaction = taken(driver)
    transaction.savepoint("here")
    transaction.move(transaction.dialog, UUID(bytes=other.group_id))
    assert (transaction.moves, other.held) == ([Move(one.index, other.group_id)], True)
    transaction.rollback("here")
    assert (transaction.moves, transaction.size_bytes, other.held) == ([], 0, True)
    list(transaction)
    driver.owner.finish(transaction)
    driver.commit()
    assert (other.held, one.group_id) == (False, own_group(one.role, one.conversation))
