"""Whether a partition has a reader, as its journal says it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import Following
from konverse.dialog.fold.journal import JournalHead
from konverse.schemas.catalog.objects import Queue


class ReadingState(NamedTuple):
    """Who reads a partition, and what waits before its journal."""

    owner: bytes
    """The one that the journal names last, which may be gone; empty when there never was one."""
    released: bool
    """The last owner has released the partition, or there never was one."""
    last_write_ms: int
    """Kafka's time of the newest record in the journal that counts; 0: the journal is empty."""
    silent_s: float
    """How long ago that was."""
    silence_timeout_s: float
    waiting: int
    """Offsets of the data log that no owner has ingested."""
    held_up: str = ""
    """What a stranger's open transaction holds up, and what mends it; empty when there is none."""

    forged: int = 0
    """Contested records: they have the writer and counter of another one, and other content."""
    forged_at: int | None = None
    """Offset of the last of them, where it is known."""

    @property
    def silent(self) -> bool:
        """The owner has released nothing, and has written nothing for so long that it is dead."""
        return not self.released and self.silent_s > self.silence_timeout_s

    @property
    def reader(self) -> bool:
        """The partition has an owner that lives."""
        return not self.released and not self.silent

    @property
    def since(self) -> datetime | None:
        """The last sign of a reader, where there is none now; None where there never was one."""
        if self.reader or not self.last_write_ms:
            return None
        return datetime.fromtimestamp(self.last_write_ms // 1000, UTC)


def reading_state(head: JournalHead, waiting: int, now_ms: int, silence_timeout_s: float) -> ReadingState:
    """What the journal up to `head` says at `now_ms`, a time of Kafka."""
    return ReadingState(head.owner, head.clean, head.now_ms, silence_s(head, now_ms), silence_timeout_s, waiting)


def reading_states(kafka: Kafka, queue: Queue) -> Iterator[ReadingState]:
    """That of each partition of a queue, without claiming anything. Raises what `Following.catch_up` raises."""
    for number in range(queue.partitions):
        with Following(kafka, queue, number) as following:
            folded = following.catch_up()
            behind, now_ms = following.behind(), kafka_time_ms(kafka)
            state = reading_state(following.head, behind, now_ms, kafka.settings.silence_timeout_s)
        held_up = stalled(kafka, queue.topic, number)
        state = state._replace(held_up="" if held_up is None else held_up.said(queue.topic, number))
        yield state._replace(forged=folded.statistics.forged, forged_at=folded.recent.contested_last)


def silence_s(head: JournalHead, now_ms: int) -> float:
    """How long, in seconds, the owner of a partition has written nothing into its journal; `now_ms` is Kafka's time."""
    return max(0, now_ms - head.now_ms) / 1000


def said_of_forged(forged: int, at: int | None) -> str:
    """What the view and `konverse why` say of records that a stranger wrote in the name of a sender."""
    last = "" if at is None else f", the last one at offset {at:,}"
    records = f"{forged:,} record{'s have' if forged > 1 else ' has'}"
    return (
        f"FORGED: {records} the writer and counter of another one and other content{last}; all were received. "
        "`konverse verify` names both offsets of each pair; take the right to write to the topic away from the stranger"
    )
