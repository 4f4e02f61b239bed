"""Behaviours 216 to 219, and 67: broker priorities and the order of RECEIVE."""

from __future__ import annotations

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP_SERVICE, fill, pumped, receive, until

pytestmark = pytest.mark.stack

RUSH = "//sales/Rush"
SLOW = "//sales/Slow"


@pytest.fixture
def ranked(broker: Broker) -> Broker:
    """The shop with two contracts, one urgent for both sides."""
    for contract, level in ((RUSH, 10), (SLOW, 1)):
        broker.admin.create_contract(contract, {ORDER: "INITIATOR", RECEIPT: "TARGET", NOTE: "ANY"})
        broker.admin.alter_service(ORDER_SERVICE, add=[contract])
        broker.admin.create_broker_priority(f"all of {contract}", contract=contract, level=level)
    return broker


def priorities(broker: Broker, dialog: Dialog) -> dict[bool, int]:
    """Whether the side is the initiator's → its priority."""
    rows = broker.views.conversation_endpoints()
    return {row.is_initiator: row.priority for row in rows if row.conversation_id == dialog.id}


def order(broker: Broker, contract: str, **options: object) -> Dialog:
    """An order under that contract, acknowledged by Kafka."""
    dialog = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, contract, **options)  # type: ignore[arg-type]
    dialog.send(ORDER, contract.encode())
    broker.flush()
    return dialog


def contracts(reader: Reader, count: int) -> list[str]:
    """Contracts of the next groups. Their transactions stay open until the last one."""
    taken: list[Transaction] = [next(reader) for _ in range(count)]
    for transaction in taken:
        with transaction:
            list(transaction)
    return [transaction.dialog.contract for transaction in taken]


def test_216_a_side_keeps_the_priority_of_its_beginning(ranked: Broker) -> None:
    """Deviates: a target's endpoint is created when a reader of its queue takes its first message from the log."""
    expected: dict[Dialog, int] = {}
    for level in (10, 2):
        ranked.admin.alter_broker_priority(f"all of {RUSH}", local_service=ORDER_SERVICE, level=level)
        dialog = order(ranked, RUSH)
        assert [(m.dialog.id, m.priority) for m in receive(ranked, "Orders", 1)] == [(dialog.id, level)]
        expected[dialog] = level
    ranked.admin.drop_broker_priority(f"all of {RUSH}")
    expected[order(ranked, RUSH)] = 5
    for dialog in expected:
        dialog.send(ORDER)
    ranked.flush()
    with ranked.reader("Orders") as reader:  # another owner
        fill(reader, 4)
        assert {dialog: priorities(ranked, dialog)[False] for dialog in expected} == expected
        taken = [next(reader) for _ in expected]
        assert [transaction.dialog.level for transaction in taken] == [10, 5, 2]


def test_216_an_initiator_keeps_the_priority_of_its_begin(ranked: Broker) -> None:
    """Also when no reader has seen the BEGIN before CREATE, ALTER and DROP."""
    dialogs: dict[int, list[Dialog]] = {level: [] for level in (5, 8, 3)}
    dialogs[5].append(order(ranked, ORDERING))
    ranked.admin.create_broker_priority("replies", contract=ORDERING, local_service=SHOP_SERVICE, level=8)
    dialogs[8].append(order(ranked, ORDERING))
    with ranked.transaction() as transaction:
        dialogs[8].append(transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING))
    ranked.admin.alter_broker_priority("replies", level=3)
    dialogs[3].append(order(ranked, ORDERING))
    ranked.admin.drop_broker_priority("replies")
    ranked.flush()
    with ranked.reader("Shop") as replies:
        replies.wait_for_partitions(replies.queue.partitions)

        def known() -> dict[int, list[int | None]] | None:
            """All priorities, once the reader has them."""
            found = {level: [priorities(ranked, one).get(True) for one in ones] for level, ones in dialogs.items()}
            return None if any(None in values for values in found.values()) else found

        with pumped(replies):
            found = until(known, "all dialogs to begin at home")
    assert found == {level: [level] * len(ones) for level, ones in dialogs.items()}


def test_217_the_most_specific_of_the_matching_priorities_applies(ranked: Broker) -> None:
    ranked.admin.create_broker_priority("orders", contract=ORDERING, local_service=ORDER_SERVICE, level=8)
    ranked.admin.create_broker_priority("from the shop", remote_service=SHOP_SERVICE, level=3)
    ranked.admin.create_broker_priority("whatever", level=6)
    dialogs = [order(ranked, contract) for contract in (ORDERING, SLOW)]
    with ranked.reader("Orders") as reader, ranked.reader("Shop") as replies:
        fill(reader, 2)
        replies.wait_for_partitions(1)
        assert [priorities(ranked, dialog) for dialog in dialogs] == [{True: 6, False: 8}, {True: 1, False: 1}]


def test_218_each_side_has_a_priority_of_its_own(ranked: Broker) -> None:
    ranked.admin.create_broker_priority("orders", contract=ORDERING, local_service=ORDER_SERVICE, level=9)
    ranked.admin.create_broker_priority("replies", contract=ORDERING, local_service=SHOP_SERVICE, level=2)
    dialog = order(ranked, ORDERING)
    assert priorities(ranked, dialog) == {True: 2, False: 9}
    (row,) = ranked.views.contents("Orders")
    assert row.priority == 9


def test_219_the_group_of_the_highest_priority_is_received_first(ranked: Broker) -> None:
    for contract in (ORDERING, SLOW, RUSH, ORDERING):
        order(ranked, contract)
    with ranked.reader("Orders") as reader:
        fill(reader, 4)
        assert contracts(reader, 2) == [RUSH, ORDERING]
        order(ranked, RUSH)
        fill(reader, 3)
        assert contracts(reader, 3) == [RUSH, ORDERING, SLOW]


def test_219_only_members_with_messages_count_for_their_group(ranked: Broker) -> None:
    silent = order(ranked, RUSH)
    order(ranked, SLOW, related_to=silent)
    order(ranked, ORDERING)
    with ranked.reader("Orders") as reader, ranked.reader("Shop") as replies:
        fill(reader, 3)
        for _ in range(3):
            with next(reader) as transaction:
                (message,) = transaction
                if message.dialog.contract != RUSH:
                    transaction.send(message.dialog, RECEIPT)
        reader.settle()
        fill(replies, 2)
        assert contracts(replies, 2) == [ORDERING, SLOW]
        replies.settle()
        silent.send(ORDER)
        order(ranked, ORDERING)
        fill(reader, 2)
        for _ in range(2):
            with next(reader) as transaction:
                transaction.send(transaction.dialog, RECEIPT)
                list(transaction)
        reader.settle()
        fill(replies, 2)
        assert contracts(replies, 2) == [RUSH, ORDERING]


def test_067_of_a_group_the_dialog_with_the_higher_priority_comes_first(ranked: Broker) -> None:
    first = order(ranked, SLOW)
    for contract in (ORDERING, RUSH):
        order(ranked, contract, related_to=first)
    with ranked.reader("Orders") as reader, ranked.reader("Shop") as replies:
        fill(reader, 3)
        for _ in range(3):
            with next(reader) as transaction:
                for message in transaction:
                    for _ in range(2):
                        transaction.send(message.dialog, RECEIPT)
        reader.settle()
        fill(replies, 6)
        with next(replies) as transaction:
            received = [message.dialog.contract for message in transaction]
    assert received == [RUSH, RUSH, ORDERING, ORDERING, SLOW, SLOW]
