"""Behaviours 44 to 63: SEND."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import (
    BadInput,
    ConversationEnded,
    DialogNotFound,
    InvalidState,
    KonverseError,
    MessageTypeNotFound,
    NotInContract,
    NullBody,
    NullHandle,
    WrongDirection,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDER_XSD,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    end_at_target,
    handle,
    pumped,
    receive,
    sent,
)

pytestmark = pytest.mark.stack


def test_044_the_first_send_makes_a_conversation_converse(broker: Broker) -> None:
    """In part: the home of a dialog learns of messages that a client sends directly only from the first answer."""
    begin(broker).send(ORDER)
    broker.flush()
    with broker.reader("Orders") as reader:
        with next(iter(reader)) as transaction:
            list(transaction)
            begun = [transaction.begin(ORDER_SERVICE, ORDER_SERVICE, ORDERING) for _ in range(2)]
            transaction.send(begun[1], ORDER)
        reader.settle()

        def states(state: Partition) -> list[str]:
            found = [state.endpoint(Role.INITIATOR, dialog.conversation) for dialog in begun]
            return [endpoint.state.code for endpoint in found if endpoint is not None]

        assert reader.ask(0, states) == ["SO", "CO"]


@pytest.mark.parametrize("ended", [False, True], ids=["its program lives", "its program has ended"])
def test_044_the_first_message_may_come_from_a_handler_of_the_initiator(
    servers: Servers, database: str, broker: Broker, ended: bool
) -> None:
    """A program begins a dialog, sets a timer and sends nothing; a handler sends when the timer rings."""
    with connected(servers.bootstrap, database) as program:
        sent(program, b"another conversation of this session")
        dialog = begin(program)
        dialog.set_timer(0.1)
        program.flush()
        if ended:
            program.close()
        handle(broker, "Shop", lambda transaction: transaction.send(transaction.dialog, ORDER, b"from the handler"))
        if not ended:
            dialog.send(ORDER, b"from the program")
            program.flush()
        received = receive(broker, "Orders", 2 if ended else 3)
    mine = [one for one in received if one.dialog.conversation == dialog.id.bytes]
    assert [one.body for one in mine] == [b"from the handler"] + [b"from the program"] * (not ended)
    assert {one.dialog.role for one in mine} == {Role.TARGET}


def test_045_a_send_without_a_type_uses_default_which_the_contract_must_list(broker: Broker) -> None:
    with pytest.raises(NotInContract) as refused:
        begin(broker).send(body=b"of no type")
    assert refused.value.number == 8431
    broker.admin.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
    assert broker.begin_dialog(SHOP_SERVICE, "//sales/Anything").send(body=b"of the default type") == 0


def test_046_a_type_outside_of_the_contract_and_an_unknown_type_are_refused(broker: Broker) -> None:
    broker.admin.create_message_type("//sales/Complaint")
    dialog = begin(broker)
    with pytest.raises(NotInContract) as outside:
        dialog.send("//sales/Complaint")
    with pytest.raises(MessageTypeNotFound) as unknown:
        dialog.send("//sales/Unheard")
    assert (outside.value.number, unknown.value.number) == (8431, 8428)
    assert dialog.send(ORDER) == 0, "nothing was sent before"


def test_047_each_side_sends_only_message_types_that_the_contract_allows_it(broker: Broker) -> None:
    dialog = begin(broker)
    with pytest.raises(WrongDirection) as initiator:
        dialog.send(RECEIPT)
    assert initiator.value.number == 8432
    dialog.send(ORDER)
    broker.flush()
    with broker.reader("Orders") as reader, next(iter(reader)) as transaction:
        with pytest.raises(WrongDirection, match="target") as target:
            transaction.send(transaction.dialog, ORDER)
        assert target.value.number == 8434
        transaction.send(transaction.dialog, RECEIPT)


def refused_as_null(send: Callable[..., object], *which: object) -> None:
    """Sending None is refused with 8433."""
    with pytest.raises(NullBody, match="None") as null:
        send(*which, None)
    assert null.value.number == 8433


def test_048_a_body_may_be_omitted_or_empty_but_is_never_null(broker: Broker) -> None:
    dialog = begin(broker)
    refused_as_null(dialog.send, ORDER)
    dialog.send(ORDER)
    dialog.send(ORDER, b"")
    broker.flush()

    def reply(transaction: Transaction) -> None:
        assert [message.body for message in transaction] == [b"", b""]
        refused_as_null(transaction.send, transaction.dialog, RECEIPT)

    handle(broker, "Orders", reply)


@pytest.mark.parametrize("validation", ["NONE", "EMPTY", "WELL_FORMED_XML", "VALID_XML"])
@pytest.mark.parametrize("way", ["dialog", "pool", "transaction"])
def test_048_null_is_refused_for_every_validation_and_way_of_sending(broker: Broker, validation: str, way: str) -> None:
    collection = "//sales/Orders" if validation == "VALID_XML" else ""
    if collection:
        broker.admin.create_xml_schema_collection(collection, [ORDER_XSD])
    broker.admin.alter_message_type(ORDER, validation, schema_collection=collection)
    match way:
        case "dialog":
            refused_as_null(begin(broker).send, ORDER)
        case "pool":
            refused_as_null(broker.pool(SHOP_SERVICE, ORDER_SERVICE, ORDERING, end_of_stream=NOTE).send, ORDER)
        case _:
            with broker.transaction() as staged:
                refused_as_null(staged.send, begin(broker), ORDER)
    broker.flush()
    assert drain(broker, "Orders") == []


def test_049_an_unknown_handle_fails(broker: Broker) -> None:
    begin(broker).send(ORDER)
    broker.flush()

    def try_handles(transaction: Transaction) -> None:
        list(transaction)
        with pytest.raises(DialogNotFound) as unknown:
            transaction.send(transaction.find(uuid.uuid4()), RECEIPT)
        assert unknown.value.number == 8426
        with pytest.raises(NullHandle) as null:
            transaction.send(cast("Any", None), RECEIPT)
        assert null.value.number == 8418

    handle(broker, "Orders", try_handles)
    with broker.transaction() as transaction, pytest.raises(NullHandle):
        transaction.send(cast("Any", None), ORDER)
    for dialogs in ([None], [begin(broker), None]):
        with pytest.raises(NullHandle) as null:
            broker.send(cast("Any", dialogs), ORDER)
        assert null.value.number == 8418


@pytest.mark.parametrize("error", [0, 7])
def test_050_nothing_is_sent_on_a_dialog_whose_peer_has_ended_it(broker: Broker, error: int) -> None:
    """And 51: in ERROR as in DISCONNECTED_INBOUND."""
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()
    end_at_target(broker, error)
    with broker.reader("Shop") as reader, next(iter(reader)) as transaction:
        list(transaction)
        assert transaction.dialog.state.code == ("ER" if error else "DI")
        with pytest.raises(InvalidState) as refused:
            transaction.send(transaction.dialog, NOTE)
        assert refused.value.number == 8429
        with pytest.raises(ConversationEnded) as ended:
            dialog.send(ORDER)
        assert ended.value.number == 8429


def test_052_nothing_is_sent_after_ones_own_end(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    dialog.end()
    with pytest.raises(ConversationEnded) as refused:
        dialog.send(ORDER)
    assert refused.value.number == 8429


def test_053_messages_of_a_transaction_are_visible_after_its_commit_and_never_after_a_rollback(broker: Broker) -> None:
    dialog = begin(broker)
    with broker.transaction() as transaction:
        transaction.send(dialog, ORDER, b"committed")
        assert drain(broker, "Orders") == []
    with pytest.raises(ZeroDivisionError), broker.transaction() as transaction:  # noqa: PT012
        transaction.send(dialog, ORDER, b"rolled back")
        raise ZeroDivisionError
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"committed"]
    assert drain(broker, "Orders") == []


def test_054_messages_of_several_transactions_are_numbered_from_0_on_without_holes(broker: Broker) -> None:
    """And 55: rolled-back messages leave none."""
    dialog = begin(broker)
    for number in range(6):
        try:
            with broker.transaction() as transaction:
                transaction.send(dialog, ORDER, b"%d" % number)
                if number % 2:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    broker.flush()
    assert [(m.sequence, m.body) for m in receive(broker, "Orders", 3)] == [(0, b"0"), (1, b"2"), (2, b"4")]


def test_056_transactions_on_one_dialog_come_one_after_the_other(broker: Broker) -> None:
    one, other = begin(broker), begin(broker)
    with broker.transaction() as outer:
        outer.send(one, ORDER, b"outer 0")
        with broker.transaction() as inner:
            for dialog, body in ((one, b"inner 0"), (other, b"other"), (one, b"inner 1")):
                inner.send(dialog, ORDER, body)
        outer.send(one, ORDER, b"outer 1")
    broker.flush()
    taken: dict[uuid.UUID, list[tuple[int, bytes]]] = {one.id: [], other.id: []}
    for message in receive(broker, "Orders", 5):
        taken[message.dialog.id].append((message.sequence, message.body))
    assert taken == {
        one.id: [*enumerate([b"inner 0", b"inner 1", b"outer 0", b"outer 1"])],
        other.id: [(0, b"other")],
    }


def test_057_a_sent_message_is_in_the_target_queue_at_once(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"here")
    dialog.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"here"]


def test_059_one_message_to_several_dialogs_arrives_once_on_each_under_its_own_number(broker: Broker) -> None:
    dialogs = [begin(broker) for _ in range(3)]
    for number, dialog in enumerate(dialogs):
        for _ in range(number):
            dialog.send(NOTE, b"before")
    broker.send(dialogs, ORDER, b"to all")
    broker.flush()
    copies = {m.dialog.id: m.sequence for m in receive(broker, "Orders", 6) if m.body == b"to all"}
    assert copies == {dialog.id: number for number, dialog in enumerate(dialogs)}


def test_060_with_one_bad_dialog_nothing_is_sent_to_any(broker: Broker) -> None:
    good, ended = begin(broker), begin(broker)
    ended.send(NOTE)
    ended.end()
    with pytest.raises(KonverseError):
        broker.send([good, ended], ORDER)
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        assert ORDER not in {message.type for message in receive(broker, "Orders", 2)}
    assert drain(broker, "Orders") == []


def test_061_a_dialog_that_is_named_twice_is_refused(broker: Broker) -> None:
    good, twice = begin(broker), begin(broker)
    for dialogs in ([good, twice, twice], []):
        with pytest.raises(BadInput, match="each of them once"):
            broker.send(dialogs, ORDER)
    broker.flush()
    assert drain(broker, "Orders") == []


def test_062_both_sides_send_whenever_and_however_much_they_like(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER)
    broker.flush()

    def answer(transaction: Transaction) -> None:
        list(transaction)
        for kind in (RECEIPT, NOTE, NOTE, RECEIPT):
            transaction.send(transaction.dialog, kind)

    handle(broker, "Orders", answer)
    for kind in (NOTE, ORDER, ORDER):
        dialog.send(kind)
    broker.flush()
    assert [message.type for message in receive(broker, "Shop", 4)] == [RECEIPT, NOTE, NOTE, RECEIPT]
    assert [message.type for message in receive(broker, "Orders", 3)] == [NOTE, ORDER, ORDER]
