"""A shop: sends its part of a file of sales through a pool, a conversation per customer, recycled every few seconds.

    python -m examples.regions.shop KAFKA REDIS DATABASE NAME PART/PARTS FILE RATE MAX_AGE_S

If it is killed with -9 and started again under its name, it continues its conversations. Orders that Kafka has are
received once, so the shop first reads which of its orders are in the router's queue, and sends the others.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import konverse
from examples.regions.services import END_OF_STREAM, ORDER, ORDERING, ORDERS, RECEIPT, ROUTER, SHOP, SHOPS
from examples.sales.check import Verdict, numbers
from examples.sales.orders import Order, read_orders
from examples.sales.worker import say
from konverse.bridge.broker import Broker
from konverse.bridge.client.pool.pool import Pool
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue

TELL_EVERY_S: Final = 0.1


def orders_of(path: Path, part: str) -> Iterator[Order]:
    """The orders of one part of the customers, such as 0/2 or 1/2."""
    number, parts = map(int, part.split("/"))
    return (order for order in read_orders(path) if crc32(order.customer.encode()) % parts == number)


class Receipts:
    """Counts the receipts that come back, and has the pool answer its own messages."""

    def __init__(self, broker: Broker, pool: Pool) -> None:
        self.count = 0
        self._pool = pool
        self._reader = broker.reader(SHOPS)
        self._thread = threading.Thread(target=self._reader.run, args=(self._answer,), daemon=True)
        self._thread.start()

    def _answer(self, transaction: Transaction) -> None:
        self.count += sum(message.type == RECEIPT for message in self._pool.answer(transaction))


def main(*arguments: str) -> None:
    """Send the orders that were not sent, then read receipts until SIGTERM."""
    kafka, redis, database, name, part, path, rate, max_age = arguments
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with konverse.connect(kafka, redis=redis, database=database) as broker:
        pool = broker.pool(
            SHOP, ROUTER, ORDERING, name=name, max_age=float(max_age), end_of_stream=END_OF_STREAM, read=False
        )
        receipts = Receipts(broker, pool)
        queue = broker.catalog.get(Queue, ORDERS)
        gone = {number for sent in numbers(broker.settings.bootstrap, queue, Verdict()).values() for number in sent}
        mine = list(orders_of(Path(path), part))
        left = [order for order in mine if order.number not in gone]
        sent = len(mine) - len(left)
        say(ready=True, sent=sent, went_on=sent)
        began, told, before = time.monotonic(), 0.0, sent
        for order in left:
            pool.send(ORDER, order.body, key=order.customer)
            sent += 1
            ahead = (sent - before) / float(rate) - (time.monotonic() - began)
            if ahead > 0.01:
                time.sleep(ahead)
            if time.monotonic() - told > TELL_EVERY_S:
                told = time.monotonic()
                say(sent=sent, receipts=receipts.count, **pool.statistics._asdict())
        pool.flush()
        pool.recycle()
        say(sent=sent, finished=True, open=pool.conversations)
        while not over.wait(TELL_EVERY_S):
            say(sent=sent, receipts=receipts.count, open=pool.conversations, **pool.statistics._asdict())
        pool.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
