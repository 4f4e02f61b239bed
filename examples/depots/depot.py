"""A depot: creates its service in a database of its own, and answers orders until SIGTERM.

python -m examples.depots.depot KAFKA DATABASE PARTITIONS
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import defaultdict
from typing import Final

import konverse
from examples.depots.services import DEPOTS, ORDER, RECEIPT, create_depot
from examples.sales.worker import say
from konverse.dialog.transaction.transaction import Transaction

TELL_EVERY_S: Final = 0.02


class Depot:
    """Answers orders, and keeps their numbers by dialog."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, list[int]] = defaultdict(list)
        self.received = 0

    def answer(self, transaction: Transaction) -> None:
        """Answer the messages of one dialog."""
        for message in transaction:
            if message.type == ORDER:
                number = json.loads(message.body)["number"]
                self.numbers[str(message.dialog.id)].append(number)
                self.received += 1
                transaction.send(message.dialog, RECEIPT, json.dumps({"number": number}).encode())
            else:
                transaction.end(message.dialog)


def main(kafka: str, database: str, partitions: str) -> None:
    """Come to life, and answer until SIGTERM."""
    depot, over = Depot(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with konverse.connect(kafka, database=database) as broker:
        create_depot(broker, partitions=int(partitions))
        with broker.reader(DEPOTS) as reader:
            threading.Thread(target=reader.run, args=(depot.answer,), daemon=True).start()
            while not over.wait(TELL_EVERY_S):
                say(ready=True, received=depot.received, dialogs=len(depot.numbers))
        say(numbers=depot.numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
