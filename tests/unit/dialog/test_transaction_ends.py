"""How a handler ends conversations, which ones it may not touch, and how a transaction ends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.received import Message
from konverse.schemas.errors import (
    BadInput,
    DialogNotFound,
    InvalidError,
    InvalidState,
    NullHandle,
    TransactionTooLarge,
)
from konverse.schemas.limits import ERROR_DESCRIPTION_CHARACTERS_MAX
from tests.kit.builders import GROUP, Pair, identifier, of
from tests.kit.hosts import Host


@pytest.fixture
def pair() -> Pair:
    return Pair()


# ------------------------------------------------------------------------------------------------------------- ending


@pytest.mark.parametrize(
    ("ended", "state"),
    [("by us", "DISCONNECTED_OUTBOUND"), ("by the peer", "DISCONNECTED_INBOUND"), ("by an error", "ERROR")],
)
@pytest.mark.parametrize("before", [0, 2])
def test_nothing_can_be_sent_on_a_conversation_that_ended_behaviours_50_to_52(
    pair: Pair, ended: str, state: str, before: int
) -> None:
    """Also after messages of the same type in the same transaction."""
    conversation = pair.begin()
    receiver = pair.receiver(conversation)
    transaction, message_type = of(pair.target, receiver), "reply"
    for _ in range(before):
        transaction.send(receiver, message_type)
    if ended == "by us":
        pair.target.end(receiver)
    else:
        pair.end_call(conversation, None if ended == "by the peer" else (1, "no"))
        pair.home.deliver(pair.target)
    with pytest.raises(
        InvalidState, match=f"cannot send on conversation {receiver.id}: it is {state}.*Begin a new"
    ) as refused:
        transaction.send(receiver, message_type)
    assert refused.value.number == 8429
    assert sum(len(bodies) for _, _, bodies in transaction.sends) == before


def test_nothing_can_be_sent_behind_the_end_of_the_same_transaction(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    transaction.end(one)
    with pytest.raises(InvalidState, match=f"cannot send on conversation {one.id}: it is ended in this transaction"):
        transaction.send(one, "reply")
    transaction.send(two, "reply")
    assert transaction.sends == [(two.index, "reply", [b""])]


def test_a_conversation_is_ended_once_behaviour_118(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    transaction.end(one)
    with pytest.raises(InvalidState, match=f"cannot end conversation {one.id}: it is ended in this transaction"):
        transaction.end(one)
    transaction.end(two)
    assert [end.endpoint for end in transaction.ends] == [one.index, two.index]


def test_a_conversation_that_we_ended_before_cannot_be_ended_again_behaviour_118(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    pair.target.end(receiver)
    with pytest.raises(InvalidState, match=r"cannot end conversation .* it is DISCONNECTED_OUTBOUND"):
        transaction.end(receiver)


@pytest.mark.parametrize(("code", "description"), [(0, ""), (1, "no")], ids=["END", "ERROR"])
@pytest.mark.parametrize("another_was_ended", [True, False])
def test_a_conversation_that_the_peer_ended_can_be_ended(
    pair: Pair, code: int, description: str, another_was_ended: bool
) -> None:
    one, two = pair.answered("one", "two")
    pair.target.end(pair.receiver(one.conversation), code, description)
    pair.target.deliver(pair.home)
    transaction = of(pair.home, one)
    if another_was_ended:
        transaction.end(two)
    transaction.end(one)
    assert transaction.ends[-1].endpoint == one.index


def test_a_conversation_that_has_sent_nothing_can_be_used_and_ended(pair: Pair) -> None:
    (one,) = pair.answered("one")
    initiator = pair.initiator(pair.begin("two", messages=0, group=GROUP))
    assert initiator.state is State.STARTED_OUTBOUND
    transaction = of(pair.home, one)
    transaction.send(initiator, "order")
    transaction.end(initiator)
    assert (len(transaction.sends), len(transaction.ends)) == (1, 1)


@pytest.mark.parametrize(
    ("code", "description"), [(1, "x"), (2**31 - 1, "x" * ERROR_DESCRIPTION_CHARACTERS_MAX), (7, "ö")]
)
def test_an_error_needs_a_code_and_a_description_behaviour_112(pair: Pair, code: int, description: str) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    transaction.end(receiver, error=code, description=description)
    assert transaction.ends == [(receiver.index, code, description)]


@pytest.mark.parametrize(
    ("code", "description", "number"),
    [(None, None, 8424), (1, "", 8422), (-1, "x", 8419), (1, "x" * (ERROR_DESCRIPTION_CHARACTERS_MAX + 1), 8419)],
    ids=["neither", "no description", "below 0", "too long"],
)
def test_an_error_without_a_proper_code_and_description_is_refused_behaviour_112(
    pair: Pair, code: int | None, description: str | None, number: int
) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    with pytest.raises(InvalidError) as refused:
        transaction.end(receiver, error=code, description=description)
    assert refused.value.number == number
    assert transaction.ends == []


def test_another_group_is_not_touched(pair: Pair) -> None:
    mine, foreign = pair.receiver(pair.begin("mine")), pair.receiver(pair.begin("foreign"))
    transaction = of(pair.target, mine)
    refusal = f"conversation {foreign.id} does not belong to the group"
    with pytest.raises(DialogNotFound, match=refusal):
        transaction.send(foreign, "reply")
    with pytest.raises(DialogNotFound, match=refusal):
        transaction.end(foreign)
    assert not transaction.sends
    assert not transaction.ends


def test_a_transaction_that_stages_nothing_shares_no_list_that_another_fills(pair: Pair) -> None:
    one, two = pair.receiver(pair.begin("one")), pair.receiver(pair.begin("two"))
    filled, empty = of(pair.target, one), of(pair.target, two)
    filled.send(one, "reply")
    filled.end(one)
    assert ([*empty.sends], [*empty.ends], empty.received) == ([], [], {})


def test_a_member_of_the_group_without_messages_can_be_used(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    pair.home.receive(two)
    transaction = of(pair.home, one)
    assert transaction.members == [one]
    transaction.send(two, "reply")
    transaction.end(two)
    assert transaction.sends == [(two.index, "reply", [b""])]


# ------------------------------------------------------------------------------------------------------ with statement


@pytest.mark.parametrize("fails", [True, False])
def test_a_with_block_commits_or_rolls_back_once(pair: Pair, fails: bool) -> None:
    outcomes: list[bool] = []
    transaction = of(pair.target, pair.receiver(pair.begin()))
    host = transaction._shared.host = Host()
    host.done = lambda _, commits: outcomes.append(commits)
    try:
        with transaction as the_same:
            assert the_same is transaction
            if fails:
                raise RuntimeError("the handler fails")
    except RuntimeError:
        assert fails
    with pytest.raises(InvalidState, match="the transaction is over"), transaction:
        pass
    assert outcomes == [not fails]


def test_messages_are_tuples_that_cannot_be_changed(pair: Pair) -> None:
    (message,) = of(pair.target, pair.receiver(pair.begin()))
    assert isinstance(message, Message)
    with pytest.raises(AttributeError):
        message.body = b"another"  # type: ignore[misc]


def test_error_descriptions_count_towards_the_size_limit_of_a_transaction(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.transaction.transaction.TRANSACTION_BYTES_MAX", 500)
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    transaction.end(one, error=5, description="\N{GRINNING FACE}" * 100)
    assert 400 < transaction.size_bytes <= 500
    with pytest.raises(TransactionTooLarge):
        transaction.end(two, error=5, description="\N{GRINNING FACE}" * 100)
    assert [end.endpoint for end in transaction.ends] == [one.index]


def test_a_finish_and_a_move_count_towards_the_size_limit_of_a_transaction(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = pair.answered("one")
    transaction = of(pair.home, one)
    monkeypatch.setattr("konverse.dialog.transaction.transaction.TRANSACTION_BYTES_MAX", transaction.size_bytes)
    with pytest.raises(TransactionTooLarge):
        transaction.finish(one)
    with pytest.raises(TransactionTooLarge):
        transaction.move(one, UUID(bytes=identifier("another group")))
    assert (transaction.finishes, transaction.moves) == ([], [])


def test_nothing_can_be_done_behind_the_with_block(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    with transaction:
        transaction.send(receiver, "reply")
    over = "the transaction is over: its `with` block has ended"
    with pytest.raises(InvalidState, match=over):
        transaction.send(receiver, "reply")
    with pytest.raises(InvalidState, match=over):
        transaction.end(receiver)
    assert transaction.sends == [(receiver.index, "reply", [b""])]


def test_a_transaction_with_a_completion_callback_is_unusable_outside_its_with_block(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    committed: list[bool] = []
    transaction = of(pair.target, receiver, done=lambda _, commit: committed.append(commit))
    before = "write `with transaction:`"
    with pytest.raises(InvalidState, match=before):
        iter(transaction)
    with pytest.raises(InvalidState, match=before):
        transaction.send(receiver, "reply")
    with pytest.raises(InvalidState, match=before):
        transaction.end(receiver)
    with transaction:
        transaction.send(receiver, "reply")
    assert committed == [True]
    with pytest.raises(InvalidState, match="the transaction is over"):
        iter(transaction)


def test_a_second_block_inside_of_the_first_is_refused_and_that_decides(pair: Pair) -> None:
    outcomes: list[bool] = []
    transaction = of(pair.target, pair.receiver(pair.begin()), done=lambda _, commits: outcomes.append(commits))
    with pytest.raises(InvalidState, match="`savepoint` and `rollback`"), transaction, transaction:
        raise AssertionError
    assert outcomes == [False]


def test_an_argument_that_is_not_a_dialog_is_refused(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    wrong: Any = receiver.id
    refusal = r"works on `message\.dialog`, or on the dialog that its `begin` returns, not on UUID"
    with pytest.raises(BadInput, match=refusal):
        transaction.send(wrong, "reply")
    with pytest.raises(BadInput, match=refusal):
        transaction.end(wrong)


def test_an_iterator_that_is_kept_consumes_nothing_behind_the_with_block(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=4))
    transaction = of(pair.target, receiver)
    with transaction:
        walk = iter(transaction)
        next(walk)
    assert len(list(walk)) == 3
    assert transaction.received == {receiver.index: 1 << 2}
    with pytest.raises(InvalidState, match="the transaction is over"):
        iter(transaction)


def test_a_send_on_none_or_on_a_uuid_is_refused(pair: Pair) -> None:
    nobody: Any = None
    transaction = of(pair.target, pair.receiver(pair.begin()))
    for _ in range(2):
        with pytest.raises(NullHandle, match="not on None"):
            transaction.send(nobody, "reply")
    with pytest.raises(BadInput, match="not on UUID"):
        transaction.send(transaction.dialog.id, "reply")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="message_type must be a str, not list"):
        transaction.send(transaction.dialog, [])  # type: ignore[arg-type]
