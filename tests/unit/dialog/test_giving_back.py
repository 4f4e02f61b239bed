"""A target that is not the intended receiver gives messages back (protocol.md section 7.11)."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.rules.bounces import give_back
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import InvalidState, PartitionHalted, TransactionTooLarge
from konverse.schemas.limits import TRANSACTION_BYTES_MAX
from konverse.schemas.wire.journal import CommitOperations
from konverse.schemas.wire.operations import GiveBack
from konverse.schemas.wire.records import NO_SEQUENCE, RETURNING, BounceReason, Kind
from tests.kit.builders import Pair, anything

NOTE = ("RedirectTo", b"to the north")


@pytest.fixture
def pair() -> Pair:
    return Pair()


def taken(pair: Pair) -> tuple[Staging, Transaction]:
    staging = Staging(pair.target.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    return staging, transaction


def commit(pair: Pair, staging: Staging, transaction: Transaction) -> None:
    staging.finish(transaction)
    operations, merged = staging.merge()
    pair.target.commit(**{name: getattr(operations, name) for name in CommitOperations.__dataclass_fields__})
    staging.release(merged)


def came_back(pair: Pair) -> list[Bounced]:
    pair.target.deliver(pair.home)
    return [*pair.home.state.mailbox.entries.values()]


def test_unreceived_messages_of_a_target_go_back_in_order_after_a_note(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    staging, transaction = taken(pair)
    with transaction:
        transaction.give_back(transaction.dialog, *NOTE)
    commit(pair, staging, transaction)
    found = came_back(pair)
    assert [(one.message_type, one.body, one.sequence, one.bounce.reason) for one in found] == [
        (*NOTE, NO_SEQUENCE, BounceReason.REDIRECTED),
        ("order", b"0", 0, BounceReason.GIVEN_BACK),
        ("order", b"1", 1, BounceReason.GIVEN_BACK),
        ("order", b"2", 2, BounceReason.GIVEN_BACK),
    ]
    assert {one.session for one in found} == {pair.client.id}, "who opened the conversation decides about them"
    assert {one.conversation for one in found} == {conversation}
    assert pair.initiator(conversation).state is State.DISCONNECTED_INBOUND
    assert pair.target.state.unread == 0


def test_a_note_that_no_commit_holds_is_refused_and_nothing_is_noted(pair: Pair) -> None:
    conversation = pair.begin()
    staging, transaction = taken(pair)
    with transaction:
        with pytest.raises(TransactionTooLarge):
            transaction.give_back(transaction.dialog, NOTE[0], bytes(TRANSACTION_BYTES_MAX))
        assert transaction.idle
        transaction.end(transaction.dialog)
    commit(pair, staging, transaction)
    assert came_back(pair) == []
    assert pair.initiator(conversation).state is State.DISCONNECTED_INBOUND


def test_received_messages_are_not_given_back(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    staging, transaction = taken(pair)
    with transaction:
        assert next(iter(transaction)).body == b"0"
        transaction.give_back(transaction.dialog, *NOTE)
    commit(pair, staging, transaction)
    assert [one.body for one in came_back(pair)] == [NOTE[1], b"1", b"2"]
    assert pair.receiver(conversation).consumed == 1


def test_messages_that_arrive_between_the_decision_and_its_commit_are_given_back_too(pair: Pair) -> None:
    conversation = pair.begin()
    staging, transaction = taken(pair)
    with transaction:
        transaction.give_back(transaction.dialog, *NOTE)
    pair.send(conversation, b"1", sequence=1, flags=RETURNING)
    commit(pair, staging, transaction)
    pair.send(conversation, b"2", sequence=2, flags=RETURNING)
    found = came_back(pair)
    assert [one.body for one in found] == [NOTE[1], b"0", b"1", b"2"]
    assert found[-1].bounce.reason is BounceReason.PEER_ENDED, "as on every returning dialog"


def test_the_end_follows_the_returned_messages(pair: Pair) -> None:
    pair.begin(messages=2)
    staging, transaction = taken(pair)
    with transaction:
        transaction.give_back(transaction.dialog, *NOTE)
    commit(pair, staging, transaction)
    assert [sent.kind for sent in pair.target.outputs(pair.home.address)] == [Kind.BOUNCE] * 3 + [Kind.END]


def test_the_end_of_the_other_side_is_no_message(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.commit(rare=[GiveBack(pair.receiver(conversation).index, *NOTE)])
    assert [one.body for one in came_back(pair)] == [NOTE[1], b"0", b"1"]
    assert pair.target.state.live() == []


def test_a_rolled_back_transaction_gives_nothing_back(pair: Pair) -> None:
    pair.begin()
    staging, transaction = taken(pair)
    transaction.give_back(transaction.dialog, *NOTE)
    staging.roll_back(transaction)
    again = staging.take()
    assert again is not None
    assert not again.cleanups
    with again:
        assert [message.body for message in again] == [b"0"]


def test_behind_a_savepoint_nothing_is_given_back(pair: Pair) -> None:
    pair.begin()
    _, transaction = taken(pair)
    transaction.savepoint("before")
    transaction.give_back(transaction.dialog, *NOTE)
    transaction.rollback("before")
    assert not transaction.cleanups
    assert not transaction.size_bytes


def test_a_given_back_conversation_accepts_no_send_and_no_end(pair: Pair) -> None:
    pair.begin()
    _, transaction = taken(pair)
    transaction.give_back(transaction.dialog, *NOTE)
    with pytest.raises(InvalidState):
        transaction.send(transaction.dialog, "reply", b"")
    with pytest.raises(InvalidState):
        transaction.end(transaction.dialog)


def test_an_initiator_cannot_give_messages_back(pair: Pair) -> None:
    (initiator,) = pair.answered("asked")
    staging = Staging(pair.home.state, anything, OwnerSettings())
    transaction = staging.take()
    assert transaction is not None
    with pytest.raises(InvalidState, match="this side began it"):
        transaction.give_back(initiator, *NOTE)
    with pytest.raises(PartitionHalted, match="which is not a target"):
        give_back(pair.home.state, GiveBack(initiator.index, *NOTE))
