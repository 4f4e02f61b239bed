"""A dialog ended in a transaction is over for every guard at once, and a begun one is found in the transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import DialogNotFound, InvalidState
from tests.kit.builders import Pair, anything, begin_block, identifier, of


@pytest.fixture
def pair() -> Pair:
    return Pair()


def end(transaction: Transaction, dialog: Endpoint) -> None:
    transaction.end(dialog)


def fail(transaction: Transaction, dialog: Endpoint) -> None:
    transaction.end(dialog, error=17, description="no")


def clean(transaction: Transaction, dialog: Endpoint) -> None:
    transaction.end(dialog, cleanup=True)


def give_back(transaction: Transaction, dialog: Endpoint) -> None:
    transaction.give_back(dialog, "note", b"")


@pytest.mark.parametrize(("peer", "code"), [("open", "DO"), ("ended", "CD"), ("failed", "CD")])
@pytest.mark.parametrize("ends", [end, fail, clean, give_back])
def test_the_state_is_over_when_the_transaction_has_ended_it(
    pair: Pair, peer: str, code: str, ends: Callable[[Transaction, Endpoint], None]
) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    if peer != "open":
        pair.end_call(conversation, (17, "cancelled") if peer == "failed" else None)
        pair.home.deliver(pair.target)
    before = target.state
    transaction = of(pair.target, target)
    dialog = next(iter(transaction)).dialog
    ends(transaction, dialog)
    assert dialog.state.code == ("CD" if ends is clean else code)
    assert all(one.state not in {State.CONVERSING, State.STARTED_OUTBOUND} for one in transaction.dialogs)
    assert target.committed is before, "the partition does not know of it yet"
    with pytest.raises(InvalidState, match="ended in this transaction") as refusal:
        transaction.send(dialog, "reply", b"")
    assert refusal.value.number == 8429


@pytest.mark.parametrize("ends", [end, fail, clean])
def test_a_rolled_back_end_leaves_the_dialog_open(pair: Pair, ends: Callable[[Transaction, Endpoint], None]) -> None:
    target = pair.receiver(pair.begin())
    staging = Staging(pair.target.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    transaction.savepoint("before")
    ends(transaction, target)
    transaction.rollback("before")
    assert target.state is State.CONVERSING
    transaction.send(target, "reply", b"")
    ends(transaction, target)
    staging.roll_back(transaction)
    assert target.state is State.CONVERSING
    assert target.ending is None


def test_a_committed_end_is_no_longer_pending(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    staging = Staging(pair.target.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    transaction.end(target)
    staging.finish(transaction)
    operations, finished = staging.merge()
    pair.target.commit(ends=operations.ends)
    staging.release(finished)
    assert (target.state, target.committed, target.ending) == (*[State.DISCONNECTED_OUTBOUND] * 2, None)


def test_a_message_that_arrives_after_an_uncommitted_end_is_still_queued(pair: Pair) -> None:
    conversation = pair.begin()
    target = pair.receiver(conversation)
    transaction = of(pair.target, target)
    transaction.end(target)
    pair.send(conversation, b"more", sequence=1)
    assert [entry[2] for entry in target.queue] == [b"0", b"more"]


def begun_in(pair: Pair) -> tuple[Transaction, Any]:
    """A transaction, and a dialog that it begins."""
    target = pair.receiver(pair.begin())
    transaction = of(pair.target, target)
    transaction._shared.begin = lambda _: (identifier("begun"), begin_block(group=identifier("begun")))
    return transaction, transaction.begin("shop", "store", "orders")


def test_a_dialog_begun_in_a_transaction_is_listed_and_found_in_it(pair: Pair) -> None:
    transaction, begun = begun_in(pair)
    assert transaction.dialogs == [pair.target.state.live()[0], begun]
    assert transaction.find(UUID(bytes=identifier("begun"))) is begun
    assert (begun.state.code, begun.is_initiator, begun.service) == ("SO", True, "shop")
    assert (begun.far_service, begun.contract) == ("store", "orders")
    transaction.end(begun)
    assert begun.state.code == "DO"
    with pytest.raises(InvalidState, match="ended in this transaction"):
        transaction.send(begun, "order", b"")


def test_a_dialog_begun_after_a_savepoint_is_not_found_after_rollback_to_the_savepoint(pair: Pair) -> None:
    target = pair.receiver(pair.begin())
    transaction = of(pair.target, target)
    transaction.savepoint("before")
    transaction._shared.begin = lambda _: (identifier("begun"), begin_block(group=identifier("begun")))
    transaction.begin("shop", "store", "orders")
    transaction.rollback("before")
    assert transaction.dialogs == [target]
    with pytest.raises(DialogNotFound):
        transaction.find(UUID(bytes=identifier("begun")))
