"""Three brokers restart or die one after another under load: nothing is lost, and nothing has to be started again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from konverse import Broker
from konverse.deploy import LocalStack, StackSettings
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import THREE_BROKERS
from tests.kit.shop import DEADLINE_S, ORDER, answer_once, begin, connected, open_shop, queue_of, until

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(600)]

NewStack = Callable[[StackSettings], LocalStack]
DIALOGS: Final = 6
EVERY_S: Final = 0.01
"""Interval of the orders."""
BETWEEN: Final = 50
"""Answers between two restarts."""


def all_in_sync(admin: AdminClient) -> bool:
    """Whether every broker is there and has all that it should have."""
    found = admin.list_topics(timeout=10)
    partitions = [one for topic in found.topics.values() for one in topic.partitions.values()]
    return sorted(found.brokers) == [1, 2, 3] and all(len(one.isrs) == len(one.replicas) for one in partitions)


class Traffic:
    """Sends orders until it is stopped; readers in this process answer them and take the answers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stopped = threading.Event()
        self.sent: dict[bytes, list[bytes]] = {}
        self.answers = 0

    def send(self) -> int:
        """Send until `stop`. Returns the number of orders."""
        dialogs, count = [begin(self._broker) for _ in range(DIALOGS)], 0
        self.sent |= {dialog.id.bytes: [] for dialog in dialogs}
        while not self._stopped.wait(EVERY_S):
            dialog = dialogs[count % DIALOGS]
            body = b"order %d" % count
            dialog.send(ORDER, body)
            self.sent[dialog.id.bytes].append(body)
            count += 1
        self._broker.flush()
        return count

    def stop(self) -> None:
        """Send no more orders."""
        self._stopped.set()

    def has(self, answers: int) -> bool:
        """Whether so many answers were taken."""
        return self.answers >= answers

    def take_answers(self) -> None:
        """Take answers until the reader is stopped."""
        with self._broker.reader("Shop") as reader:
            self.shop = reader
            for transaction in reader:
                with transaction:
                    self.answers += len(list(transaction))

    def answer(self) -> None:
        """Answer orders until the reader is stopped."""
        with self._broker.reader("Orders") as reader:
            self.orders = reader
            answer_once(reader)


@pytest.mark.parametrize("dies", [False, True], ids=["restarted", "killed"])
def test_orders_are_answered_once_while_each_of_three_brokers_goes_and_comes_back(
    new_stack: NewStack, *, dies: bool
) -> None:
    stack = new_stack(THREE_BROKERS)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    database = f"t{uuid.uuid4().hex[:12]}"
    with connected(stack.bootstrap, database) as broker, connected(stack.bootstrap, database) as service:
        open_shop(broker, partitions=3)
        shop, orders = Traffic(broker), Traffic(service)
        with ThreadPoolExecutor(3) as threads:
            sending, taking, answering = map(threads.submit, (shop.send, shop.take_answers, orders.answer))
            try:
                until(lambda: shop.answers > 0, "the first answer")
                for server in stack.servers:
                    before = shop.answers
                    if dies:
                        stack.kill(server)
                    stack.restart(server)
                    until(partial(shop.has, before + 1), f"an answer after {server}")
                    until(partial(all_in_sync, admin), f"{server} is in sync")
                    until(partial(shop.has, shop.answers + BETWEEN), f"{BETWEEN} answers before the next goes")
                shop.stop()
                count = sending.result(DEADLINE_S)
                until(lambda: shop.answers == count, f"{count} answers")
            finally:
                shop.stop()
                shop.shop.stop()
                orders.orders.stop()
            taking.result(DEADLINE_S)
            answering.result(DEADLINE_S)
        proof = prove_exactly_once(stack.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), shop.sent)
        assert proof.replies == count
