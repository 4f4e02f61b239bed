"""Whether a partition has a reader, judged by its journal and its consumer group, and how much waits for one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Final, NamedTuple

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.open_transactions import stalled
from konverse.bridge.owner.follower import UNREADABLE, Follower
from konverse.dialog.fold.journal import JournalHead
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted

from .membership import MEMBER, ConsumerGroups, Membership

LAG_MS: Final = 5_000
"""A live owner ingests data and shows it in Redis within this time, unless its only thread is in a handler."""


class ReadingState(NamedTuple):
    """The owner of a partition by its journal, and the data that waits to be ingested."""

    owner: bytes
    """Claim id of the last owner, which may be dead; empty when there never was one."""
    released: bool
    """The last owner has released the partition, or there never was one."""
    last_write_ms: int
    """Kafka's time of the newest valid record in the journal; 0: the journal is empty."""
    silent_s: float
    """Seconds since that record."""
    silence_timeout_s: float
    waiting: int
    """Offsets of the data log that no commit has ingested."""
    unread: int = 0
    """Messages that commits have ingested and no handler has received."""
    membership: Membership = MEMBER
    """The owner's consumer group, where the journal leaves a doubt whether the owner lives."""
    held_up: str = ""
    """Which records an open transaction of a foreign producer holds up, and how to fix it; empty if there is none."""

    overdue: int = 0
    """Offsets of `waiting` that are older than LAG_MS: a live owner that is not busy would have ingested them."""
    forged: int = 0
    """Contested records: same writer and counter as an earlier record, but other content."""
    forged_at: int | None = None
    """Offset of the last contested record, if known."""
    unreadable: str = ""
    """Why the logs of the partition cannot be read; then the other fields mean nothing. Empty if they can."""

    @property
    def silent(self) -> bool:
        """The owner has not released the partition, and its silence is longer than the timeout: it is dead."""
        return not self.released and self.silent_s > self.silence_timeout_s

    @property
    def doubtful(self) -> bool:
        """The journal alone does not tell whether the owner lives: it is silent, but not for long enough."""
        return not self.released and not self.silent and self.silent_s > LAG_MS / 1000

    @property
    def reader(self) -> bool | None:
        """The partition has a live owner; None when that is not known (`membership.unknown` says why)."""
        if self.released or self.silent or self.membership.left:
            return False
        return None if self.membership.unknown else True

    @property
    def stuck(self) -> bool:
        """The owner may be alive, but leaves data unread and writes nothing: it is busy, or it has died recently."""
        return self.reader is not False and self.overdue > 0 and self.silent_s > LAG_MS / 1000

    @property
    def since(self) -> datetime | None:
        """Time of the last owner's last record, if there is no reader; None if there may be one or never was."""
        if self.reader is not False or not self.last_write_ms:
            return None
        return datetime.fromtimestamp(self.last_write_ms // 1000, UTC)


def reading_state(head: JournalHead, waiting: int, now_ms: int, silence_timeout_s: float) -> ReadingState:
    """The reading state by the journal up to `head`, at the Kafka time `now_ms`."""
    return ReadingState(head.owner, head.clean, head.now_ms, silence_s(head, now_ms), silence_timeout_s, waiting)


def reading_of(kafka: Kafka, queue: Queue, number: int, following: Follower, groups: ConsumerGroups) -> ReadingState:
    """The reading state of a partition that `following` has folded. Raises KafkaUnavailable."""
    behind, now_ms = following.behind(), kafka_time_ms(kafka)
    state = reading_state(following.head, behind, now_ms, kafka.settings.silence_timeout_s)
    state = state._replace(unread=following.state.unread)
    if not (behind or state.doubtful):
        return state
    with closing(LogReader(kafka)) as log:
        due = log.offset_at(queue.topic, number, now_ms - LAG_MS) if behind else 0
        state = with_membership(state, (queue, number), log, groups)
    return state._replace(overdue=max(0, due - following.state.ingest_to))


def with_membership(
    state: ReadingState, place: tuple[Queue, int], log: LogReader, groups: ConsumerGroups
) -> ReadingState:
    """The state, with its owner's consumer group where the journal leaves a doubt. Raises KafkaUnavailable."""
    return state._replace(membership=groups.membership(*place, state.owner, log)) if state.doubtful else state


def reading_states(kafka: Kafka, queue: Queue) -> Iterator[ReadingState]:
    """The reading state of each partition of a queue; claims nothing. Raises KafkaUnavailable."""
    groups = ConsumerGroups(kafka)
    for number in range(queue.partitions):
        with Follower(kafka, queue, number) as following:
            try:
                folded = following.catch_up()
            except UNREADABLE as error:
                silence_timeout_s = kafka.settings.silence_timeout_s
                yield ReadingState(b"", True, 0, 0.0, silence_timeout_s, 0, unreadable=str(error))  # noqa: FBT003
                continue
            state = reading_of(kafka, queue, number, following, groups)
        held_up = stalled(kafka, queue.topic, number)
        state = state._replace(held_up="" if held_up is None else held_up.describe(queue.topic, number))
        yield state._replace(forged=folded.statistics.forged, forged_at=folded.recent.contested_last)


def silence_s(head: JournalHead, now_ms: int) -> float:
    """Seconds since the owner's last record in the journal; `now_ms` is Kafka's time."""
    return max(0, now_ms - head.now_ms) / 1000


def describe_stuck(state: ReadingState) -> str:
    """Text of the view and of `konverse why` about an owner that leaves data unread."""
    return (
        f"its owner has written nothing for {state.silent_s:,.0f} s, although "
        f"{counted(state.waiting, 'offset waits', 'offsets wait')}: it is busy or dead, and counts as dead after "
        f"{state.silence_timeout_s:,.0f} s"
    )


def describe_dead(state: ReadingState) -> str:
    """Text of the view and of `konverse why` about an owner that has died; empty if it has released the partition."""
    if not (state.silent or state.membership.left):
        return ""
    left = " has left its consumer group," if state.membership.left else ""
    return f"its owner has written nothing for {state.silent_s:,.0f} s,{left} and is dead"


def describe_unknown(state: ReadingState) -> str:
    """Text of the view and of `konverse why` about an owner that may be dead; empty if that is known."""
    unknown = state.membership.unknown
    return f"whether its owner lives is not known: {unknown}" if unknown else ""


def describe_unseen(offsets: int, unread: Collection[str]) -> str:
    """End of a text about an unknown conversation: data that no owner has ingested, and its queues without a reader."""
    if not offsets:
        return ""
    queues = f". No reader runs for {', '.join(map(repr, unread))}: start one (`konverse run`)" if unread else ""
    return f", or its BEGIN is in the {counted(offsets, 'offset')} of logs that no owner has ingested{queues}"


def describe_forged(forged: int, at: int | None) -> str:
    """Text of the view and of `konverse why` about records that a foreign client wrote in the name of a sender."""
    last = "" if at is None else f", the last one at offset {at:,}"
    records = counted(forged, "record has", "records have")
    return (
        f"FORGED: {records} the writer and counter of another record and different content{last}; all were received. "
        "`konverse verify` names both offsets of each pair; revoke the foreign client's right to write to "
        "the topic"
    )
