"""Behaviours 105 to 133: END, the life of a conversation, and system messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from xml.etree import ElementTree as ET

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.catalog import Catalog
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import ConversationEnded, InvalidError, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import DEFAULT, DIALOG_TIMER, END_DIALOG, ERROR, read_error
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    drain,
    end_at_target,
    fill,
    handle,
    pumped,
    receive,
    sent,
    state_of,
    until,
    work,
)

pytestmark = pytest.mark.stack


def types(messages: list[Message]) -> list[str]:
    return [message.type for message in messages]


def test_105_an_end_reaches_the_peer_which_becomes_disconnected_inbound(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    end_at_target(broker)
    with broker.reader("Orders", timeout=1) as orders:
        list(orders)
        assert state_of(orders, Role.TARGET, dialog) == "DO"
    with broker.reader("Shop") as shop, next(iter(shop)) as transaction:
        assert types(list(transaction)) == [END_DIALOG]
        assert transaction.dialog.state.code == "DI"


def test_106_the_end_comes_after_all_earlier_messages(broker: Broker) -> None:
    dialog = sent(broker, *(b"%d" % number for number in range(20)))
    dialog.end()
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        taken = receive(broker, "Orders", 21)
    assert types(taken) == [ORDER] * 20 + [END_DIALOG]


def test_107_remaining_messages_can_be_received_after_the_peer_has_ended(broker: Broker) -> None:
    """And 108: the end of the disconnected side sends nothing, and closes."""
    dialog = sent(broker, b"0", b"1", b"2")
    dialog.end()
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop), broker.reader("Orders", max_messages=1) as orders:
        fill(orders, 4)
        assert state_of(orders, Role.TARGET, dialog) == "DI"
        bodies = []
        for transaction in orders:
            with transaction:
                (message,) = transaction
                if message.type == END_DIALOG:
                    transaction.end(message.dialog)
                    break
                bodies.append(message.body)
        orders.settle()
        assert bodies == [b"0", b"1", b"2"]
        assert state_of(orders, Role.TARGET, dialog) == ""
        until(lambda: shop.conversations == 0, "the initiator is gone")
    assert drain(broker, "Shop") == []


def test_108_an_end_after_the_peers_sends_nothing_and_closes(broker: Broker) -> None:
    sent(broker, b"0")
    end_at_target(broker)
    with broker.reader("Shop") as shop:
        with next(iter(shop)) as transaction:
            list(transaction)
            transaction.end(transaction.dialog)
        shop.settle()
        assert shop.conversations == 0
    assert drain(broker, "Orders") == []


def test_109_an_end_removes_the_unread_messages_of_its_side(broker: Broker) -> None:
    sent(broker, b"0", b"1", b"2")
    with broker.reader("Orders", max_messages=1) as reader:
        fill(reader, 3)
        with next(iter(reader)) as transaction:
            list(transaction)
            transaction.end(transaction.dialog)
        reader.settle()
    assert drain(broker, "Orders") == []


def test_110_messages_for_a_side_that_has_ended_are_discarded_silently(broker: Broker) -> None:
    """A sender whose peer is gone gets Error -8462: see 121."""
    dialog = sent(broker, b"0")
    end_at_target(broker)
    dialog.send(ORDER, b"late")
    dialog.flush()
    assert drain(broker, "Orders") == []
    assert dialog.bounced() == []


@pytest.mark.parametrize(
    ("code", "description", "number"),
    [
        (None, None, 8424),
        (1, "", 8422),
        (1, None, 8422),
        (None, "a description alone", 8419),
        (0, "no code", 8419),
        (-1, "negative", 8419),
        (2**31, "large", 8419),
        (1, "x" * 3_001, 8419),
        (1, "a\x00b", 8419),
        (1, "a\ud800b", 8419),
    ],
    ids=["nothing", "no text", "null text", "no code", "code 0", "negative", "large", "long", "null", "surrogate"],
)
def test_112_an_error_has_a_positive_code_and_a_description_of_3000_characters_at_most(
    broker: Broker, code: int | None, description: str | None, number: int
) -> None:
    """In part: 8419 for a code below 1, or for a description too long or not allowed in XML, is konverse's own."""
    dialog = sent(broker, b"0")

    def refused(end: Callable[..., object], *which: object) -> None:
        with pytest.raises(InvalidError) as error:
            end(*which, error=code, description=description)
        assert error.value.number == number

    refused(dialog.end)
    refused(broker.operations.end, dialog.id)
    with broker.transaction() as transaction:
        refused(transaction.end, dialog)
    handle(broker, "Orders", lambda transaction: refused(transaction.end, transaction.dialog))
    dialog.send(ORDER)
    dialog.end(error=1, description="x" * 3_000)


