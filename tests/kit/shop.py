"""The shop of the integration tests: it sends orders and receives receipts."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from confluent_kafka import TopicPartition

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.reader.reader import Reader
from konverse.dialog.transaction.received import Message
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import SteppedDown
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.moving import send_away

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
NOTE: Final = "//sales/Note"
ORDERING: Final = "//sales/Ordering"
ORDER_SERVICE: Final = "//sales/OrderService"
SHOP_SERVICE: Final = "//sales/ShopService"

ORDER_XSD: Final = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="order"><xs:complexType><xs:sequence>
    <xs:element name="pieces" type="xs:positiveInteger"/>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"""
"""Schema of an order in XML."""

DEADLINE_S: Final = 60.0
"""Default deadline of conditions; generous, because the machine may be busy."""

SHARE_S: Final = 10.0
"""Time within which a consumer group gives a reader its partitions."""

Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str, deadline_s: float = DEADLINE_S) -> Value:
    """Poll until `condition` returns a true value, and return it. AssertionError names `what` after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {deadline_s} s"
        time.sleep(0.02)
    return value


@contextmanager
def connected(bootstrap: str, database: str, **settings: Any) -> Iterator[Broker]:
    """A broker connection that is closed afterwards."""
    with konverse.connect(f"kafka://{bootstrap}", database=database, **settings) as broker:
        yield broker


def open_shop(
    broker: Broker,
    *,
    partitions: int = 1,
    home_partitions: int = 1,
    keep: timedelta | None = None,
    home_keep: timedelta | None = None,
) -> None:
    """Create queue Orders with the order service, and queue Shop with the shop's service."""
    for name in (ORDER, RECEIPT, NOTE):
        broker.admin.create_message_type(name)
    broker.admin.create_contract(ORDERING, {ORDER: "INITIATOR", RECEIPT: "TARGET", NOTE: "ANY"})
    broker.admin.create_queue("Orders", partitions=partitions, keep=keep)
    broker.admin.create_queue("Shop", partitions=home_partitions, keep=home_keep)
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
    broker.admin.create_service(SHOP_SERVICE, queue="Shop")


def begin(broker: Broker, **options: Any) -> Dialog:
    """Begin a dialog from the shop to the order service."""
    return broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING, **options)


def begin_and_end_two(broker: Broker) -> Dialog:
    """Begin two dialogs of one group, send an order on each and end both. Returns the first."""
    first = begin(broker)
    for dialog in (first, begin(broker, related_to=first)):
        dialog.send(ORDER)
        dialog.end()
    broker.flush()
    return first


def set_clock(broker: Broker, hours: int) -> None:
    """Stamp the records of this process's session with a time that is wrong by `hours` hours."""
    sender = broker._client.open_sender()
    produce = sender._producer.produce

    def stamped(*arguments: Any) -> None:
        topic, body, key, partition, failed, partitioner, _, headers = arguments
        stamp_ms = round((time.time() + 3600 * hours) * 1000)
        produce(topic, body, key, partition, failed, partitioner, stamp_ms, headers)

    sender._producer.produce = stamped


def sent(broker: Broker, *bodies: bytes) -> Dialog:
    """A dialog with these messages, acknowledged by Kafka."""
    dialog = begin(broker)
    for body in bodies:
        dialog.send(ORDER, body)
    dialog.flush()
    return dialog


def state_of(reader: Reader, role: Role, dialog: Dialog) -> str:
    """The state code of one side in the reader's partitions; empty when it is not there."""
    found = [
        reader.ask(owner.identity.partition, lambda state: state.endpoint(role, dialog.id.bytes))
        for owner in reader.owners
    ]
    return next((endpoint.state.code for endpoint in found if endpoint is not None), "")


def send_orders(broker: Broker, *, dialogs: int, messages: int, **options: Any) -> dict[bytes, list[bytes]]:
    """Send `messages` orders in turn on `dialogs` dialogs and flush. Returns the bodies by conversation."""
    opened = [begin(broker, **options) for _ in range(dialogs)]
    sent: dict[bytes, list[bytes]] = {dialog.id.bytes: [] for dialog in opened}
    for number in range(messages):
        dialog = opened[number % dialogs]
        body = b"order %d" % number
        dialog.send(ORDER, body)
        sent[dialog.id.bytes].append(body)
    broker.flush()
    return sent


def receive(broker: Broker, queue: str, count: int, **options: Any) -> list[Message]:
    """Consume exactly `count` messages; AssertionError when fewer arrive in time."""
    taken: list[Message] = []
    options.setdefault("timeout", DEADLINE_S)
    with broker.reader(queue, **options) as reader:
        for transaction in reader:
            with transaction:
                taken += transaction
            if len(taken) >= count:
                break
    assert len(taken) == count, f"{len(taken)} messages of {count}: {taken}"
    return taken


