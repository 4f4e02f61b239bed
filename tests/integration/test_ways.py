"""The ways of sending on one side of a dialog: their order among each other, and their errors behind its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import ConversationEnded, InvalidState, OutcomeUnknown
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.records import BounceReason
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    RECEIPT,
    begin,
    connected,
    drain,
    end_at_target,
    handle,
    open_shop,
    receive,
    sent,
    state_of,
    until,
    work,
)

pytestmark = pytest.mark.stack

ROUNDS: Final = 3
PATIENCE_S: Final = 30.0


class Side:
    """The initiator's side of a dialog, and all senders on it."""

    def __init__(self, broker: Broker, reader: Reader, dialog: Dialog) -> None:
        self.broker = broker
        self.reader = reader
        self.dialog = dialog

    def send_directly(self, body: bytes) -> None:
        self.dialog.send(NOTE, body)
        self.dialog.flush()

    def send_in_a_transaction(self, body: bytes) -> None:
        with self.broker.transaction() as transaction:
            transaction.send(self.dialog, NOTE, body)
        self.broker.flush()

    def send_to_several(self, body: bytes) -> None:
        self.broker.send([self.dialog], NOTE, body)
        self.dialog.flush()

    def send_in_a_handler(self, body: bytes) -> None:
        transaction = self.reader.receive(dialog=self.dialog.id, timeout=PATIENCE_S)
        assert transaction is not None, "nothing woke the handler"
        with transaction:
            next(iter(transaction))
            transaction.send(transaction.dialog, NOTE, body)
        self.reader.settle()


Way = Callable[[Side, bytes], None]
WAYS: Final[list[Way]] = [Side.send_directly, Side.send_in_a_transaction, Side.send_to_several, Side.send_in_a_handler]


@pytest.fixture
def broker(servers: Servers, database: str, instance: str) -> Iterator[Broker]:
    with connected(servers.bootstrap, database, instance=instance) as opened:
        open_shop(opened)
        yield opened


def eventually(reader: Reader, condition: Callable[[], bool], what: str) -> None:
    """Let the reader work, without receiving, until the condition holds."""

    def reached() -> bool:
        work(reader)
        return condition()

    until(reached, what)


def woken(broker: Broker, count: int, times: int) -> list[Dialog]:
    """Dialogs whose initiators each have `times` receipts to handle."""
    dialogs = [sent(broker, b"") for _ in range(count)]
    with broker.reader("Orders", timeout=PATIENCE_S) as reader:
        for _, transaction in zip(dialogs, reader, strict=False):
            with transaction:
                (message,) = transaction
                for _ in range(times):
                    transaction.send(message.dialog, RECEIPT)
        reader.settle()
    return dialogs


def test_flushed_messages_of_every_sending_method_arrive_before_later_messages_of_every_other(broker: Broker) -> None:
    expected: dict[bytes, list[bytes]] = {}
    pairs = [*product(WAYS, repeat=2)]
    dialogs = woken(broker, len(pairs), 2 * ROUNDS)
    with broker.reader("Shop", max_messages=1) as reader:
        for ways, dialog in zip(pairs, dialogs, strict=True):
            side = Side(broker, reader, dialog)
            bodies = expected.setdefault(side.dialog.id.bytes, [])
            for number in range(ROUNDS):
                for place, way in enumerate(ways):
                    bodies.append(b"%d %d " % (number, place) + way.__name__.encode())
                    way(side, bodies[-1])
    arrived: dict[bytes, list[bytes]] = {}
    for message in receive(broker, "Orders", sum(map(len, expected.values()))):
        arrived.setdefault(message.dialog.conversation, []).append(message.body)
    assert arrived == expected


def test_a_flush_fails_while_no_transmitter_sends_the_messages_of_a_transaction(
    servers: Servers, database: str, instance: str
) -> None:
    with connected(servers.bootstrap, database, instance=instance, transmit=False) as broker:
        open_shop(broker)
        dialog, other = sent(broker, b"0"), sent(broker, b"0")
        with broker.transaction() as transaction:
            transaction.send(dialog, ORDER, b"1")
        for flush in (broker.flush, dialog.flush):
            with pytest.raises(OutcomeUnknown, match="konverse transmit"):
                flush(1.0)
        other.flush()
        with connected(servers.bootstrap, database, instance=instance) as helper, helper.transmitter() as transmitter:
            eventually(transmitter, lambda: _flushes(broker), "the outputs of the transaction")
        dialog.flush()
        assert [message.body for message in receive(broker, "Orders", 3) if message.dialog.id == dialog.id] == [
            b"0",
            b"1",
        ]


