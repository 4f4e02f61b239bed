"""Conversations through the stack, from a container inside its network: `python -m tests.compose.conversation`.

First plain clients reach Kafka and Redis by their names in the network, so that a later failure is ours. Then some
dialogs are held: the initiator sends orders, the target answers each with a receipt and ends, and the initiator ends.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections import defaultdict
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from redis import Redis

import konverse

ORDER: Final = "//sales/Order"
RECEIPT: Final = "//sales/Receipt"
CONTRACT: Final = "//sales/Ordering"
END_DIALOG: Final = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog"

DIALOGS: Final = 3
ORDERS: Final = 5
WITHIN_S: Final = 60.0
SILENCE_S: Final = 20.0
"""How long a reader waits for the next message before it is considered lost."""

EXPECTED: Final = {dialog: list(range(ORDERS)) for dialog in range(DIALOGS)}


def connect_plainly(kafka: str, redis: str) -> None:
    """Write a record and read it back, and ping Redis, without konverse."""
    topic = f"compose-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, b"hello")
    assert producer.flush(WITHIN_S) == 0, "a record was not acknowledged"
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline_s = time.monotonic() + WITHIN_S
    value = None
    while value is None:
        assert time.monotonic() < deadline_s, "a record was not read back"
        message = consumer.poll(1.0)
        value = message.value() if message is not None and message.error() is None else None
    consumer.close()
    assert value == b"hello", value
    admin.delete_topics([topic])[topic].result(WITHIN_S)
    with Redis.from_url(redis) as client:
        assert client.ping()
    print(f"plain clients reach {kafka} and {redis}")


def define(broker: konverse.Broker) -> None:
    """Fill the catalog: two message types, a contract, two queues and their services."""
    broker.admin.create_message_type(ORDER)
    broker.admin.create_message_type(RECEIPT)
    broker.admin.create_contract(CONTRACT, {ORDER: "INITIATOR", RECEIPT: "TARGET"})
    broker.admin.create_queue("Orders", partitions=4)
    broker.admin.create_service("//sales/OrderService", queue="Orders", contracts=[CONTRACT])
    broker.admin.create_queue("Shop")
    broker.admin.create_service("//sales/ShopService", queue="Shop")


def send_orders(broker: konverse.Broker) -> None:
    """Begin the dialogs and send their orders in turn."""
    dialogs = [broker.begin_dialog("//sales/ShopService", "//sales/OrderService", CONTRACT) for _ in range(DIALOGS)]
    for order in range(ORDERS):
        for number, dialog in enumerate(dialogs):
            dialog.send(ORDER, f"{number} {order}".encode())


def answer_orders(broker: konverse.Broker) -> None:
    """Answer each order with a receipt, and end each dialog after its last order."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    with broker.reader("Orders", timeout=SILENCE_S) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    assert message.type == ORDER, message.type
                    number, order = map(int, message.body.split())
                    seen[number].append(order)
                    transaction.send(message.dialog, RECEIPT, message.body)
                    if order == ORDERS - 1:
                        transaction.end(message.dialog)
            if seen == EXPECTED:
                break
    assert seen == EXPECTED, f"orders as the target saw them: {dict(seen)}"


def take_receipts(broker: konverse.Broker) -> None:
    """Take the receipts of each dialog and then its end."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    ended = 0
    with broker.reader("Shop", timeout=SILENCE_S) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    if message.type == END_DIALOG:
                        transaction.end(message.dialog)
                        ended += 1
                        continue
                    assert message.type == RECEIPT, message.type
                    number, order = map(int, message.body.split())
                    seen[number].append(order)
            if ended == DIALOGS:
                break
    assert seen == EXPECTED, f"receipts as the initiator saw them: {dict(seen)}"
    assert ended == DIALOGS, f"{ended} of {DIALOGS} dialogs were ended"


def converse(kafka: str, redis: str) -> None:
    """Hold the dialogs in a new database."""
    broker = konverse.connect(f"kafka://{kafka}", redis=redis, database=f"sales_{uuid.uuid4().hex[:8]}")
    try:
        define(broker)
        send_orders(broker)
        answer_orders(broker)
        take_receipts(broker)
    finally:
        broker.close()
    print(f"{DIALOGS} dialogs, {DIALOGS * ORDERS} orders and as many receipts, each once and in order, all ended")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compose.conversation", description=__doc__)
    parser.add_argument("--kafka", default="kafka:19092", help="host and port; default %(default)s")
    parser.add_argument("--redis", default="redis://redis:6379", help="URL; default %(default)s")
    options = parser.parse_args(arguments)
    connect_plainly(options.kafka, options.redis)
    converse(options.kafka, options.redis)


if __name__ == "__main__":
    main(sys.argv[1:])
