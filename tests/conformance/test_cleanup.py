"""Behaviours 111, 120, 121, 125 to 127 and 136: premature ends of a conversation, and their traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.bridge.verifier.check import Finding
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import ConversationEnded, DialogNotFound, InvalidState
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, read_error
from konverse.schemas.wire.envelope import HEADER, decode
from konverse.schemas.wire.records import FIRST, Kind
from tests.kit.oracle import RawRecord, read_raw
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    RECEIPT,
    drain,
    end_at_target,
    fill,
    handle,
    pumped,
    queue_of,
    receive,
    sent,
    state_of,
    until,
)

pytestmark = pytest.mark.stack


@contextmanager
def worked(*readers: Reader) -> Iterator[None]:
    """Run these readers, with the orders of operators."""
    owners = [owner for reader in readers for owner in reader.owners]

    def journaled() -> bool:
        return all(owner._journaled_to == owner.fold.state.ingest_to and not owner.committing for owner in owners)

    with pumped(*readers):
        until(journaled, "what they have is in the journal")
        yield


def cleaned(broker: Broker, queue: str) -> None:
    """A handler receives everything and ends WITH CLEANUP."""

    def end(transaction: Transaction) -> None:
        list(transaction)
        transaction.end(transaction.dialog, cleanup=True)

    handle(broker, queue, end)


def test_111_an_end_with_error_sends_only_the_error(broker: Broker) -> None:
    """Messages of earlier transactions are withdrawn too, unless their arrival is known."""
    sent(broker, b"0")

    def refuse(transaction: Transaction) -> None:
        list(transaction)
        transaction.send(transaction.dialog, RECEIPT, b"never")
        transaction.end(transaction.dialog, error=1, description="because")

    handle(broker, "Orders", refuse)
    assert [message.type for message in drain(broker, "Shop")] == [ERROR]


def test_111_a_clients_transaction_sends_only_the_error_too(broker: Broker) -> None:
    dialog = sent(broker, b"0")
    with broker.transaction() as transaction:
        transaction.send(dialog, ORDER, b"never")
        transaction.end(dialog, error=1, description="because")
    broker.flush()
    with broker.reader("Shop") as shop, pumped(shop):
        taken = receive(broker, "Orders", 2)
    assert {(message.type, message.sequence) for message in taken} == {(ERROR, -1), (ORDER, 0)}


def test_120_a_cleanup_removes_the_endpoint_and_its_messages_and_the_peer_gets_nothing(broker: Broker) -> None:
    """Undelivered outputs go too. Messages of the same transaction are not sent."""
    dialog = sent(broker, b"0", b"1")
    with broker.reader("Orders", max_messages=1) as orders:
        fill(orders, 2)
        with next(iter(orders)) as transaction:
            list(transaction)
            transaction.send(transaction.dialog, RECEIPT, b"never")
            transaction.end(transaction.dialog, cleanup=True)
        orders.settle()
        assert orders.conversations == 0
    assert drain(broker, "Orders") == []
    with broker.reader("Shop", timeout=1) as shop:
        assert [message for transaction in shop for message in transaction] == []
        assert state_of(shop, Role.INITIATOR, dialog) == "SO"


def test_120_an_operator_cleans_up_a_conversation_whose_other_side_is_gone(broker: Broker) -> None:
    """Also a side that has ended and waits in vain for its peer."""
    sent(broker, b"0")
    end_at_target(broker)
    dialog = sent(broker, b"1")
    with broker.reader("Orders") as orders:
        fill(orders, 1)
        assert orders.conversations == 2
        with worked(orders):
            broker.operations.end(dialog.id, cleanup=True, queue="Orders")
            with pytest.raises(DialogNotFound):
                broker.operations.end(dialog.id, cleanup=True, queue="Orders")
            (left,) = [row.conversation_id for row in broker.views.conversation_endpoints(queue="Orders")]
            broker.operations.end(left, cleanup=True, queue="Orders")
            until(lambda: orders.conversations == 0, "both are gone")
    with pytest.raises(InvalidState, match="not with both"):
        broker.operations.end(dialog.id, error=1, description="and", cleanup=True)


def test_121_a_later_message_of_the_initiator_gives_it_error_8462(broker: Broker) -> None:
    """And 110: the sender gets the Error, once, and the message itself comes back."""
    dialog = sent(broker, b"0")
    cleaned(broker, "Orders")
    dialog.send(ORDER, b"late")
    dialog.flush()
    with broker.reader("Orders") as orders, pumped(orders):
        (error,) = receive(broker, "Shop", 1)
    assert (error.type, read_error(error.body)[0], error.dialog.id) == (ERROR, -8462, dialog.id)
    assert [bounced.body for bounced in dialog.bounced(timeout=20)] == [b"late"]
    assert verified(broker) == []


def test_121_a_later_message_of_the_target_gives_it_error_8462(broker: Broker) -> None:
    """And 52: the process that began the dialog sends nothing more on it."""
    dialog = sent(broker, b"0", b"1")
    with broker.reader("Orders", max_messages=1) as orders:
        for number in range(2):
            with next(iter(orders)) as transaction:
                assert [message.body for message in transaction] == [b"%d" % number]
                transaction.send(transaction.dialog, RECEIPT, b"receipt")
            orders.settle()
            if not number:
                cleaned(broker, "Shop")
    with pytest.raises(ConversationEnded) as refused:
        dialog.send(ORDER, b"2")
    assert refused.value.number == 8429
    with broker.reader("Shop") as shop, pumped(shop):
        (error,) = receive(broker, "Orders", 1)
    assert (error.type, read_error(error.body)[0]) == (ERROR, -8462)


def verified(broker: Broker) -> list[Finding]:
    """Findings of `konverse verify` in the shop's logs."""
    verification = broker.operations.verification([queue_of(broker, name) for name in ("Orders", "Shop")])
    return verification.run()[1]


