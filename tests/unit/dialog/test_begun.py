"""Dialogs that a handler begins: with its commit or not at all, in its group or alone."""

from __future__ import annotations

import pytest

from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, DialogNotFound, ForeignGroup, InvalidState, TransactionTooLarge
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import TRANSACTION_BYTES_MAX
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.records import FIRST, Kind
from tests.kit.builders import address_of, identifier
from tests.kit.desk import Desk
from tests.kit.digests import digest


@pytest.fixture
def desk() -> Desk:
    return Desk()


def begin(transaction: Transaction, **clauses: object) -> NewDialog:
    return transaction.begin("store", "depot", "contract", **clauses)  # type: ignore[arg-type]


def test_a_dialog_begun_by_a_handler_and_its_messages_leave_with_the_commit(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    transaction.send(dialog, "pick", b"one")
    transaction.send(dialog, "pick", b"two")
    assert desk.side.outputs(desk.depot.address) == []
    desk.commit(transaction)
    first, second = desk.side.deliver(desk.depot)
    assert (first.kind, first.envelope.flags, first.envelope.sequence) == (Kind.MESSAGE, FIRST, 0)
    assert (second.envelope.flags, second.envelope.sequence, second.body) == (0, 1, b"two")
    endpoint = desk.side.state.endpoint(Role.INITIATOR, dialog.conversation)
    assert endpoint is not None
    assert (endpoint.id, endpoint.state) == (dialog.id, State.CONVERSING)


def test_nothing_of_it_is_left_when_the_handler_fails(desk: Desk) -> None:
    before = digest(desk.side.state)
    desk.pair.begin("an order")
    transaction = desk.take()
    after = digest(desk.side.state)
    dialog = begin(transaction)
    transaction.send(dialog, "pick", b"")
    desk.staging.roll_back(transaction)
    assert transaction.idle
    assert digest(desk.side.state) == after != before
    assert desk.side.state.endpoint(Role.INITIATOR, dialog.conversation) is None


def test_dialogs_of_several_handlers_get_the_places_that_are_free(desk: Desk) -> None:
    """A commit names them by the indexes that they get when it is applied."""
    gone = [desk.pair.begin(f"gone {number}") for number in range(3)]
    for conversation in gone[:2]:  # its index is free again when both sides have ended
        endpoint = desk.pair.receiver(conversation)
        desk.side.receive(endpoint)
        desk.side.end(endpoint)
        desk.side.deliver(desk.pair.home)
        desk.pair.home.end(desk.pair.initiator(conversation))
        desk.pair.home.deliver(desk.side)
    assert len(desk.side.state.free) == 2
    desk.side.state.ready.clear()
    orders = [desk.order("an order")]
    begun = [begin(orders[0]) for _ in range(3)]
    for number, dialog in enumerate(begun):
        orders[0].send(dialog, "pick", str(number).encode())
    orders.append(desk.order("another"))
    begun.append(begin(orders[1]))
    orders[1].send(begun[3], "pick", b"3")
    desk.commit(*orders)
    sent = {one.envelope.conversation: one.body for one in desk.side.outputs(desk.depot.address)}
    assert sent == {dialog.conversation: str(number).encode() for number, dialog in enumerate(begun)}


def test_the_first_message_may_come_later(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction, related_to=transaction.dialog)
    desk.commit(transaction)
    assert desk.side.outputs(desk.depot.address) == []
    desk.pair.send(identifier("an order"), b"", sequence=1)
    transaction = desk.take()
    list(transaction)
    late = transaction.find(dialog.id)
    assert late.state is State.STARTED_OUTBOUND
    transaction.send(late, "pick", b"late")
    desk.commit(transaction)
    (sent,) = desk.side.deliver(desk.depot)
    assert (sent.envelope.flags, sent.body) == (FIRST, b"late")


def test_a_dialog_begun_and_ended_in_one_transaction_is_received_and_forgotten(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    transaction.send(dialog, "pick", b"one")
    transaction.end(dialog)
    with pytest.raises(InvalidState, match="ended in this transaction"):
        transaction.send(dialog, "pick", b"two")
    desk.commit(transaction)
    desk.side.deliver(desk.depot)
    receiver = desk.depot.state.endpoint(Role.TARGET, dialog.conversation)
    assert receiver is not None
    assert desk.depot.receive(receiver) == ["pick", END_DIALOG]
    desk.depot.end(receiver)
    desk.depot.deliver(desk.side)
    assert desk.side.state.endpoint(Role.INITIATOR, dialog.conversation) is None


def test_a_dialog_can_be_finished_in_the_transaction_that_begins_it_after_a_send(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    with pytest.raises(InvalidState, match="nothing was sent"):
        transaction.finish(dialog)
    transaction.send(dialog, "pick", b"one")
    transaction.finish(dialog)
    desk.commit(transaction)
    assert [one.kind for one in desk.side.deliver(desk.depot)] == [Kind.MESSAGE, Kind.FIN]


# ---------------------------------------------------------------------------------------------------------- its group


def test_a_related_dialog_is_locked_and_received_with_the_conversation_of_the_handler_behaviour_35(desk: Desk) -> None:
    """The handler's own side, a target, founds the group."""
    transaction = desk.order()
    dialog = begin(transaction, related_to=transaction.dialog)
    transaction.send(dialog, "pick", b"")
    receiver = transaction.dialog
    desk.commit(transaction)
    desk.answer(dialog)
    desk.pair.send(identifier("an order"), b"", sequence=1)
    transaction = desk.take()
    assert {member.conversation for member in transaction.members} == {receiver.conversation, dialog.conversation}
    assert transaction.dialogs == receiver.members
    assert {member.group_id for member in receiver.members} == {own_group(Role.TARGET, receiver.conversation)}
    assert desk.staging.take() is None


def test_the_target_of_a_conversation_does_not_share_the_group_of_its_initiator() -> None:
    """Both may live in one partition."""
    conversation = identifier("a conversation")
    groups = own_group(Role.INITIATOR, conversation), own_group(Role.TARGET, conversation)
    assert groups[0] == conversation != groups[1]


def test_a_dialog_may_relate_to_another_that_is_begun_with_it(desk: Desk) -> None:
    transaction = desk.order()
    one = begin(transaction)
    two = begin(transaction, related_to=one, key=b"key")
    desk.commit(transaction)
    endpoint = desk.side.state.endpoint(Role.INITIATOR, one.conversation)
    assert endpoint is not None
    assert [member.conversation for member in endpoint.members] == [one.conversation, two.conversation]
    assert not endpoint.held
    assert endpoint.members[1].key == b"key"


def test_a_dialog_without_relation_is_a_group_of_its_own(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    transaction.send(dialog, "pick", b"")
    desk.commit(transaction)
    desk.answer(dialog)
    desk.pair.send(identifier("an order"), b"", sequence=1)
    assert {len(desk.take().members), len(desk.take().members)} == {1}


# ------------------------------------------------------------------------------------------------------------- refusals


def test_a_dialog_of_another_transaction_is_refused_and_says_where_it_is(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    other = desk.order("another")
    for call in (
        lambda: other.send(dialog, "pick", b""),
        lambda: other.end(dialog),
        lambda: begin(other, related_to=dialog),
    ):
        with pytest.raises(DialogNotFound, match=f"{dialog.id} was begun by another transaction.*message.dialog"):
            call()
    with pytest.raises(DialogNotFound, match="does not belong to the group"):
        begin(other, related_to=transaction.dialog)
    with pytest.raises(DialogNotFound, match="does not belong to the group"):
        other.find(dialog.id)
    with pytest.raises(BadInput, match="not on str"):
        begin(other, related_to="dialog")


def test_too_many_dialogs_are_refused(desk: Desk) -> None:
    transaction = desk.order()
    dialog = begin(transaction)
    transaction.size_bytes = TRANSACTION_BYTES_MAX - dialog.size_bytes
    begin(transaction)
    with pytest.raises(TransactionTooLarge):
        begin(transaction)
    assert len(transaction.begins) == 2


def test_a_reader_without_a_catalog_begins_no_dialogs(desk: Desk) -> None:
    desk.staging.context.begin = None
    with pytest.raises(InvalidState, match="begins no dialogs"):
        begin(desk.order())


def test_the_repr_of_a_new_dialog_names_both_services(desk: Desk) -> None:
    dialog = begin(desk.order())
    assert repr(dialog) == f"<NewDialog {dialog.id} store -> depot>"
    assert dialog.begin.target == address_of("depot")


def test_a_dialog_begun_by_a_handler_vanishes_when_a_session_ends_the_conversation_of_the_handler(desk: Desk) -> None:
    conversation = identifier("an order")
    desk.pair.begin("an order")
    desk.side.send(desk.pair.receiver(conversation), b"reply")
    transaction = desk.take()
    list(transaction)
    dialog = begin(transaction)
    transaction.send(dialog, "pick", b"")
    desk.side.end(desk.pair.receiver(conversation))
    desk.commit(transaction)
    assert len(desk.staging.overtaken) == 1
    assert desk.side.state.endpoint(Role.INITIATOR, dialog.conversation) is None


def test_a_group_belongs_to_one_service_behaviour_37(desk: Desk) -> None:
    transaction = desk.order()
    with pytest.raises(ForeignGroup, match="belongs to service 'store', not to 'mill'"):
        transaction.begin("mill", "depot", "contract", related_to=transaction.dialog)
    assert transaction.begin("mill", "depot", "contract").terms.service == "mill"
