"""`python -m tests.bench.routing_modes [CONVERSATIONS]`: cost of forwarding and redirecting, against no router.

Each conversation is a request and its reply, and ends. A pool follows the redirection itself and continues on the same
conversation. Requests go one after another, so the time is the latency that a single user sees. Records are those of
the data topics, with acknowledgements and ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.reader.reader import Reader
from konverse.schemas.catalog.objects import Queue
from tests.bench.servers import servers

CONVERSATIONS: Final = 200
WARM_UP: Final = 20
DEADLINE_S: Final = 30.0

ASKED: Final = "//modes/Asked"
ANSWERED: Final = "//modes/Answered"
REDIRECTED: Final = "RedirectTo"
STREAM_END: Final = "EndOfStream"
CONTRACT: Final = "//modes/Asking"
ROUTER: Final = "//modes/Router"
TARGET: Final = "//modes/Target"
INITIATOR: Final = "//modes/Initiator"


class Cost(NamedTuple):
    """Cost of a conversation, or of a request of a pool."""

    records: float
    """Records in data topics."""
    p50_ms: float
    """Time from BEGIN DIALOG to the reply."""
    p99_ms: float


def create(broker: Broker) -> None:
    """Create three services, each on a queue of its own."""
    for name in (ASKED, ANSWERED, REDIRECTED, STREAM_END):
        broker.admin.create_message_type(name)
    types = {ASKED: "INITIATOR", STREAM_END: "INITIATOR", ANSWERED: "TARGET", REDIRECTED: "TARGET"}
    broker.admin.create_contract(CONTRACT, types)
    for queue, service in (("Router", ROUTER), ("Target", TARGET), ("Initiator", INITIATOR)):
        broker.admin.create_queue(queue)
        broker.admin.create_service(service, queue=queue, contracts=[CONTRACT])


def answer(transaction: konverse.Transaction) -> None:
    """The target's handler: reply, and end after the other side."""
    for message in transaction:
        if message.type == ASKED:
            transaction.send(message.dialog, ANSWERED, message.body)
        else:
            transaction.end(message.dialog)


def ask(broker: Broker, reader: Reader, service: str) -> float:
    """Ask a service, follow redirections, and end. Returns the seconds until the reply."""
    began = time.perf_counter()
    while True:
        dialog = broker.begin_dialog(INITIATOR, service, CONTRACT)
        dialog.send(ASKED, b"where is my parcel?")
        reply = reader.receive(dialog=dialog.id, timeout=DEADLINE_S)
        if reply is None:
            raise TimeoutError(f"{service} has not answered within {DEADLINE_S:g} s")
        with reply as transaction:
            message, *_ = transaction
            transaction.end(transaction.dialog)
        if message.type != REDIRECTED:
            return time.perf_counter() - began
        service = konverse.read_redirect(message.body).service


def ask_by(pool: Pool, reader: Reader) -> float:
    """Like `ask`, on the conversation of a pool, which follows redirections itself."""
    began = time.perf_counter()
    pool.send(ASKED, b"where is my parcel?", "a customer")
    for transaction in reader:
        with transaction:
            replies = pool.answer(transaction)
        if replies:
            return time.perf_counter() - began
    raise TimeoutError(f"no reply within {DEADLINE_S:g} s")


def records(bootstrap: str, queues: list[Queue]) -> int:
    """Number of records in the data topics."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "konverse.modes", "enable.auto.commit": False})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(queue.topic, number), DEADLINE_S)[1]
            for queue in queues
            for number in range(queue.partitions)
        ]
    finally:
        consumer.close()
    return sum(ends)


@contextmanager
def working(*works: tuple[Callable[[], object], Callable[[], object]]) -> Iterator[None]:
    """Run these functions in threads while the block runs. Each pair is a function and its stop function."""
    with ThreadPoolExecutor(len(works)) as pool:
        done = [pool.submit(work) for work, _ in works]
        try:
            yield
        finally:
            for _, stop in works:
                stop()
            for future in done:
                future.result()


def measure(bootstrap: str, mode: str, count: int) -> Cost:
    """Measure one mode in a new database: "direct" without a router, a router's mode, or "pool" with redirection."""
    database = f"modes{mode}{os.urandom(4).hex()}"
    with ExitStack() as exits:
        broker, behind = (
            exits.enter_context(konverse.connect(f"kafka://{bootstrap}", database=database)) for _ in range(2)
        )
        create(broker)
        routed = {"direct": "forward", "pool": "redirect"}.get(mode, mode)
        router = behind.router(ROUTER, mode=routed)(lambda _: TARGET)
        target = exits.enter_context(behind.reader("Target"))
        asking = exits.enter_context(broker.reader("Initiator", timeout=DEADLINE_S))
        with working((router.run, router.stop), (lambda: target.run(answer), target.stop)):
            once = partial(ask, broker, asking, TARGET if mode == "direct" else ROUTER)
            if mode == "pool":
                once = partial(ask_by, broker.pool(INITIATOR, ROUTER, CONTRACT, read=False), asking)
            for _ in range(WARM_UP):
                once()
            queues = broker.catalog.all(Queue)
            before = records(bootstrap, queues)
            times_ms = sorted(1_000 * once() for _ in range(count))
        broker.flush()
        return Cost(
            (records(bootstrap, queues) - before) / count, median(times_ms), times_ms[min(count - 1, count * 99 // 100)]
        )


def main() -> int:
    """Measure all modes and print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS
    print("| | records a conversation | ms to the reply, p50 | p99 |\n|---|--:|--:|--:|")
    with servers(redis=False) as (bootstrap, _):
        for mode in ("direct", "forward", "redirect", "pool"):
            cost = measure(bootstrap, mode, count)
            print(f"| {mode} | {cost.records:.1f} | {cost.p50_ms:.1f} | {cost.p99_ms:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
