"""Load-balanced targets: readers of one queue share its partitions; one joins, one leaves, and the work moves.

Use it where one process is not enough, or must not be the only one. A sender knows only the service, not how many
readers it has nor which of them answers. Each partition has one reader at a time, so a queue needs as many partitions
as it will ever have readers: give it some to spare. A conversation stays in its partition, so its messages stay in
order whichever reader has it. Two services on two queues are no substitute: messages would wait in one of them while
the readers of the other are idle.

    python -m examples.patterns.load_balancing

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database. Each baker is a thread
with a connection of its own, and could as well be a process on another machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import konverse

ORDER: Final = "//mill/Order"
BREAD: Final = "//mill/Bread"
BAKING: Final = "//mill/Baking"
BAKERY: Final = "//mill/Bakery"
SHOP: Final = "//mill/Shop"

PARTITIONS: Final = 4
ORDERS: Final = 24
PATIENCE_S: Final = 60.0


class Baker:
    """A reader of the bakery's queue, at work until its block ends."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.broker = konverse.connect()
        self.reader = self.broker.reader("Bakery")
        self.thread = threading.Thread(target=self.reader.run, args=(self.bake,))

    def bake(self, transaction: konverse.Transaction) -> None:
        """Answer with the baker's name."""
        for message in transaction:
            if message.type == ORDER and message.dialog.state.code == "CO":
                transaction.send(message.dialog, BREAD, self.name)
            transaction.end(message.dialog)
            return

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish and commit the present work, and give the partitions back, which the others get at once."""
        self.reader.stop()
        self.thread.join()
        self.broker.close()


def create(broker: konverse.Broker) -> None:
    """A shop, and a bakery for up to four bakers."""
    broker.admin.create_message_type(ORDER, if_not_exists=True)
    broker.admin.create_message_type(BREAD, if_not_exists=True)
    broker.admin.create_contract(BAKING, {ORDER: "INITIATOR", BREAD: "TARGET"}, if_not_exists=True)
    broker.admin.create_queue("Bakery", partitions=PARTITIONS, if_not_exists=True)
    broker.admin.create_queue("Shops", if_not_exists=True)
    broker.admin.create_service(BAKERY, queue="Bakery", contracts=[BAKING], if_not_exists=True)
    broker.admin.create_service(SHOP, queue="Shops", if_not_exists=True)


def order(broker: konverse.Broker, shop: konverse.Reader) -> Counter[str]:
    """Send orders, each in a conversation of its own, and count the loaves of each baker."""
    dialogs = [broker.begin_dialog(SHOP, BAKERY, BAKING) for _ in range(ORDERS)]
    for dialog in dialogs:
        dialog.send(ORDER)
    broker.flush()
    baked: Counter[str] = Counter()
    for dialog in dialogs:
        transaction = shop.receive(dialog=dialog.id, timeout=PATIENCE_S)
        if transaction is not None:
            with transaction:
                baked[next(iter(transaction)).body.decode()] += 1
                transaction.end(transaction.dialog)
    return baked


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def main() -> None:
    """One baker; a second one joins; the first one leaves."""
    with konverse.connect() as broker, ExitStack() as second:
        create(broker)
        with broker.reader("Shops") as shop:
            shop.wait_for_partitions(1)
            with Baker(b"Anna") as anna:
                wait(lambda: len(anna.reader.partitions) == PARTITIONS, "Anna has all partitions")
                print("Anna alone:", sorted(order(broker, shop)))
                ben = second.enter_context(Baker(b"Ben"))
                wait(lambda: len(anna.reader.partitions) == len(ben.reader.partitions) == 2, "two partitions each")
                print("Anna and Ben:", sorted(order(broker, shop)))
            wait(lambda: len(ben.reader.partitions) == PARTITIONS, "Ben has all partitions")
            print("Ben alone:", dict(order(broker, shop)))
            shop.settle()


if __name__ == "__main__":
    main()