def handle(broker: Broker, queue: str, handler: Callable[[Transaction], Value]) -> Value:
    """Handle the first transaction of a queue, commit and settle it. Returns the handler's result."""
    with broker.reader(queue) as reader:
        with next(iter(reader)) as transaction:
            value = handler(transaction)
        reader.settle()
    return value


def end_at_target(broker: Broker, error: int = 0, description: str = "no more") -> None:
    """The order service takes its first transaction and ends the dialog."""

    def end(transaction: Transaction) -> None:
        list(transaction)
        transaction.end(transaction.dialog, error=error, description=description if error else "")

    handle(broker, "Orders", end)


def work(reader: Reader) -> None:
    """Advance the reader, commit what is finished, and fetch, even when messages already wait to be taken."""
    reader.keep_up()
    reader._advance()
    with (turn := threading.Lock()):
        reader._pumping.take(turn)
        if not reader.closed:
            reader._assignment.fetch(0.01)


def living(reader: Reader) -> int:
    """Number of conversations in the reader's partitions, after some work."""
    reader.keep_up()
    return reader.conversations


def wait_for_a_share(reader: Reader, partitions: int = 0) -> None:
    """Wait until the reader has a share. After a killed reader, that takes until the group notices the death."""
    with suppress(SteppedDown):
        reader.wait_for_partitions(1, SHARE_S)
    reader.wait_for_partitions(partitions)


def relocate(reader: Reader, conversation: uuid.UUID, partition: int) -> bool:
    """Let the owners move the sides of a conversation to another partition of the queue. False when no side moves."""
    with reader._lock:
        goes = [
            send_away(owner, endpoint, replace(owner.fold.state.address, partition=partition))
            for owner, endpoint in reader.operations.sides(conversation)
        ]
    return any(goes)


def fill(reader: Reader, count: int) -> None:
    """Let the reader fetch until at least `count` messages wait for its transactions."""

    def waiting() -> bool:
        work(reader)
        return sum(owner.fold.state.unread for owner in reader.owners) >= count

    until(waiting, f"{count} messages in {reader.queue.name}")


def drain(broker: Broker, queue: str, quiet_s: float = 1.0, **options: Any) -> list[Message]:
    """Consume until nothing has come for `quiet_s`."""
    taken: list[Message] = []
    with broker.reader(queue, timeout=quiet_s, **options) as reader:
        for transaction in reader:
            with transaction:
                taken += transaction
    return taken


def answer(reader: Reader, body: Callable[[Message], bytes] = lambda message: b"re " + message.body) -> int:
    """Answer every order until the reader ends, and end dialogs that the peer ended. Returns the number of answers."""
    answered = 0
    for transaction in reader:
        with transaction:
            for message in transaction:
                if message.type in (END_DIALOG, ERROR):
                    transaction.end(message.dialog)
                else:
                    transaction.send(message.dialog, RECEIPT, body(message))
                    answered += 1
    return answered


def answer_once(reader: Reader) -> int:
    """Answer every order with a unique body."""
    return answer(reader, lambda _: uuid.uuid4().bytes)


@contextmanager
def pumped(*readers: Reader) -> Iterator[None]:
    """Run readers in threads while the block runs. Messages that they fetch stay in the queue."""
    stop = threading.Event()

    def go_on(reader: Reader) -> None:
        while not stop.is_set():
            work(reader)

    with ThreadPoolExecutor(len(readers)) as pool:
        done = [pool.submit(go_on, reader) for reader in readers]
        try:
            yield
        finally:
            stop.set()
    for future in done:
        future.result()


def standing(reader: Reader) -> str:
    """A reader's partitions, owners and positions, as text for a failure message."""
    share, topic = reader._assignment, reader.queue.topic
    logs = [TopicPartition(topic, number) for number in range(reader.queue.partitions)]
    ends = [share.consumer.get_watermark_offsets(place, 5.0) for place in logs]
    places = [(place.partition, place.offset) for place in share.consumer.position(share.consumer.assignment())]
    owners = [
        f"{number}: {owner.phase.name}, read to {owner.fold.data_to} and ingested to {owner.fold.state.ingest_to}, "
        f"{owner.fold.state.unread} unread, committing: {owner.committing}"
        for number, owner in reader._driver.owners.items()
    ]
    claims = [*share._claim_again_at]
    return (
        f"the group gave it {share._assigned}, paused {share._paused}, to be claimed {claims}, owners {owners}, "
        f"its consumer stands at {places}, the logs end at {ends}, finished work was lost {share.lost} times"
    )


def queue_of(broker: Broker, name: str) -> Queue:
    """The queue as the catalog has it."""
    return broker.catalog.get(Queue, name)


def cut(broker: Broker, offset: int, partition: int = 0, topic: str | None = None) -> None:
    """Delete the records of Orders before this offset, in its data topic unless another one is named."""
    place = TopicPartition(topic or queue_of(broker, "Orders").topic, partition, offset)
    broker._kafka.admin.delete_records([place])[place].result(DEADLINE_S)
