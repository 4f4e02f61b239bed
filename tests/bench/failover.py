"""`python -m tests.bench.failover [--conversations N] [--json]`: how long a partition waits for its next owner.

One process owns a partition with N live conversations and gives it back. Another member of the group gets it. The time
runs from the assignment to the first message in a handler, without and with a standby.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from tests.bench import conversations
from tests.bench.model import Place
from tests.bench.report import ProgressLine, machine
from tests.bench.servers import servers
from tests.kit.shop import pumped

CONVERSATIONS: Final = 5_000
MESSAGES: Final = 2
"""Messages of each conversation, answered before the clock starts."""
SERVICE: Final = "//order/service"
SHOP: Final = "//order/shop"
DEADLINE_S: Final = 600.0
MODES: Final = ("cold", "standby")
ROUNDS: Final = 3
"""Runs of each mode, in turn. The median counts."""


def fill(broker: Broker, count: int) -> None:
    """Fill a queue of one partition with `count` conversations whose messages are answered."""
    broker.admin.create_message_type(conversations.MESSAGE)
    broker.admin.create_message_type(conversations.REPLY)
    broker.admin.create_contract("//order", {conversations.MESSAGE: "INITIATOR", conversations.REPLY: "TARGET"})
    broker.admin.create_queue(conversations.QUEUE, partitions=1)
    broker.admin.create_queue("Shop", partitions=1)
    broker.admin.create_service(SERVICE, queue=conversations.QUEUE, contracts=["//order"])
    broker.admin.create_service(SHOP, queue="Shop")
    opened = conversations.dialogs(broker, count)
    conversations.send_in_turn(opened, MESSAGES * count, 100)
    broker.flush()
    with broker.reader(conversations.QUEUE, batch=1_000, timeout=2) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, conversations.REPLY, message.body)


def until(reader: Reader, condition: Callable[[], bool], what: str) -> None:
    """Let the reader work until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {DEADLINE_S:g} s")
        reader._advance()


def follows(reader: Reader) -> bool:
    """Whether the reader's standby has folded the partition's conversations; True without standby."""
    standby = reader._driver._standby
    if standby is None:
        return True
    with standby._locks[0]:
        follower = standby._followers.get(0)
        return follower is not None and bool(follower.fold.state.live())


def taken_over(place: Place, *, standby: bool) -> tuple[float, int]:
    """Seconds from assignment of the partition to its first message, and the number of conversations there."""
    with conversations.connect(place) as before, conversations.connect(place) as after:
        owner = before.reader(conversations.QUEUE)
        owner.wait_for_partitions(1)
        (dialog,) = conversations.dialogs(before, 1)
        dialog.send(conversations.MESSAGE, b"the first one")
        before.flush()
        given_at: list[float] = []
        with after.reader(conversations.QUEUE, standby=standby) as reader:
            take_over = reader._driver.take_over

            def noted(number: int) -> int | None:
                given_at.append(time.perf_counter())
                return take_over(number)

            reader._driver.take_over = noted  # type: ignore[method-assign]
            with pumped(owner):
                until(reader, lambda: follows(reader), "the partition is followed")
            owner.close()
            with next(iter(reader)) as transaction:
                received = len(list(transaction))
            took = time.perf_counter() - given_at[-1]
            live = len(reader.owners[0].fold.state.live())
    if not received:
        raise RuntimeError("a transaction without a message")
    return took, live


def main() -> None:
    """Fill the queue, take over in both modes, print a line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover", description=__doc__)
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, metavar="N")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    line = ProgressLine(1 + ROUNDS * len(MODES))
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    live = 0
    with line.shown(), servers(redis=False) as (bootstrap, _):
        place = Place(bootstrap, "", f"failover{os.urandom(4).hex()}")
        line.say(f"{arguments.conversations:,} conversations")
        with conversations.connect(place) as broker:
            fill(broker, arguments.conversations)
        for mode in ROUNDS * MODES:
            line.say(mode)
            took, live = taken_over(place, standby=mode == "standby")
            seconds[mode].append(took)
    cold, warm = (median(seconds[mode]) for mode in MODES)
    if arguments.json:
        print(json.dumps({"seconds": seconds, "live": live}))
        return
    print(f"first message after {cold:.2f} s cold, {warm:.2f} s standing by ({live:,} live; {warm / cold:.2f}x)")
    print(machine())


if __name__ == "__main__":
    main()
