"""A handler's calls on a conversation group, and the errors of invalid ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from konverse.dialog.state.endpoint import Clock
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, BodyTooLarge, NotInContract, TransactionTooLarge
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, ERROR
from tests.kit.builders import Pair, log_of, of, record
from tests.kit.digests import digest


@pytest.fixture
def pair() -> Pair:
    return Pair()


def seen(transaction: Transaction) -> list[tuple[bytes, str, int]]:
    return [(message.dialog.conversation, message.type, message.sequence) for message in transaction]


def bodies(transaction: Transaction) -> list[bytes]:
    return [body for _, _, run in transaction.sends for body in run]


# --------------------------------------------------------------------------------------------------------- receiving


def test_messages_come_in_their_order_with_their_numbers(pair: Pair) -> None:
    conversation = pair.begin(messages=3)
    transaction = of(pair.target, pair.receiver(conversation))
    assert [(message.sequence, message.body) for message in transaction] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert len(transaction) == 3


def test_sequence_numbers_continue_after_the_previous_transaction_behaviour_66(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.target.receive(pair.receiver(conversation))
    for number in (2, 3):
        pair.send(conversation, sequence=number)
    assert [message.sequence for message in of(pair.target, pair.receiver(conversation))] == [2, 3]


def test_conversations_of_a_group_come_one_after_the_other_behaviour_67(pair: Pair) -> None:
    one, two = pair.answered("one", "two", messages=2)
    assert seen(of(pair.home, one)) == [
        (one.conversation, "reply", 0),
        (one.conversation, "reply", 1),
        (two.conversation, "reply", 0),
        (two.conversation, "reply", 1),
    ]


def test_an_error_comes_first_and_has_no_number_behaviour_115(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (4, "no"))
    pair.home.deliver(pair.target)
    transaction = of(pair.target, pair.receiver(conversation))
    assert seen(transaction) == [(conversation, ERROR, -1), (conversation, "order", 0), (conversation, "order", 1)]
    assert len(transaction) == 3


@pytest.mark.parametrize(("taken", "position"), [(0, None), (1, 1 << 2), (2, 2 << 2), (3, 3 << 2)])
def test_only_iterated_messages_are_consumed(pair: Pair, taken: int, position: int | None) -> None:
    receiver = pair.receiver(pair.begin(messages=3))
    transaction = of(pair.target, receiver)
    for _, _ in zip(range(taken), transaction, strict=False):
        pass
    assert transaction.received == ({} if position is None else {receiver.index: position})


def test_an_error_alone_is_consumed_alone(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    pair.end_call(conversation, (4, "no"))
    pair.home.deliver(pair.target)
    receiver = pair.receiver(conversation)
    transaction = of(pair.target, receiver)
    messages = iter(transaction)
    next(messages)
    assert transaction.received == {receiver.index: 0 << 2 | 1}
    next(messages)
    assert transaction.received == {receiver.index: 1 << 2 | 1}


def test_a_transaction_sees_only_messages_that_had_arrived_when_it_was_created(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    transaction = of(pair.target, pair.receiver(conversation))
    pair.send(conversation, sequence=2)
    assert [message.sequence for message in transaction] == [0, 1]


def test_iterating_changes_no_state(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    before = digest(pair.target.state)
    transaction = of(pair.target, pair.receiver(conversation))
    list(transaction)
    transaction.send(pair.receiver(conversation), "reply", b"body")
    transaction.end(pair.receiver(conversation))
    assert digest(pair.target.state) == before


def test_a_transaction_that_was_cleared_stages_nothing(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=2))
    transaction = of(pair.target, receiver)
    list(transaction)
    transaction.send(receiver, "reply", b"body")
    transaction.end(receiver)
    transaction.clear()
    assert ([*transaction.sends], [*transaction.ends], transaction.received) == ([], [], {})
    assert transaction.size_bytes == 0
    transaction.send(receiver, "another", b"one")
    assert transaction.sends == [(receiver.index, "another", [b"one"])]
    transaction.clear()
    assert [message.sequence for message in transaction] == [0, 1]


def test_members_are_the_endpoints_whose_messages_are_there(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    assert transaction.members == [one, two]
    assert transaction.dialog is one


# ----------------------------------------------------------------------------------------------------------- messages


def test_the_id_of_a_message_is_its_place_and_stays_when_it_is_received_again(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=2))
    first, again = ([message.id for message in of(pair.target, receiver)] for _ in range(2))
    incarnation = "-".join(log_of().incarnation.hex()[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    assert first == again == [f"{incarnation}/0/0", f"{incarnation}/0/1"]


@pytest.mark.parametrize("headers", [None, [("trace", b"1"), ("trace", b"2")]])
def test_a_message_has_the_headers_set_by_its_sender(pair: Pair, headers: list[tuple[str, bytes]] | None) -> None:
    endpoint = pair.receiver(pair.begin())
    endpoint.queue = [(0, "order", *record(b"", headers=headers))]
    (message,) = of(pair.target, endpoint)
    assert message.headers == (headers or [])


def test_the_time_of_a_message_is_kafkas(pair: Pair) -> None:
    endpoint = pair.receiver(pair.begin())
    endpoint.queue = [(0, "order", *record(b"", time_ms=1_700_000_000_123))]
    (message,) = of(pair.target, endpoint)
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


def test_a_message_without_a_body_has_an_empty_one(pair: Pair) -> None:
    endpoint = pair.receiver(pair.begin())
    endpoint.queue = [(0, "order", *record(None))]
    (message,) = of(pair.target, endpoint)
    assert message.body == b""


def test_the_repr_of_a_message_omits_its_body(pair: Pair) -> None:
    endpoint = pair.receiver(pair.begin())
    endpoint.queue = [(7, "order", *record(b"a secret"))]
    (message,) = of(pair.target, endpoint)
    assert repr(message) == f"<Message order #0 of {endpoint.id}, 8 bytes>"
    assert (message.offset, message.type, message.dialog) == (7, "order", endpoint)


# ------------------------------------------------------------------------------------------------------------ sending


def test_sends_are_staged_in_call_order(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    transaction.send(two, "a", b"1")
    transaction.send(one, "b", b"2")
    transaction.send(one, "b", b"3")
    transaction.send(two, "a")
    assert transaction.sends == [(two.index, "a", [b"1"]), (one.index, "b", [b"2", b"3"]), (two.index, "a", [b""])]


class Subclass(bytes):
    """Like numpy's bytes."""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, Subclass])
