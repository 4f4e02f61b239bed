"""The service of some regions: answers each order with a receipt, and ends the conversation on EndOfStream.

python -m examples.regions.region KAFKA REDIS DATABASE QUEUE
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Final

import konverse
from examples.regions.services import END_OF_STREAM, ORDER, RECEIPT
from examples.sales.worker import say
from konverse.dialog.transaction.transaction import Transaction

TELL_EVERY_S: Final = 0.1


class Region:
    """Answers orders, and counts them."""

    def __init__(self) -> None:
        self.received = 0

    def answer(self, transaction: Transaction) -> None:
        """Answer the messages of one conversation."""
        for message in transaction:
            if message.type == ORDER:
                self.received += 1
                if message.dialog.state.code == "CO":
                    number = json.loads(message.body)["number"]
                    transaction.send(message.dialog, RECEIPT, json.dumps({"number": number}).encode())
            elif message.type in (END_OF_STREAM, konverse.END_DIALOG, konverse.ERROR):
                transaction.end(message.dialog)
                break


def main(kafka: str, redis: str, database: str, queue: str) -> None:
    """Answer until SIGTERM."""
    region, over = Region(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with konverse.connect(kafka, redis=redis, database=database) as broker, broker.reader(queue) as reader:
        threading.Thread(target=reader.run, args=(region.answer,), daemon=True).start()
        say(ready=True)
        while not over.wait(TELL_EVERY_S):
            say(received=region.received)


if __name__ == "__main__":
    main(*sys.argv[1:])
