"""Handlers in threads, a transaction for each message: the rate, and each transaction's wait for its commit."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from konverse.dialog.owner.events import Effect
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.wire.journal import CommitOperations
from tests.bench import conversations, fill
from tests.bench.clients import PARTITIONS
from tests.bench.measure import latencies
from tests.bench.model import Case, Figures, Load, Place, Row, Run

THREADS: Final = 12
HANDLER_S: Final = 0.001
"""Time for which a handler waits for another system, such as a database."""


class Waits:
    """Time from a handler's return to the acknowledgement of the commit with its transaction.

    Replaces methods of an owner, only in the process of this benchmark.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def watch(self, owner: Owner) -> None:
        """Time the transactions of an owner."""
        returned: deque[float] = deque()
        sent: list[float] = []
        finish, merge, committed = owner.staging.finish, owner.staging.merge, owner._committed

        def finished(transaction: Transaction) -> None:
            returned.append(time.perf_counter())
            finish(transaction)

        def merged() -> tuple[CommitOperations, list[Transaction]]:
            operations, transactions = merge()
            sent.extend(returned.popleft() for _ in transactions)
            return operations, transactions

        def counts(offset: int, timestamp_ms: int) -> list[Effect]:
            now = time.perf_counter()
            self.seconds += [now - at for at in sent]
            sent.clear()
            return committed(offset, timestamp_ms)

        owner.staging.finish = finished  # type: ignore[method-assign]
        owner.staging.merge = merged  # type: ignore[method-assign]
        owner._committed = counts  # type: ignore[method-assign]


def handled(place: Place, load: Load) -> Figures:
    """Handlers in THREADS threads answer a backlog, one message each, after a short wait."""
    waits = Waits()
    with (
        conversations.connect(place) as broker,
        broker.reader(conversations.QUEUE, max_messages=1, timeout=1) as reader,
    ):
        reader.wait_for_partitions(PARTITIONS)
        for owner in reader.owners:
            waits.watch(owner)

        def answer(transaction: Transaction) -> None:
            time.sleep(HANDLER_S)
            for message in transaction:
                transaction.send(message.dialog, conversations.REPLY, message.body)
            last[0] = time.perf_counter()

        last = [0.0]
        began = time.perf_counter()
        reader.run(answer, threads=THREADS)
        took = last[0] - began
    warm = waits.seconds[load.with_warm_up - load.messages :]
    return {"rate": len(waits.seconds) / took} | latencies("commit", warm)


CASES: Final = (
    Case(
        (Row("transactions", "rate", "transactions/s"), Row("transactions-p99", "commit_p99_ms", "ms, p99")),
        Run(handled, Load(messages=50_000), prepare=fill.queue),
    ),
)