def test_113_the_peer_receives_code_and_description_and_is_in_error(broker: Broker) -> None:
    sent(broker, b"0")
    end_at_target(broker, error=4711)
    with broker.reader("Shop") as shop, next(iter(shop)) as transaction:
        (message,) = transaction
        assert (message.type, read_error(message.body)) == (ERROR, (4711, "no more"))
        assert transaction.dialog.state.code == "ER"


def test_114_an_error_after_the_end_of_the_peer_is_not_sent(broker: Broker) -> None:
    sent(broker, b"0")
    end_at_target(broker)
    with broker.reader("Shop") as shop:
        with next(iter(shop)) as transaction:
            list(transaction)
            transaction.end(transaction.dialog, error=1, description="too late")
        shop.settle()
    assert drain(broker, "Orders") == []


def test_115_an_error_is_received_before_messages_that_were_sent_earlier(broker: Broker) -> None:
    """And 116: the messages can still be received."""
    dialog = sent(broker, b"0", b"1")
    dialog.end(error=1, description="never mind")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop), broker.reader("Orders") as orders:
        fill(orders, 2)

        def in_error() -> bool:
            work(orders)
            return state_of(orders, Role.TARGET, dialog) == "ER"

        until(in_error, "the error")
        with next(iter(orders)) as transaction:
            assert types(list(transaction)) == [ERROR, ORDER, ORDER]


def test_117_an_end_in_error_sends_nothing_and_removes_the_endpoint(broker: Broker) -> None:
    sent(broker, b"0")
    end_at_target(broker, error=1)
    with broker.reader("Shop") as shop:
        with next(iter(shop)) as transaction:
            list(transaction)
            transaction.end(transaction.dialog)
        shop.settle()
        assert shop.conversations == 0
    assert drain(broker, "Orders") == []


