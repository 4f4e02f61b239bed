"""The order service: answers every order with a receipt, and ends a conversation when the shop has ended it.

Start as many as you like: workers share the queue's partitions. If one is killed, the others continue where it stopped.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

import konverse
from examples.sales.services import ORDERS, RECEIPT
from konverse.schemas.system_messages import END_DIALOG


def say(**event: Any) -> None:
    """Report to the process that started this one, in a line of JSON."""
    print(json.dumps({"at": time.time(), **event}), flush=True)


def main(kafka: str, redis: str, database: str) -> None:
    """Work until SIGTERM."""
    broker = konverse.connect(kafka, redis=redis, database=database)
    with broker, broker.reader(ORDERS, batch=200, timeout=1.0) as reader:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        received, told, owned = 0, 0.0, reader.partitions
        while True:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if message.type == END_DIALOG:
                            transaction.end(message.dialog)
                            continue
                        number = json.loads(message.body)["number"]
                        receipt = {"number": number, "accepted": True}
                        if message.dialog.state.code == "CO":  # else the shop has ended, and wants no receipt
                            transaction.send(message.dialog, RECEIPT, json.dumps(receipt).encode())
                        received += 1
                if reader.partitions != owned:
                    owned = reader.partitions
                    say(partitions=sorted(owned), received=received)
                if time.monotonic() - told > 0.1:
                    told = time.monotonic()
                    say(received=received)
            say(received=received, partitions=sorted(reader.partitions))


if __name__ == "__main__":
    main(*sys.argv[1:])
