"""Every bound of the benchmark, with its reason. No other module defines a bound.

The ratios of the loop are against librdkafka's default `retry.backoff.ms` of 100. With 1, a loop of Kafka transactions
is 2.4, 3.9, 1.9 and 3.4 times as fast in batches of 1,000, 100, 10 and 1 (on busy cores).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of the row of the same name."""

    of: Literal["value", "ratio"]
    sense: Literal[">=", "<="]
    limit: float
    reason: str

    def holds(self, value: float, ratio: float | None) -> bool:
        """Whether a measured row keeps the bound."""
        measured = value if self.of == "value" else ratio
        if measured is None:
            return False
        return measured >= self.limit if self.sense == ">=" else measured <= self.limit

    @property
    def text(self) -> str:
        """The bound as the table shows it."""
        return f"{self.of} {self.sense} {self.limit:,g}"


BOUNDS: Final = {
    "send-100": Bound(
        "ratio",
        ">=",
        0.85,
        "Numbering, remembering and checking a message may cost 15 % of a plain producer that carries the same header.",
    ),
    "send-1024": Bound("ratio", ">=", 0.85, "As for 100 bytes: konverse never reads the body."),
    "pool-send": Bound(
        "ratio", ">=", 0.9, "Against `Dialog.send`: finding the conversation of a key is a table lookup."
    ),
    "loop-1000": Bound(
        "ratio",
        ">=",
        1.2,
        "One appended COMMIT replaces a Kafka transaction: cheaper even where transactions are at their best.",
    ),
    "loop-1000-cpu": Bound(
        "value",
        "<=",
        4.5,
        "The loop without any semantics costs 2.9 us; dialog, journal and emission may add 1.6.",
    ),
    "loop-100": Bound(
        "ratio",
        ">=",
        15,
        "A transaction that meets the markers of the one before backs off; a COMMIT has none to wait for.",
    ),
    "loop-10": Bound("ratio", ">=", 100, "The same wait, for ten messages."),
    "loop-1": Bound("ratio", ">=", 60, "The same wait, for each message."),
    "loop-1-rate": Bound(
        "value", ">=", 3_000, "Receive one, reply one, commit is how Service Broker is used; a person tries this first."
    ),
    "loop-1-commit": Bound("value", "<=", 1, "A durable reply within a millisecond: one round trip to the broker."),
    "transactions": Bound(
        "value", ">=", 5_000, "Handlers in threads, one message each: the peak load of a department's service."
    ),
    "transactions-p99": Bound(
        "value", "<=", 25, "From a handler's return to its commit: too short for a waiting person to notice."
    ),
    "per-message": Bound(
        "value",
        ">=",
        5_000,
        "Four messages each (request, reply, two ends): more than the 18,000 a second of the original's lab.",
    ),
    "timers-late": Bound("value", "<=", 1_000, "Of 100,000 timers: one of 1 s fires within 2 s."),
    "timers-idle": Bound(
        "ratio", "<=", 1.25, "A timer that is due in a day costs nothing; the rest is noise of CPU clocks."
    ),
    "crowd": Bound("ratio", "<=", 1.25, "A message costs the same while a million other conversations are open."),
    "fold": Bound("value", ">=", 600_000, "A recovering owner folds its log: a backlog of ten million in 17 s."),
    "recovery": Bound(
        "value",
        "<=",
        3,
        "With 100,000 live conversations: a service is back before users notice that a machine is gone.",
    ),
    "failover": Bound(
        "value", "<=", 3, "From the kill of one of two workers to the first message in the other's handler."
    ),
    "poison-kill": Bound("value", "<=", 30, "Until the message that kills its process is suspended: six deaths."),
    "poison-kill-others": Bound(
        "value", "<=", 5, "How long other groups of the queue wait for the next process after each of these deaths."
    ),
    "snapshot-pause": Bound(
        "value", "<=", 100, "Of a million conversations in one partition: no reply waits noticeably for a snapshot."
    ),
    "owner-memory": Bound(
        "value", "<=", 800, "A live endpoint may cost a process 1.5 kB; half of that is kept for its messages."
    ),
    "redis-memory": Bound(
        "value",
        "<=",
        128,
        "Packed entries of hashes that stay packed cost 80 to 83 bytes; one unpacked hash costs ten times that.",
    ),
    "router-forward": Bound(
        "ratio",
        ">=",
        0.4,
        "Of the loop that replies: a router serves several services and must not slow them down.",
    ),
    "router-begin": Bound(
        "value",
        ">=",
        5_000,
        "Dialogs of one message each, classified and begun: as many as the services behind end to end.",
    ),
    "router-memory": Bound(
        "value",
        "<=",
        1_600,
        "Two endpoints and their group: what two endpoints may cost by themselves (owner-memory).",
    ),
    "router-memory-million": Bound(
        "value", "<=", 2.5, "A million mapped dialogs with both ends, in all processes that own their partitions."
    ),
    "spark-map-arrow": Bound(
        "ratio", ">=", 0.65, "Exactly once and answered, for a third more than a copy that may write a row twice."
    ),
    "spark-process": Bound("ratio", ">=", 0.5, "The same with any transformation of Spark in the middle."),
    "spark-route": Bound(
        "value",
        ">=",
        0,
        "No bound yet: a figure for planning, beside spark-process, which also sends answers.",
    ),
    "spark-ledger": Bound("value", ">=", 200_000, "The outcomes of a million messages of a busy queue, in 5 s."),
    "spark-read": Bound("ratio", ">=", 1.2, "A queue is read faster than Spark's own source reads a topic."),
    "spark-micro-batch": Bound(
        "value",
        "<=",
        0.8,
        "1,000 rows read, written and logged; a person waits for them. Spark's own logs take 0.15 s of it.",
    ),
    "spark-write": Bound(
        "ratio", ">=", 1.0, "200,000 rows, each once, as fast as Spark's own sink, which may write a row twice."
    ),
    "spark-write-large": Bound(
        "ratio", ">=", 0.7, "A million rows, each once, in one batch of a queue with four partitions."
    ),
}