def test_118_a_second_end_fails(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    with pytest.raises(ZeroDivisionError), broker.transaction() as staged:  # noqa: PT012
        staged.end(dialog)
        with pytest.raises(InvalidState, match="ended or finished in this transaction") as again:
            staged.end(dialog)
        assert again.value.number == 8427
        raise ZeroDivisionError
    with broker.reader("Orders") as reader, next(iter(reader)) as transaction:
        list(transaction)
        transaction.end(transaction.dialog)
        with pytest.raises(InvalidState, match="ended in this transaction") as second:
            transaction.end(transaction.dialog)
        assert second.value.number == 8427


def test_118_an_end_in_a_transaction_after_a_direct_end_fails(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    dialog.end()
    with broker.transaction() as staged, pytest.raises(ConversationEnded, match="ended already") as second:
        staged.end(dialog)
    assert second.value.number == 8427


def test_118_a_second_end_of_a_client_fails_also_where_the_peer_has_ended(broker: Broker) -> None:
    """When the peer has ended, this side must still be ended, once."""
    dialog = sent(broker, b"0")
    end_at_target(broker)
    with broker.reader("Shop") as shop, next(iter(shop)) as transaction:
        assert types(list(transaction)) == [END_DIALOG]
        dialog.end()
        for again in (dialog.end, partial(dialog.end, error=1, description="no more")):
            with pytest.raises(ConversationEnded, match="ended already") as second:
                again()
            assert second.value.number == 8427


def test_119_an_end_that_is_rolled_back_leaves_everything_in_its_place(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    with broker.reader("Orders", timeout=3) as reader:
        with pytest.raises(ZeroDivisionError), next(iter(reader)) as transaction:  # noqa: PT012
            list(transaction)
            transaction.end(transaction.dialog)
            raise ZeroDivisionError
        with next(iter(reader)) as again:
            assert [message.body for message in again] == [b"0"]
            again.send(again.dialog, RECEIPT)
        reader.settle()
        assert state_of(reader, Role.TARGET, dialog) == "CO"


def test_122_a_conversation_stays_in_error_until_it_is_ended(broker: Broker) -> None:
    """By an Error of its peer, or because its lifetime is over."""
    dialog = sent(broker, b"0")
    end_at_target(broker, error=1)
    old = begin(broker, lifetime=0.01)
    assert types(receive(broker, "Shop", 2)) == [ERROR, ERROR]
    with broker.reader("Shop", timeout=1) as shop:
        list(shop)
        assert [state_of(shop, Role.INITIATOR, each) for each in (dialog, old)] == ["ER", "ER"]


def test_128_an_error_for_a_side_that_has_ended_is_dropped(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    dialog.end()
    broker.flush()
    end_at_target(broker, error=1)
    assert drain(broker, "Shop") == []


def test_129_system_messages_have_the_names_of_the_original() -> None:
    namespace = "http://schemas.microsoft.com/SQL/ServiceBroker/"
    assert [namespace + name for name in ("Error", "EndDialog", "DialogTimer")] == [ERROR, END_DIALOG, DIALOG_TIMER]


def test_130_the_body_of_an_end_is_empty_and_that_of_an_error_has_code_and_description(broker: Broker) -> None:
    """And 131: an application's code is positive."""
    one, other = sent(broker, b"0"), sent(broker, b"0")
    one.end()
    other.end(error=5, description="<five> &\r\nmore")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        bodies = {message.type: message.body for message in receive(broker, "Orders", 4)}
    assert bodies[END_DIALOG] == b""
    assert read_error(bodies[ERROR]) == (5, "<five> &\r\nmore")
    assert b"<Code>5</Code>" in bodies[ERROR]
    assert NOTE not in bodies


PRINTED = b"""<?xml version="1.0"?>
<Error xmlns="https://schemas.microsoft.com/SQL/ServiceBroker">
  <Code>12</Code>
  <Description>
    Unknown cost center "127-1000". Please check the cost center list
    and resubmit the report.
  </Description>
</Error>"""
"""The sample of the original's page about system messages."""


def test_130_an_error_is_read_by_programs_that_were_written_for_the_original(broker: Broker) -> None:
    """And 131: by its namespace, as T-SQL does, and by local names alone, like the page's sample."""
    code, description = read_error(PRINTED)
    sent(broker, b"an expense report")
    handle(broker, "Orders", lambda reports: reports.end(reports.dialog, error=code, description=description))
    (error,) = [message for message in receive(broker, "Shop", 1) if message.type == ERROR]
    document, names = (
        ET.fromstring(error.body),
        {"ssb": "http://schemas.microsoft.com/SQL/ServiceBroker/Error"},
    )
    assert document.tag == f"{{{names['ssb']}}}Error"
    assert document.findtext("ssb:Code", "", names) == "12"
    assert "127-1000" in document.findtext("ssb:Description", "", names)
    assert document.findtext("{*}Code") == ET.fromstring(PRINTED).findtext("{*}Code")
    assert document.findtext("{*}Description") == ET.fromstring(PRINTED).findtext("{*}Description")
    assert error.validation == "X"


def test_130_the_sample_of_the_original_crosses_as_a_message_of_well_formed_xml(broker: Broker) -> None:
    broker.admin.create_message_type("//sales/Copy", "WELL_FORMED_XML")
    broker.admin.create_contract("//sales/Copying", {"//sales/Copy": "ANY"})
    broker.admin.alter_service(ORDER_SERVICE, add=["//sales/Copying"])
    dialog = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, "//sales/Copying")
    dialog.send("//sales/Copy", PRINTED)
    broker.flush()
    (copy,) = receive(broker, "Orders", 1)
    assert read_error(copy.body) == read_error(PRINTED)


# -------------------------------------------------------------------------------------- rejections by the receiver


@pytest.fixture
def lenient(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker whose senders' catalog allows everything; receivers use the database's."""
    monkeypatch.setattr(Catalog, "check_send", lambda *_: None)
    return broker


def error_at_home(broker: Broker, message_type: str) -> int:
    """The error code that a sender gets for a message of this type."""
    begin(broker).send(message_type, b"nobody receives it")
    broker.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert drain(broker, "Orders") == []
    return read_error(error.body)[0]


def test_131_codes_of_the_broker_are_below_0_and_those_of_applications_above(lenient: Broker) -> None:
    assert error_at_home(lenient, RECEIPT) == -8457
    sent(lenient, b"0")
    end_at_target(lenient, error=4711)
    (error,) = [message for message in drain(lenient, "Shop") if message.type == ERROR]
    assert read_error(error.body)[0] == 4711


def test_132_a_type_that_the_receiver_does_not_have_is_rejected(lenient: Broker) -> None:
    assert error_at_home(lenient, "nobody has it") == -8428


def test_132_a_type_that_is_not_in_the_receivers_contract_is_rejected(lenient: Broker) -> None:
    assert error_at_home(lenient, DEFAULT) == -8498


def test_133_a_type_that_only_the_target_may_send_is_rejected_there(lenient: Broker) -> None:
    assert error_at_home(lenient, RECEIPT) == -8457


def test_133_a_type_that_only_the_initiator_may_send_is_rejected_at_home(lenient: Broker) -> None:
    begin(lenient).send(ORDER)
    lenient.flush()

    def answer(transaction: Transaction) -> None:
        for message in transaction:
            transaction.send(message.dialog, ORDER, b"nobody receives it")

    handle(lenient, "Orders", answer)
    (at_home,) = receive(lenient, "Shop", 1)
    (at_target,) = receive(lenient, "Orders", 1)
    assert [read_error(each.body)[0] for each in (at_home, at_target)] == [-8437, -8437]