def firsts(servers: Servers, broker: Broker, dialog: Dialog) -> list[RawRecord]:
    """The records of message 0 of a dialog in the log of its target."""
    found = []
    for record in read_raw(servers.bootstrap, queue_of(broker, "Orders").topic, 0):
        header = next((value for name, value in record.headers if name == HEADER), None)
        envelope = decode(header or b"")
        if envelope.conversation == dialog.id.bytes and envelope.kind is Kind.MESSAGE and envelope.flags & FIRST:
            found.append(record)
    return found


def replay(servers: Servers, broker: Broker, dialog: Dialog) -> None:
    """Message 0 arrives again, with the same bytes."""
    (first,) = firsts(servers, broker, dialog)
    with Producer({"bootstrap.servers": servers.bootstrap}) as plain:
        plain.produce(queue_of(broker, "Orders").topic, first.value, first.key, 0, headers=[*first.headers])
        plain.flush()
    assert len(firsts(servers, broker, dialog)) == 2


def test_121_a_replay_of_the_first_message_creates_no_endpoint(servers: Servers, broker: Broker) -> None:
    """The original warns of this. Here the writer and counter identify a message, whatever has ended since."""
    dialog = sent(broker, b"0")
    cleaned(broker, "Orders")
    replay(servers, broker, dialog)
    with broker.reader("Orders", timeout=1) as orders:
        assert [message for transaction in orders for message in transaction] == []
        assert orders.conversations == 0


def ended(broker: Broker, *bodies: bytes) -> Dialog:
    """A dialog that both sides have ended, the initiator first (fire and forget)."""
    dialog = sent(broker, *bodies)
    dialog.end()
    broker.flush()
    with broker.reader("Shop") as shop, broker.reader("Orders", timeout=5) as orders, pumped(shop):
        for transaction in orders:
            with transaction:
                if END_DIALOG in [message.type for message in transaction]:
                    transaction.end(transaction.dialog)
                    break
        orders.settle()
        until(lambda: not state_of(shop, Role.INITIATOR, dialog), "the initiator is gone")
    return dialog


def test_125_a_closed_target_is_removed_at_once_and_a_replay_of_its_message_is_ignored(
    servers: Servers, broker: Broker
) -> None:
    """Deviates: the target is not kept for 30 minutes; a replay of message 0 is recognised by its writer, for ever."""
    dialog = ended(broker, b"0")
    with broker.reader("Orders", timeout=1) as orders:
        list(orders)
        assert orders.conversations == 0
    replay(servers, broker, dialog)
    assert drain(broker, "Orders") == []


def test_126_a_target_of_fire_and_forget_is_removed_when_it_ends(broker: Broker) -> None:
    """Deviates: the target does not stay until 30 minutes after its lifetime."""
    ended(broker, b"0", b"1")
    with broker.reader("Orders", timeout=1) as orders:
        list(orders)
        assert orders.conversations == 0


def test_127_a_replay_of_message_0_makes_no_new_conversation(servers: Servers, broker: Broker) -> None:
    """Neither while it lives nor when it is over. A forgotten writer's record is too old to be heard."""
    dialog = sent(broker, b"0")
    replay(servers, broker, dialog)
    assert [message.body for message in drain(broker, "Orders")] == [b"0"]
    over = ended(broker, b"1")
    replay(servers, broker, over)
    with broker.reader("Orders", timeout=1) as orders:
        assert [message for transaction in orders for message in transaction] == []
        assert orders.conversations == 1
        assert orders.ask(0, lambda state: state.statistics.duplicates) == 2


def test_136_all_open_conversations_of_a_database_get_error_9719(broker: Broker) -> None:
    """On both sides, once each. Messages received before can still be received."""
    ended(broker, b"over")
    dialogs = [sent(broker, b"0"), sent(broker, b"1")]
    with broker.reader("Orders", timeout=1) as orders, broker.reader("Shop", timeout=1) as shop:
        fill(orders, 2)
        with pumped(shop):
            until(lambda: shop.conversations == 2, "they have begun at home")
        with worked(orders, shop):
            assert broker.operations.error_broker_conversations() == 2
            until(lambda: [state_of(shop, Role.INITIATOR, each) for each in dialogs] == ["ER", "ER"], "they fail")
            assert broker.operations.error_broker_conversations() == 0
    at_home, at_target = receive(broker, "Shop", 2), receive(broker, "Orders", 4)
    assert [read_error(error.body)[0] for error in at_home] == [-9719, -9719]
    assert sorted(message.type for message in at_target) == sorted([ERROR, ERROR, ORDER, ORDER])
    assert verified(broker) == []
