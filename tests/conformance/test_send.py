"""Behaviours 44 to 63: SEND."""

from __future__ import annotations

from typing import Any, cast

import pytest

from konverse.bridge.broker import Broker
from konverse.dialog.transaction import Transaction
from konverse.schemas.catalog import DEFAULT
from konverse.schemas.errors import (
    BadInput,
    ConversationEnded,
    InvalidState,
    KonverseError,
    MessageTypeNotFound,
    NotInContract,
    WrongDirection,
)
from tests.kit.shop import NOTE, ORDER, RECEIPT, SHOP_SERVICE, begin, drain, end_at_target, handle, pumped, receive

pytestmark = pytest.mark.stack


def test_045_without_a_type_it_is_default_which_the_contract_must_have(broker: Broker) -> None:
    with pytest.raises(NotInContract) as refused:
        begin(broker).send(body=b"of no type")
    assert refused.value.number == 8431
    broker.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
    assert broker.begin_dialog(SHOP_SERVICE, "//sales/Anything").send(body=b"of the default type") == 0


def test_046_a_type_outside_of_the_contract_and_one_that_nobody_knows_are_refused(broker: Broker) -> None:
    broker.create_message_type("//sales/Complaint")
    dialog = begin(broker)
    with pytest.raises(NotInContract) as outside:
        dialog.send("//sales/Complaint")
    with pytest.raises(MessageTypeNotFound) as unknown:
        dialog.send("//sales/Unheard")
    assert (outside.value.number, unknown.value.number) == (8431, 8428)
    assert dialog.send(ORDER) == 0, "nothing was sent before"


def test_047_each_side_sends_what_the_contract_lets_it(broker: Broker) -> None:
    dialog = begin(broker)
    with pytest.raises(WrongDirection) as initiator:
        dialog.send(RECEIPT)
    assert initiator.value.number == 8432
    dialog.send(ORDER)
    broker.flush()
    with broker.reader("Orders") as reader, next(iter(reader)) as transaction:
        with pytest.raises(WrongDirection, match="target"):
            transaction.send(transaction.dialog, ORDER)
        transaction.send(transaction.dialog, RECEIPT)


def test_048_a_body_may_be_omitted_or_empty_but_is_never_null(broker: Broker) -> None:
    dialog = begin(broker)
    with pytest.raises(BadInput, match="bytes"):
        dialog.send(ORDER, cast("Any", None))
    dialog.send(ORDER)
    dialog.send(ORDER, b"")
    broker.flush()
    assert [message.body for message in receive(broker, "Orders", 2)] == [b"", b""]


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


def test_053_what_a_transaction_sends_is_seen_when_it_commits_and_never_when_it_does_not(broker: Broker) -> None:
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
    """And 55: what was rolled back leaves none."""
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


def test_057_what_was_sent_is_in_the_target_queue_at_once(broker: Broker) -> None:
    dialog = begin(broker)
    dialog.send(ORDER, b"here")
    dialog.flush()
    assert [message.body for message in receive(broker, "Orders", 1)] == [b"here"]


def test_059_one_message_to_several_dialogs_arrives_once_on_each_under_its_own_number(broker: Broker) -> None:
    dialogs = [begin(broker) for _ in range(3)]
    for number, dialog in enumerate(dialogs):
        for _ in range(number):
            dialog.send(NOTE, b"before")
    with broker.transaction() as transaction:
        for dialog in dialogs:
            transaction.send(dialog, ORDER, b"to all")
    broker.flush()
    copies = {m.dialog.id: m.sequence for m in receive(broker, "Orders", 6) if m.body == b"to all"}
    assert copies == {dialog.id: number for number, dialog in enumerate(dialogs)}


def test_060_with_one_bad_dialog_nothing_is_sent_to_any(broker: Broker) -> None:
    good, ended = begin(broker), begin(broker)
    ended.send(NOTE)
    ended.end()
    with pytest.raises(KonverseError), broker.transaction() as transaction:  # noqa: PT012
        transaction.send(good, ORDER)
        transaction.send(ended, ORDER)
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        assert ORDER not in {message.type for message in receive(broker, "Orders", 2)}
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
