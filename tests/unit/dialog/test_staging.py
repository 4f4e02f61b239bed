"""Groups between the queues and the next commit: handed out, finished, rolled back or overtaken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.schemas.limits import (
    BODY_BYTES_MAX,
    COMMIT_BYTES_MAX,
    COMMIT_BYTES_TARGET,
    COMMIT_GROUPS_MAX,
    TRANSACTION_BYTES_MAX,
)
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, encode_commit
from tests.kit.builders import GROUP, Pair, Side, anything
from tests.kit.digests import digest
from tests.kit.staging import commit, taken

Stage = Callable[..., Staging]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def staging_of(side: Side, **settings: Any) -> Staging:
    return Staging(side.state, anything, OwnerSettings(**settings))


# -------------------------------------------------------------------------------------------------------- handing out


def test_groups_are_handed_out_in_the_order_in_which_they_became_ready(pair: Pair) -> None:
    names = ["a", "b", "c"]
    conversations = [pair.begin(name) for name in names]
    staging = staging_of(pair.target)
    assert [taken(staging).dialog.conversation for _ in names] == conversations
    assert staging.take() is None


def test_a_group_is_handed_out_once_behaviours_71_and_72(pair: Pair) -> None:
    conversation = pair.begin()
    staging = staging_of(pair.target)
    taken(staging)
    pair.send(conversation)
    pair.target.state.ready.append(pair.receiver(conversation))
    assert staging.take() is None


def test_all_conversations_of_a_group_are_handed_out_together_behaviour_64(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    assert taken(staging).members == [one, two]
    assert (one.held, two.held) == (True, True)
    assert staging.take() is None


def test_a_member_without_messages_is_locked_too(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    pair.home.receive(two)
    staging = staging_of(pair.home)
    assert taken(staging).members == [one]
    pair.target.send(pair.receiver(two.conversation), b"another")
    pair.target.deliver(pair.home)
    assert staging.take() is None


def test_a_conversation_that_joins_a_group_in_a_handler_is_locked_with_it(pair: Pair) -> None:
    """Otherwise its first message would hand out the whole group a second time."""
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    transaction = taken(staging)
    late = pair.begin("late", group=GROUP)
    pair.target.send(pair.receiver(late), b"reply")
    pair.target.deliver(pair.home)
    assert staging.take() is None
    list(transaction)
    staging.finish(transaction)
    commit(staging, pair.home)
    assert taken(staging).members == [pair.initiator(late)]
    assert (one.consumed, two.consumed) == (1, 1)


def test_a_conversation_that_becomes_a_group_in_a_handler_is_locked_and_can_be_used(pair: Pair) -> None:
    founder = pair.begin("founder")
    pair.target.send(pair.receiver(founder), b"reply")
    pair.target.deliver(pair.home)
    staging = staging_of(pair.home)
    transaction = taken(staging)
    related = pair.begin("related", group=founder)
    assert pair.initiator(related).held
    list(transaction)
    transaction.send(pair.initiator(founder), "order", b"answer")
    transaction.end(pair.initiator(founder))
    staging.finish(transaction)
    commit(staging, pair.home)
    assert [sent.body for sent in pair.home.outputs(pair.target.address)] == [b"answer", None]
    assert not pair.initiator(related).held


def test_a_conversation_that_joins_a_free_group_is_free(pair: Pair) -> None:
    pair.answered("one", "two")
    late = pair.begin("late", group=GROUP)
    assert not pair.initiator(late).held


@pytest.mark.parametrize("most", [1, 2, None])
def test_a_transaction_gets_no_more_messages_of_a_conversation_than_it_may(pair: Pair, most: int | None) -> None:
    conversation = pair.begin(messages=5)
    staging = staging_of(pair.target, max_messages=most)
    transaction = taken(staging)
    assert [message.sequence for message in transaction] == [*range(most or 5)]
    staging.finish(transaction)
    commit(staging, pair.target)
    assert pair.receiver(conversation).consumed == (most or 5)
    if most:
        assert [message.sequence for message in taken(staging)] == [*range(most, min(2 * most, 5))]


def test_an_endpoint_that_is_gone_or_has_nothing_is_not_handed_out(pair: Pair) -> None:
    emptied, gone = pair.begin("emptied"), pair.begin("gone")
    pair.target.receive(pair.receiver(emptied))
    pair.target.end(pair.receiver(gone))
    pair.end_call(gone)
    pair.home.deliver(pair.target)
    assert len(pair.target.state.ready) == 2
    assert staging_of(pair.target).take() is None


# ------------------------------------------------------------------------------------------------- finish, roll back


def test_a_finished_transaction_joins_the_next_commit_which_unlocks_its_group(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    transaction.send(transaction.dialog, "reply", b"answer")
    staging.finish(transaction)
    pair.send(conversation)
    assert staging.take() is None, "locked until the commit was applied"
    commit(staging, pair.target)
    assert [sent.body for sent in pair.target.outputs(pair.home.address)] == [b"answer"]
    assert [message.sequence for message in taken(staging)] == [2]


def test_several_transactions_share_a_commit(pair: Pair) -> None:
    for name in ("a", "b", "c"):
        pair.begin(name)
    staging = staging_of(pair.target)
    for types in (["x", "y"], ["y"], ["z", "x"]):
        transaction = taken(staging)
        list(transaction)
        for message_type in types:
            transaction.send(transaction.dialog, message_type, message_type.encode())
        staging.finish(transaction)
    operations, transactions = staging.merge()
    assert len(transactions) == 3
    assert operations.receive_endpoints == [0, 1, 2]
    assert operations.receive_positions == [4, 4, 4]
    assert operations.sends == [
        (0, "x", [b"x"]), (0, "y", [b"y"]), (1, "y", [b"y"]), (2, "z", [b"z"]), (2, "x", [b"x"])
    ]  # fmt: skip
    assert staging.finished == []


def test_a_message_that_was_not_iterated_is_handed_out_again(pair: Pair) -> None:
    pair.begin(messages=3)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    next(iter(transaction))
    staging.finish(transaction)
    commit(staging, pair.target)
    assert [message.sequence for message in taken(staging)] == [1, 2]


def test_rolled_back_messages_wait_as_before_behaviour_74(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    before = digest(pair.target.state)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    transaction.send(transaction.dialog, "reply", b"never")
    transaction.end(transaction.dialog)
    staging.roll_back(transaction)
    assert ([*transaction.sends], [*transaction.ends], transaction.received) == ([], [], {})
    assert digest(pair.target.state) == before
    assert not pair.receiver(conversation).held
    assert staging.merge()[0].receive_endpoints == []
    assert [message.sequence for message in taken(staging)] == [0, 1]


def test_a_group_is_rolled_back_as_one(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    staging.roll_back(taken(staging))
    assert (one.held, two.held) == (False, False)
    assert taken(staging).members == [one, two]
    assert staging.take() is None


# -------------------------------------------------------------------------------------------------------- overtaken


def test_a_sessions_end_overtakes_a_handler_and_its_work_is_dropped(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    transaction = taken(staging)
    list(transaction)
    transaction.send(one, "reply", b"never")
    staging.finish(transaction)
    pair.end_call(one.conversation)
    commit(staging, pair.home)
    assert len(staging.overtaken) == 1
    assert [sent.body for sent in pair.home.outputs(pair.target.address)] == [None], "the END alone"
    assert (two.consumed, two.held) == (0, False)
    assert [message.dialog for message in taken(staging)] == [two]


def test_an_index_that_was_given_again_does_not_get_the_work_of_the_endpoint_before(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.send(pair.receiver(conversation), b"reply")
    pair.target.deliver(pair.home)
    staging = staging_of(pair.home)
    transaction = taken(staging)
    list(transaction)
    transaction.send(transaction.dialog, "order", b"never")
    staging.finish(transaction)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    heir = pair.begin("heir")
    assert pair.initiator(heir).index == 0
    commit(staging, pair.home)
    assert len(staging.overtaken) == 1
    assert pair.initiator(heir).consumed == 0


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_end_of_a_conversation_that_joined_in_the_handler_overtakes_it_too(pair: Pair, forgotten: bool) -> None:
    one, _ = pair.answered("one", "two")
    staging = staging_of(pair.home)
    transaction = taken(staging)
    late = pair.begin("late", group=GROUP)
    list(transaction)
    transaction.send(pair.initiator(late), "order", b"never")
    staging.finish(transaction)
    pair.end_call(late)
    if forgotten:
        pair.home.deliver(pair.target)
        pair.target.end(pair.receiver(late))
        pair.target.deliver(pair.home)
    commit(staging, pair.home)
    assert len(staging.overtaken) == 1
    assert one.consumed == 0


def test_an_end_of_another_conversation_overtakes_no_transaction(pair: Pair) -> None:
    pair.begin("mine")
    other = pair.begin("other")
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    staging.finish(transaction)
    pair.target.end(pair.receiver(other))
    assert staging.merge()[0].receive_endpoints == [0]
    assert len(staging.overtaken) == 0


def test_an_end_of_a_group_member_untouched_by_the_handler_overtakes_no_transaction(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    transaction = taken(staging)
    next(iter(transaction))
    staging.finish(transaction)
    pair.end_call(two.conversation)
    commit(staging, pair.home)
    assert (len(staging.overtaken), one.consumed) == (0, 1)


def test_the_end_of_the_peer_overtakes_no_transaction(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    staging = staging_of(pair.target)
    transaction = taken(staging)
    list(transaction)
    transaction.send(transaction.dialog, "reply", b"crossing")
    staging.finish(transaction)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    commit(staging, pair.target)
    assert len(staging.overtaken) == 0
    assert pair.receiver(conversation).consumed == 2
    pair.target.deliver(pair.home)
    assert pair.home.state.statistics.discarded == 1, "a message for a side that ended"


# ------------------------------------------------------------------------------------------------------------- sizes


def large(pair: Pair, count: int, body: bytes) -> Staging:
    """`count` finished transactions, each with one reply."""
    for number in range(count):
        pair.begin(str(number))
    staging = staging_of(pair.target, batch=COMMIT_GROUPS_MAX)
    for _ in range(count):
        transaction = taken(staging)
        list(transaction)
        transaction.send(transaction.dialog, "reply", body)
        staging.finish(transaction)
    return staging


def test_staging_is_full_when_its_bodies_fill_a_commit(pair: Pair) -> None:
    overhead = large(Pair(), 1, b"").size_bytes
    assert not large(pair, 1, bytes(COMMIT_BYTES_TARGET - overhead - 1)).full
    assert large(Pair(), 1, bytes(COMMIT_BYTES_TARGET - overhead)).full
    assert large(Pair(), 2, bytes(COMMIT_BYTES_TARGET // 2)).full


def test_transactions_that_do_not_fit_into_a_commit_join_the_next_one_without_loss(pair: Pair) -> None:
    staging = large(pair, 12, bytes(BODY_BYTES_MAX))
    received: list[int] = []
    while staging.finished:
        operations, transactions = staging.merge()
        assert transactions
        record = Commit(1, b"o" * 16, 1, GENESIS_HASH, 0, operations)
        assert len(encode_commit(record)) <= COMMIT_BYTES_TARGET + TRANSACTION_BYTES_MAX <= COMMIT_BYTES_MAX
        received += operations.receive_endpoints
    assert received == [*range(12)]
    assert staging.size_bytes == 0


@pytest.mark.parametrize("batch", [0, 1, COMMIT_GROUPS_MAX + 1])
def test_a_batch_is_bounded_however_large_it_is_set(pair: Pair, batch: int) -> None:
    assert staging_of(pair.target, batch=batch).batch == min(batch, COMMIT_GROUPS_MAX)
