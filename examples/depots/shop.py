"""The shop: sends the orders of a file in dialogs with the depot, which may not exist yet.

    python -m examples.depots.shop KAFKA DATABASE FILE RATE

Each dialog has BASKET orders and an EndOfStream, at which the depot ends it. The shop keeps the last third of the
orders until SIGUSR1, so that there are new dialogs for a depot that opens late.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Final

import konverse
from examples.depots.services import DEPOT, END_OF_STREAM, ORDER, ORDERING, RECEIPT, SHOP, SHOPS
from examples.sales.orders import read_orders
from examples.sales.worker import say
from konverse.dialog.transaction.transaction import Transaction

BASKET: Final = 5
"""Orders of one dialog."""
TELL_EVERY_S: Final = 0.1


class Receipts:
    """Takes the receipts, and ends the dialogs that the depot has ended."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.ended = 0

    def take(self, transaction: Transaction) -> None:
        """Take the messages of one dialog."""
        for message in transaction:
            if message.type == RECEIPT:
                self.numbers.append(json.loads(message.body)["number"])
            else:
                transaction.end(message.dialog)
                self.ended += 1


def main(kafka: str, database: str, file: str, rate: str) -> None:
    """Send all orders, then take receipts until SIGTERM."""
    over, go_on, receipts, sent, dialogs = threading.Event(), threading.Event(), Receipts(), 0, 0
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    signal.signal(signal.SIGUSR1, lambda *_: go_on.set())
    first_part = sum(1 for _ in read_orders(Path(file))) * 2 // 3
    with konverse.connect(kafka, database=database) as broker, broker.reader(SHOPS) as reader:
        threading.Thread(target=reader.run, args=(receipts.take,), daemon=True).start()
        orders, began = read_orders(Path(file)), time.monotonic()
        while basket := list(islice(orders, BASKET)):
            if sent >= first_part:
                go_on.wait()
            dialog = broker.begin_dialog(SHOP, DEPOT, ORDERING)
            for order in basket:
                dialog.send(ORDER, order.body)
            dialog.send(END_OF_STREAM)
            sent, dialogs = sent + len(basket), dialogs + 1
            say(sent=sent, dialogs=dialogs, receipts=len(receipts.numbers), ended=receipts.ended)
            time.sleep(max(0.0, began + sent / float(rate) - time.monotonic()))
        broker.flush()
        while not over.wait(TELL_EVERY_S):
            say(finished=True, receipts=len(receipts.numbers), ended=receipts.ended)
        say(numbers=receipts.numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