def test_a_body_is_kept_as_bytes(pair: Pair, kind: Any) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    transaction.send(receiver, "reply", kind(b"body"))
    assert bodies(transaction) == [b"body"]
    assert type(bodies(transaction)[0]) is bytes


@pytest.mark.parametrize(("body", "kind"), [("text", "str"), (7, "int"), ([1], "list")])
def test_a_body_that_is_not_bytes_is_refused(pair: Pair, body: Any, kind: str) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    with pytest.raises(BadInput, match=f"bytes, not {kind}; encode it first"):
        transaction.send(receiver, "reply", body)
    assert transaction.sends == []


def test_the_rule_is_asked_for_the_side_the_contract_and_the_type(pair: Pair) -> None:
    asked: list[tuple[str, Role, str]] = []
    conversation = pair.begin()
    receiver = pair.receiver(conversation)
    transaction = of(pair.target, receiver, rule=lambda *question: asked.append(question))
    for message_type in ("a", "a", "b", "a"):
        transaction.send(receiver, message_type)
    assert {*asked} == {("orders", Role.TARGET, "a"), ("orders", Role.TARGET, "b")}


def test_a_send_forbidden_by_the_rule_is_not_staged(pair: Pair) -> None:
    def forbids(contract: str, _role: Role, message_type: str) -> None:
        if message_type == "forbidden":
            raise NotInContract(f"{message_type} is not in {contract}")

    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver, rule=forbids)
    transaction.send(receiver, "allowed")
    for _ in range(2):
        with pytest.raises(NotInContract):
            transaction.send(receiver, "forbidden")
    assert transaction.sends == [(receiver.index, "allowed", [b""])]


