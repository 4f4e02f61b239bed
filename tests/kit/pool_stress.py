"""Recycles of a pool under concurrent senders, on real servers: `python -m tests.kit.pool_stress --recycles 100000`.

Another process receives. At the end the logs are checked for messages received after EndOfStream, lost and duplicate
messages, and endpoints that are still open.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from konverse.bridge.broker import Broker
from konverse.deploy import LocalStack, StackSettings
from konverse.schemas.identifiers import Role
from tests.kit.oracle import read_queue, sides_of, verify
from tests.kit.pools import STREAM_END, Taker, open_stream, pool_of
from tests.kit.shop import ORDER, connected, open_shop, queue_of, until

_ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 2


class Load(NamedTuple):
    """Size of a run."""

    recycles: int
    """Senders go on until at least this many conversations were recycled."""
    senders: int = 4
    conversations: int = 4
    """Conversations that are open at the same time."""
    messages: int = 3
    """Messages of a conversation before it is recycled."""
    deadline_s: float = 60.0


class Result(NamedTuple):
    """Outcome of a run."""

    begun: int
    recycled: int
    received: int
    behind: int
    """Messages that followed EndOfStream in their conversation."""
    lost: int
    doubled: int
    left: int
    """Endpoints that are still open."""
    refuted: int
    """Findings of the verifier."""
    seconds: float
    """From the start of sending until no endpoint was left."""


def stress(bootstrap: str, database: str, load: Load) -> Result:
    """Recycle conversations until `load.recycles` is reached, then check the logs."""
    with connected(bootstrap, database) as broker:
        open_shop(broker, partitions=PARTITIONS)
        open_stream(broker)
        job = json.dumps([bootstrap, database])
        with subprocess.Popen([sys.executable, "-m", "tests.kit.pool_stress", "--take", job], cwd=_ROOT) as taker:
            try:
                began = time.monotonic()
                begun, recycled, sent = _send(broker, load)
                until(lambda: not _left(broker), "no endpoint is left", load.deadline_s)
                seconds = time.monotonic() - began
            finally:
                taker.terminate()
        sides = sides_of(read_queue(bootstrap, queue_of(broker, "Orders")), Role.TARGET).values()
        orders = Counter(body for side in sides for _, kind, body in side.accepted[: side.consumed] if kind == ORDER)
        behind = 0
        for side in sides:
            kinds = [kind for _, kind, _ in side.accepted]
            behind += len(kinds) - 1 - kinds.index(STREAM_END) if STREAM_END in kinds else 0
        return Result(
            begun,
            recycled,
            orders.total(),
            behind,
            len(sent - orders.keys()),
            orders.total() - len(orders),
            _left(broker),
            len(verify(bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")])),
            seconds,
        )


def _send(broker: Broker, load: Load) -> tuple[int, int, set[bytes]]:
    each = 2 * load.recycles * load.messages // load.senders  # enough for the recycles, with a margin
    with (
        pool_of(broker, size=load.conversations, max_messages=load.messages) as pool,
        ThreadPoolExecutor(load.senders) as threads,
    ):

        def send(sender: int) -> set[bytes]:
            sent = set[bytes]()
            while len(sent) < each and pool.statistics.recycled < load.recycles:
                body = b"%d %d" % (sender, len(sent))
                pool.send(ORDER, body)
                sent.add(body)
            return sent

        sent = set[bytes]().union(*threads.map(send, range(load.senders)))
        pool.flush()
    return pool.statistics.begun, pool.statistics.recycled, sent


def _left(broker: Broker) -> int:
    return sum(1 for _ in broker.views.conversation_endpoints())


def _take(bootstrap: str, database: str) -> None:
    """The receiving process, until it is terminated."""
    taker = Taker()
    with connected(bootstrap, database) as broker, broker.reader("Orders") as reader:
        reader.run(taker)


def main() -> int:
    """Run on new servers, or on those of `--bootstrap`. Exit code 1 when a check fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.pool_stress")
    parser.add_argument("--recycles", type=int, default=100_000)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--bootstrap", help="an existing Kafka; without it one is started")
    parser.add_argument("--take", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take:
        _take(*json.loads(arguments.take))
        return 0
    load = Load(arguments.recycles, arguments.senders, deadline_s=600.0)
    database = f"t{uuid.uuid4().hex[:12]}"
    if arguments.bootstrap:
        result = stress(arguments.bootstrap, database, load)
    else:
        with LocalStack.start(StackSettings()) as stack:
            result = stress(stack.bootstrap, database, load)
    print(result)
    if result.recycled < load.recycles:
        print(f"no more than {result.recycled} were recycled")
        return 1
    return 1 if result.behind or result.lost or result.doubled or result.left or result.refuted else 0


if __name__ == "__main__":
    raise SystemExit(main())
