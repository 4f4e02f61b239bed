"""Savepoints of handlers and sessions: later work is undone, and the group stays locked (behaviour 213)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction as SessionTransaction
from konverse.dialog.transaction.savepoints import Savepoints
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    BadInput,
    DialogNotFound,
    InvalidName,
    InvalidState,
    NullHandle,
    SavepointNotFound,
    TransactionTooLarge,
)
from konverse.schemas.wire.client_transaction import decode
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import Cleanup, Finish, SetTimer
from konverse.schemas.wire.records import Kind
from tests.kit.builders import Pair, address_of, begin_block, identifier, of


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def transaction(pair: Pair) -> Transaction:
    """A transaction with five messages."""
    return of(pair.target, pair.receiver(pair.begin(messages=5)))


@pytest.fixture
def session() -> Session:
    made = Session(identifier("a session"))
    made.transmit_to(address_of("transmission"))
    return made


# ------------------------------------------------------------------------------------------------------------ handlers


def test_only_sends_after_the_savepoint_are_rolled_back(transaction: Transaction) -> None:
    dialog = transaction.dialog
    transaction.send(dialog, "reply", b"1")
    size = transaction.size_bytes
    transaction.savepoint("a")
    transaction.send(dialog, "reply", b"2")
    transaction.send(dialog, "other", b"3")
    transaction.rollback("a")
    assert (transaction.sends, transaction.size_bytes) == ([(dialog.index, "reply", [b"1"])], size)
    transaction.send(dialog, "reply", b"4")
    transaction.rollback("a")
    transaction.send(dialog, "reply", b"5")
    assert transaction.sends == [(dialog.index, "reply", [b"1", b"5"])]


def test_a_rollback_to_a_savepoint_restores_sends_dropped_by_an_end_with_an_error(transaction: Transaction) -> None:
    dialog = transaction.dialog
    transaction.send(dialog, "reply", b"1")
    transaction.savepoint("a")
    transaction.end(dialog, error=7, description="seven")
    assert transaction.sends == []
    transaction.rollback("a")
    assert (transaction.sends, transaction.ends) == ([(dialog.index, "reply", [b"1"])], [])
    transaction.send(dialog, "reply", b"2")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("end", {}, {"ends": [EndOperation(0)]}),
        ("end", {"cleanup": True}, {"cleanups": [Cleanup(0)]}),
        ("finish", {}, {"finishes": [Finish(0)]}),
        ("set_timer", {"timeout": 1.0}, {"timers": [SetTimer(0, 1_000)]}),
    ],
)
def test_ends_finishes_and_timers_since_are_undone(
    transaction: Transaction, name: str, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    transaction.savepoint("a")
    for _ in range(2):
        getattr(transaction, name)(transaction.dialog, **arguments)
        assert {field: getattr(transaction, field) for field in expected} == expected
        transaction.rollback("a")
        assert transaction.idle
        assert transaction.size_bytes == 0


def test_messages_that_were_received_since_are_received_again_here(transaction: Transaction) -> None:
    assert [message.sequence for message in transaction.receive(2)] == [0, 1]
    transaction.savepoint("a")
    for _ in range(2):
        assert [message.sequence for message in transaction.receive(2)] == [2, 3]
        transaction.rollback("a")
    assert transaction.received == {0: 2 << 2}
    assert transaction.dialog.held, "the group stays locked"
    assert [message.sequence for message in transaction.receive()] == [2, 3, 4]


def test_a_loop_over_the_messages_ends_and_another_one_has_them_all(transaction: Transaction) -> None:
    transaction.savepoint("a")
    taken = []
    for message in transaction:
        taken.append(message.sequence)
        if len(taken) == 3:
            transaction.rollback("a")
    assert (taken, transaction.received) == ([0, 1, 2], {})
    assert [message.sequence for message in transaction] == [0, 1, 2, 3, 4]


def test_a_rollback_does_not_end_a_loop_that_received_nothing_since_the_savepoint(transaction: Transaction) -> None:
    for message in transaction:
        transaction.savepoint("this one")
        transaction.send(message.dialog, "reply", message.body)
        if message.sequence % 2:
            transaction.rollback("this one")
    assert transaction.sends == [(0, "reply", [b"0", b"2", b"4"])]
    assert transaction.received == {0: 5 << 2}


def test_a_name_may_be_used_again_and_the_last_one_counts(transaction: Transaction) -> None:
    dialog = transaction.dialog
    transaction.savepoint("a")
    transaction.send(dialog, "reply", b"1")
    transaction.savepoint("b")
    transaction.savepoint("a")
    transaction.send(dialog, "reply", b"2")
    transaction.rollback("a")
    assert transaction.sends == [(dialog.index, "reply", [b"1"])]
    transaction.rollback("b")
    transaction.rollback("a")
    assert transaction.sends == []
    with pytest.raises(SavepointNotFound, match="'b'") as gone:
        transaction.rollback("b")
    assert gone.value.number == 6401


def test_a_savepoint_that_is_not_there_changes_nothing(transaction: Transaction) -> None:
    transaction.send(transaction.dialog, "reply", b"1")
    with pytest.raises(SavepointNotFound):
        transaction.rollback("a")
    assert len(transaction.sends) == 1
    for wrong, error in (("", InvalidName), (None, BadInput)):
        with pytest.raises(error):
            transaction.savepoint(wrong)  # type: ignore[arg-type]


def test_a_dialog_that_was_begun_since_is_not_begun(pair: Pair, transaction: Transaction) -> None:
    conversation = iter(map(identifier, ("one", "two")))
    transaction._shared.begin = lambda _: (next(conversation), begin_block("orders", "depot"))
    transaction.savepoint("a")
    gone = transaction.begin("shop", "store", "orders")
    transaction.send(gone, "pick")
    transaction.rollback("a")
    assert transaction.idle
    another = transaction.begin("shop", "store", "orders")
    with pytest.raises(DialogNotFound, match="rolled back"):
        transaction.send(gone, "pick")
    transaction.send(another, "pick")


def test_behind_the_block_nothing_is_saved_or_rolled_back(transaction: Transaction) -> None:
    with transaction:
        transaction.savepoint("a")
    for call in (transaction.savepoint, transaction.rollback):
        with pytest.raises(InvalidState):
            call("a")


def test_a_transaction_that_comes_back_has_no_savepoints(transaction: Transaction) -> None:
    transaction.savepoint("a")
    transaction.clear()
    with pytest.raises(SavepointNotFound):
        transaction.rollback("a")


def test_no_handle_at_all_is_refused_behaviour_49(transaction: Transaction) -> None:
    for call in (
        lambda: transaction.send(None, "reply"),  # type: ignore[arg-type]
        lambda: transaction.end(None),  # type: ignore[arg-type]
        lambda: transaction.set_timer(None, 1),  # type: ignore[arg-type]
        lambda: transaction.find(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(NullHandle) as refused:
            call()
        assert refused.value.number == 8418


# ------------------------------------------------------------------------------------------------------------ sessions


def test_a_session_goes_back_in_its_transaction(session: Session) -> None:
    dialog, _ = session.begin(identifier("a"), begin_block(group=identifier("a")))
    session.drained()
    transaction = SessionTransaction(session)
    transaction.send(dialog, "order", b"1")
    size = transaction.size_bytes
    transaction.savepoint("a")
    gone = transaction.begin(identifier("b"), begin_block(group=identifier("b")))
    transaction.send(gone, "order", b"2")
    transaction.end(dialog, b"an error")
    transaction.rollback("a")
    assert (gone.state, transaction.begun, transaction.size_bytes) == (DialogState.NOT_BEGUN, [], size)
    transaction.send(dialog, "order", b"3")
    (hand,) = session.commit(transaction)
    said = decode(hand.records[0][2] or b"")
    assert [step.body for step in said.steps if step.kind is Kind.MESSAGE] == [b"1", b"3"]
    assert [step.kind for step in said.steps] == [Kind.OPEN, Kind.MESSAGE, Kind.MESSAGE]
    with pytest.raises(InvalidState):
        transaction.rollback("a")


def test_a_session_has_no_savepoint_of_another_name(session: Session) -> None:
    with pytest.raises(SavepointNotFound):
        SessionTransaction(session).rollback("a")


def test_a_savepoint_that_is_set_again_takes_the_place_of_the_one_before_it() -> None:
    savepoints: Savepoints[int] = Savepoints()
    for kept in range(1_000):
        savepoints.save("each", kept)
    assert len(savepoints._kept) == 1
    assert savepoints.back_to("each") == 999


def test_so_many_savepoints_a_transaction_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.transaction.savepoints.SAVEPOINT_ENTRIES_MAX", 3)
    savepoints = Savepoints[int]()
    for number, name in enumerate(["a", "b", "a", "a", "a"]):
        savepoints.save(name, number)
    with pytest.raises(TransactionTooLarge, match=r"'c' .* 3 "):
        savepoints.save("c", 5)
    assert savepoints.back_to("a") == 4, "the one before is as it was"
    assert savepoints.back_to("b") == 1
    savepoints.save("c", 5)
    assert savepoints.back_to("a") == 0