def test_a_body_of_the_largest_size_can_be_sent_and_one_byte_more_cannot(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    transaction.send(receiver, "reply", bytes(BODY_BYTES_MAX))
    with pytest.raises(BodyTooLarge, match=f"{BODY_BYTES_MAX + 1} bytes; at most {BODY_BYTES_MAX}"):
        transaction.send(receiver, "reply", bytes(BODY_BYTES_MAX + 1))
    assert len(bodies(transaction)) == 1


def test_the_error_for_a_transaction_too_large_for_one_commit_names_the_remedy(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    fitting = TRANSACTION_BYTES_MAX // BODY_BYTES_MAX
    for _ in range(fitting):
        transaction.send(receiver, "reply", bytes(BODY_BYTES_MAX))
    with pytest.raises(TransactionTooLarge, match=f"at most {TRANSACTION_BYTES_MAX} fit into one commit.*max_messages"):
        transaction.send(receiver, "reply", bytes(BODY_BYTES_MAX))
    assert len(bodies(transaction)) == fitting
    assert transaction.size_bytes <= TRANSACTION_BYTES_MAX


def test_many_messages_without_a_body_fill_a_transaction_too(pair: Pair) -> None:
    """Each needs an entry in the columns of a commit."""
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    transaction.send(receiver, "reply")
    assert transaction.size_bytes >= 14


def test_a_refused_size_takes_no_room(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    transaction = of(pair.target, receiver)
    transaction.send(receiver, "reply", b"before")
    before = transaction.size_bytes
    for _ in range(10):
        with pytest.raises(BodyTooLarge):
            transaction.send(receiver, "reply", bytes(BODY_BYTES_MAX + 1))
    assert transaction.size_bytes == before
    transaction.send(receiver, "reply", b"sorry")
    assert bodies(transaction) == [b"before", b"sorry"]


# ------------------------------------------------------------------------------------------------------- RECEIVE again


def numbers(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(message.sequence, message.body) for message in messages]


def test_messages_that_arrive_meanwhile_are_received_by_the_same_transaction_behaviour_73(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    receiver = pair.receiver(conversation)
    transaction = of(pair.target, receiver)
    walk = iter(transaction)
    assert next(walk).sequence == 0
    pair.send(conversation, b"2", sequence=2)
    assert numbers(transaction.receive()) == [(1, b"1"), (2, b"2")]
    assert [*walk] == [], "an iteration of before is over"
    assert transaction.receive() == []
    assert transaction.received == {receiver.index: 3 << 2}


def test_top_n_may_be_asked_again_behaviour_65(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin(messages=3))
    transaction = of(pair.target, receiver)
    assert numbers(transaction.receive(2)) == [(0, b"0"), (1, b"1")]
    assert transaction.received == {receiver.index: 2 << 2}
    assert numbers(transaction.receive(2)) == [(2, b"2")]
    assert not transaction.idle
    with pytest.raises(BadInput, match="not 0"):
        transaction.receive(0)
    transaction.clear()
    assert transaction.idle


@pytest.mark.parametrize("count", range(1, 6))
def test_exactly_the_messages_of_an_iteration_are_received_whatever_came_meanwhile(pair: Pair, count: int) -> None:
    """A timer rings and messages come on both conversations; a part of what was iterated is received."""
    one, two = pair.answered("one", "two", messages=2)
    pair.home.state.clocks.set(two, Clock(1))
    pair.home.state.now_ms = 1
    pair.home.commit()
    transaction = of(pair.home, one)
    seen = list(transaction)
    assert [message.dialog for message in seen] == [one, one, two, two, two]
    for conversation in (one.conversation, two.conversation):
        pair.target.send(pair.receiver(conversation), b"later")
    pair.target.deliver(pair.home)
    pair.home.state.clocks.set(one, Clock(1))
    pair.home.commit()
    assert one.rings
    transaction.clear()
    transaction.receive_only(seen[:count])
    left = [(message.dialog, message.type, message.sequence) for message in transaction.receive()]
    wanted = [(one, DIALOG_TIMER, -1), *((one, "reply", number) for number in range(3))]
    wanted += [(two, DIALOG_TIMER, -1), *((two, "reply", number) for number in range(3))]
    gone = [(message.dialog, message.type, message.sequence) for message in seen[:count]]
    assert left == [message for message in wanted if message not in gone]


def test_a_send_without_a_type_is_one_of_the_default_type_behaviour_45(pair: Pair) -> None:
    transaction = of(pair.target, pair.receiver(pair.begin()))
    transaction.send(transaction.dialog, body=b"x")
    assert [send[1:] for send in transaction.sends] == [(DEFAULT, [b"x"])]


def test_an_error_that_comes_meanwhile_is_received_first(pair: Pair) -> None:
    conversation = pair.begin(messages=2)
    receiver = pair.receiver(conversation)
    transaction = of(pair.target, receiver)
    assert numbers(transaction.receive(1)) == [(0, b"0")]
    pair.end_call(conversation, (4, "no"))
    pair.home.deliver(pair.target)
    assert [message.sequence for message in transaction.receive()] == [-1, 1]
    assert transaction.received == {receiver.index: 2 << 2 | 1}


def test_conversations_of_the_group_that_had_nothing_are_received_too(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    pair.home.receive(two)
    transaction = of(pair.home, one)
    assert transaction.members == [one]
    pair.target.send(pair.receiver(two.conversation), b"1")
    pair.target.deliver(pair.home)
    assert [message.dialog for message in transaction.receive(1)] == [one]
    assert [message.dialog for message in transaction.receive(1)] == [two]
    assert transaction.received == {one.index: 1 << 2, two.index: 2 << 2}


def test_consecutive_sends_with_equal_type_names_on_one_dialog_form_one_run(pair: Pair) -> None:
    """As every fold sees it: an owner's state is the fold of its log, byte by byte (I3)."""
    one, two = pair.answered("one", "two")
    transaction = of(pair.home, one)
    transaction.send(one, "order", b"0")
    transaction.finish(two)
    transaction.send(one, str(b"order", "ascii"), b"1")
    transaction.send(one, "note", b"2")
    transaction.send(one, "order", b"3")
    assert transaction.sends == [
        (one.index, "order", [b"0", b"1"]),
        (one.index, "note", [b"2"]),
        (one.index, "order", [b"3"]),
    ]