def _flushes(broker: Broker) -> bool:
    try:
        broker.flush(0.1)
    except OutcomeUnknown:
        return False
    return True


@pytest.mark.parametrize(("error", "state"), [(0, "DI"), (7, "ER")])
def test_050_every_way_of_sending_is_refused_after_an_unreceived_end_of_the_peer(
    broker: Broker, error: int, state: str
) -> None:
    """And 51. A direct send, a client's transaction, a message to several dialogs, a handler."""
    dialogs = [sent(broker, b"0") for _ in WAYS]
    for _ in dialogs:
        end_at_target(broker, error)
    with broker.reader("Shop") as reader:
        for way, dialog in zip(WAYS, dialogs, strict=True):
            eventually(reader, lambda: state_of(reader, Role.INITIATOR, dialog) == state, "the end")  # noqa: B023  # called here
            with pytest.raises((ConversationEnded, InvalidState)) as refused:
                way(Side(broker, reader, dialog), b"1")
            assert refused.value.number == 8429, way.__name__


@pytest.mark.parametrize("error", [0, 7])
@pytest.mark.parametrize("returning", [True, False])
@pytest.mark.parametrize("way", [Side.send_directly, Side.send_in_a_transaction])
def test_050_a_message_sent_after_an_unseen_end_bounces_or_its_sender_receives_the_end(  # fixtures
    broker: Broker, servers: Servers, database: str, instance: str, *, error: int, returning: bool, way: Way
) -> None:
    """Another process reads the queue, so the sender cannot know of the Error or EndDialog in it (and 110)."""
    dialog = begin(broker, returning=returning)
    dialog.send(ORDER, b"0")
    dialog.flush()
    with connected(servers.bootstrap, database, instance=instance) as elsewhere:
        end_at_target(elsewhere, error)
        with elsewhere.reader("Shop") as reader:
            eventually(reader, lambda: bool(state_of(reader, Role.INITIATOR, dialog)), "the dialog at home")
            eventually(reader, lambda: state_of(reader, Role.INITIATOR, dialog) in {"DI", "ER"}, "the end")
            way(Side(broker, reader, dialog), b"1")
            if not returning:
                assert _received(reader, dialog) == [ERROR if error else END_DIALOG]
                return
            with elsewhere.reader("Orders") as target:
                eventually(target, lambda: _came_back(reader, dialog), "what came back")
    (back,) = dialog.bounced(timeout=PATIENCE_S)
    assert (back.body, back.reason) == (b"1", BounceReason.PEER_ENDED)


@pytest.mark.parametrize("error", [0, 7])
@pytest.mark.parametrize("returning", [True, False])
def test_050_a_message_sent_by_a_handler_in_another_process_after_an_unseen_end_is_reported_only_by_the_end(  # fixtures
    broker: Broker, servers: Servers, database: str, instance: str, *, error: int, returning: bool
) -> None:
    """And 110. Only the EndDialog or Error shows it: `returning` covers messages of the session, none of a handler."""
    dialog = begin(broker, returning=returning)
    dialog.send(ORDER, b"0")
    dialog.flush()
    _answer_one(broker)
    dialog.send(ORDER, b"1")
    dialog.flush()
    with (
        connected(servers.bootstrap, database, instance=instance) as elsewhere,
        elsewhere.reader("Shop") as reader,
    ):
        transaction = reader.receive(dialog=dialog.id, timeout=PATIENCE_S)
        assert transaction is not None
        with transaction:
            assert [message.type for message in transaction] == [RECEIPT]
            end_at_target(broker, error)
            transaction.send(transaction.dialog, NOTE, b"2")
        reader.settle()
        assert _received(reader, dialog) == [ERROR if error else END_DIALOG]
        assert drain(broker, "Orders") == []
        assert dialog.bounced() == []


def _answer_one(broker: Broker) -> None:
    def answer(transaction: Transaction) -> None:
        (message,) = transaction
        transaction.send(message.dialog, RECEIPT)

    handle(broker, "Orders", answer)


def _received(home: Reader, dialog: Dialog) -> list[str]:
    """Types of the next messages of a dialog."""
    transaction = home.receive(dialog=dialog.id, timeout=PATIENCE_S)
    assert transaction is not None
    with transaction:
        return [message.type for message in transaction]


def _came_back(home: Reader, dialog: Dialog) -> bool:
    work(home)
    return bool(dialog.bounced())
