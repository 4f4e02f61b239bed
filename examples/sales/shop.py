"""The shop: a conversation for each customer, an order for each line of the file, a receipt expected for each order."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import konverse
from examples.sales.orders import read_orders
from examples.sales.services import ORDER, ORDER_SERVICE, ORDERING, RECEIPT, SHOP, SHOP_SERVICE
from examples.sales.worker import say
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.schemas.system_messages import END_DIALOG

TELL_EVERY_S = 0.1


class Receipts:
    """Counts receipts in a thread of its own, and ends conversations that the order service has ended."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        self._reader = broker.reader(SHOP, batch=500, timeout=0.5)
        self._reader.wait_for_partitions(1)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receipts")
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            for transaction in self._reader:
                with transaction:
                    receipts = 0
                    for message in transaction:
                        if message.type == RECEIPT:
                            receipts += 1
                        elif message.type == END_DIALOG:
                            transaction.end(message.dialog)
                self.count += receipts

    def wait_for_ends(self, patience_s: float) -> None:
        """Return when both sides of every conversation have ended."""
        deadline = time.monotonic() + patience_s
        while self._reader.conversations and time.monotonic() < deadline:
            time.sleep(TELL_EVERY_S)

    def close(self) -> None:
        """Stop reading."""
        self._done.set()
        self._thread.join()
        self._reader.close()


def send_all(broker: Broker, path: Path, rate: float, receipts: Receipts) -> tuple[int, list[Dialog]]:
    """Send every order, `rate` a second. Returns their number and the conversations."""
    dialogs: dict[str, Dialog] = {}
    began = told = time.monotonic()
    sent = 0
    for order in read_orders(path):
        dialog = dialogs.get(order.customer)
        if dialog is None:
            dialog = dialogs[order.customer] = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        dialog.send(ORDER, order.body)
        sent += 1
        ahead = sent / rate - (time.monotonic() - began)
        if ahead > 0.01:
            time.sleep(ahead)
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            say(sent=sent, conversations=len(dialogs), receipts=receipts.count)
    broker.flush()
    say(sent=sent, conversations=len(dialogs), receipts=receipts.count, flushed=True)
    return sent, list(dialogs.values())


def main(*arguments: str) -> None:
    """Send everything, wait for every receipt, end every conversation."""
    kafka, redis, database, path, rate, patience_s = arguments
    with konverse.connect(kafka, redis=redis, database=database) as broker:
        receipts = Receipts(broker)
        try:
            sent, dialogs = send_all(broker, Path(path), float(rate), receipts)
            deadline = time.monotonic() + float(patience_s)
            while receipts.count < sent and time.monotonic() < deadline:
                time.sleep(TELL_EVERY_S)
                say(sent=sent, conversations=len(dialogs), receipts=receipts.count)
            for dialog in dialogs:
                dialog.end()
            broker.flush()
            receipts.wait_for_ends(float(patience_s))
        finally:
            receipts.close()
        say(sent=sent, conversations=len(dialogs), receipts=receipts.count, finished=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
