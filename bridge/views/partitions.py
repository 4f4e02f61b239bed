"""The state of partitions for views: folded from their logs, or read from Redis where it is fresh enough.

Folding a partition reads its newest snapshot, the journal after it and the waiting data, and briefly needs memory for
the whole state. It claims nothing and delays no reader.

Redis is fresh enough when it holds the whole partition as the last owner wrote it, and that owner has ingested all data
older than LAG_MS. A dead owner must also have written no journal record after the state in Redis. Otherwise Redis is
empty or behind, or has evicted rows, and the logs are folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import redis

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.judge import CatalogJudge
from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.clock import kafka_time_ms
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.kafka.topics import Topics
from konverse.bridge.owner.follower import UNREADABLE, Ahead, Follower
from konverse.bridge.redis.client import connect_redis, refusal
from konverse.bridge.redis.view import Header, ViewStore
from konverse.bridge.validation.validator import Validator
from konverse.dialog.owner.view import ViewRow, field_of, pack, unpack
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import TopicMismatch
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.wire.journal import Commit

from .membership import ConsumerGroups, decision_of
from .reading_state import LAG_MS, ReadingState, reading_state, with_membership
from .view_result import Source

LAST_RECORDS: Final = 16
"""Number of journal records searched for the last COMMIT. It is further back only when owners change constantly."""

NO_REDIS: Final = "no Redis is configured"
MISSING: Final = "Redis does not have all of it"
BEHIND: Final = "Redis is behind the logs"


class Folded(NamedTuple):
    """A partition, folded from its logs."""

    queue: Queue
    partition: int
    ahead: Ahead
    now_ms: int
    """Kafka's time."""

    def source(self, reason: str = "") -> Source:
        """The `Source` of rows made from this state; `reason` says why Redis was not used."""
        return Source(self.queue.name, self.partition, from_redis=False, reason=reason, unseen=self.ahead.unseen)


class StateReader:
    """Reads the state of partitions, one after the other. Close it after use."""

    def __init__(self, kafka: Kafka, catalog: Catalog, validator: Validator, redis_url: str | None) -> None:
        self._kafka = kafka
        self._silence_timeout_s = kafka.settings.silence_timeout_s
        self._judge = CatalogJudge(catalog, validator, predicts=True)
        self._redis = connect_redis(redis_url) if redis_url else None
        self._trouble = "" if redis_url else NO_REDIS
        """Why Redis is not used (any more); empty while it is."""
        self._reader: LogReader | None = None
        self._groups = ConsumerGroups(kafka)

    def fold(self, queue: Queue, partition: int, *, own: bool = True) -> Folded:
        """The partition as an owner that starts now would find it.

        For a queue of another database `own` is False: the catalog by which its messages are judged is not known here,
        so none counts as rejected. Raises KafkaUnavailable when Kafka does not answer, PartitionHalted when the logs
        contradict themselves, TopicMismatch when the topics are no longer the queue's.
        """
        with Follower(self._kafka, queue, partition) as following:
            now_ms = kafka_time_ms(self._kafka)
            judge = self._judge if own else None
            return Folded(queue, partition, following.fold_uncommitted(judge, now_ms), now_ms)

    def shown(self, queue: Queue, partition: int) -> list[ViewRow] | str:
        """The rows in Redis, or a text that says why they cannot be used. Raises KafkaUnavailable."""
        if self._redis is None or self._trouble:
            return self._trouble
        try:
            found = ViewStore(self._redis, queue).whole(partition)
        except redis.RedisError as error:
            self._trouble = refusal(error)
            return self._trouble
        if found is None:
            return MISSING
        header, rows = found
        now = _Present(kafka_time_ms(self._kafka), self._silence_timeout_s, self._groups)
        return rows if _is_fresh(self._log, (queue, partition), header, now) else BEHIND

    def no_owner_reason(self, folded: Folded) -> str:
        """Why the outputs of a partition are not being sent; empty unless it is known that no owner lives."""
        where = f"{folded.queue.name}/{folded.partition}"
        state = reading_state(folded.ahead.head, 0, folded.now_ms, self._silence_timeout_s)
        if state.released:
            return f"{where} has no owner"
        if state.doubtful:
            state = with_membership(state, (folded.queue, folded.partition), self._log, self._groups)
        return f"the owner of {where} is silent for {state.silent_s:,.0f} s" if state.reader is False else ""

    @property
    def _log(self) -> LogReader:
        if self._reader is None:
            self._reader = LogReader(self._kafka)
        return self._reader

    def close(self) -> None:
        """Close the clients."""
        if self._redis is not None:
            self._redis.close()
        if self._reader is not None:
            self._reader.close()


class PartitionView(NamedTuple):
    """The endpoints of a partition as of its last COMMIT."""

    header: Header | None
    """None: the partition never had an owner."""
    rows: list[ViewRow]
    reason: str = ""
    """Why the logs were folded; empty when the rows come from Redis."""
    overdue: bool = False
    """Data that is older than LAG_MS waits to be ingested."""


class ViewReader:
    """Reads the views of partitions from Redis, and folds the logs where Redis is behind. Close it after use."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._topics = Topics(kafka)
        self._reader = LogReader(kafka)
        self._groups = ConsumerGroups(kafka)

    def read(self, store: ViewStore, queue: Queue, partition: int) -> PartitionView:
        """The whole view of a partition. Raises redis.RedisError, and the errors of `Follower.catch_up`."""
        found = store.whole(partition)
        if found is None:
            return self._folded(queue, partition, MISSING)
        return self._checked(queue, partition, PartitionView(*found))

    def find(
        self, store: ViewStore, queue: Queue, conversation: bytes
    ) -> Iterator[tuple[int, PartitionView | Exception]]:
        """Partition and view of a conversation's sides, or the error of a partition that cannot be read.

        Raises redis.RedisError, KafkaUnavailable.
        """
        try:
            self._topics.same_queue(queue)
        except TopicMismatch as error:
            yield 0, error
            return
        journal = journal_topic(queue.topic, queue.subscription)
        sides = store.find(conversation)
        for partition in range(queue.partitions):
            header = store.header(partition)
            if header is None and not self._reader.ends(journal, partition)[1]:
                continue  # it never had an owner
            try:
                if header is None or not header.complete or store.missing(partition) is not None:
                    shown = self._folded(queue, partition, MISSING)
                else:
                    rows = [row for number, row in sides if number == partition]
                    shown = self._checked(queue, partition, PartitionView(header, rows))
            except UNREADABLE as error:
                yield partition, error
                continue
            rows = [row for row in shown.rows if row.conversation.bytes == conversation]
            if rows:
                yield partition, shown._replace(rows=rows)

    def close(self) -> None:
        """Close the client."""
        self._reader.close()

    def _checked(self, queue: Queue, partition: int, shown: PartitionView) -> PartitionView:
        """The view from Redis, or folded from the logs if Redis is behind them."""
        assert shown.header is not None
        now_ms = kafka_time_ms(self._kafka)
        now = _Present(now_ms, self._kafka.settings.silence_timeout_s, self._groups)
        ingested = _ingested_to(self._reader, (queue, partition), shown.header, now)
        if ingested is None:
            return self._folded(queue, partition, BEHIND)
        return shown._replace(overdue=self._reader.offset_at(queue.topic, partition, now_ms - LAG_MS) > ingested)

    def _folded(self, queue: Queue, partition: int, reason: str) -> PartitionView:
        with Follower(self._kafka, queue, partition) as following:
            state, head = following.catch_up(), following.head
            rows = rows_of(state, head.offset)
            overdue = self._reader.offset_at(queue.topic, partition, kafka_time_ms(self._kafka) - LAG_MS)
        if head.claim_offset < 0:
            return PartitionView(None, [], overdue=overdue > 0)
        header = Header(head.offset, head.claim_offset, head.owner.hex(), state.unread, len(rows), complete=True)
        return PartitionView(header, rows, reason, overdue > state.ingest_to)


def rows_of(state: Partition, journal_offset: int) -> list[ViewRow]:
    """The rows of a partition's endpoints, as Redis holds them after this journal record."""
    offset = journal_offset.to_bytes(8)
    return [unpack(field_of(one), offset + pack(one)) for one in state.live()]


class _Present(NamedTuple):
    """The facts that tell a living owner from a dead one."""

    ms: int
    """Kafka's time."""
    silence_timeout_s: float
    groups: ConsumerGroups


def _is_fresh(reader: LogReader, place: tuple[Queue, int], header: Header, now: _Present) -> bool:
    """Whether Redis shows the present state: that of the journal, which has ingested all data older than LAG_MS."""
    queue, partition = place
    ingested = _ingested_to(reader, place, header, now)
    return ingested is not None and reader.offset_at(queue.topic, partition, now.ms - LAG_MS) <= ingested


def _ingested_to(reader: LogReader, place: tuple[Queue, int], header: Header, now: _Present) -> int | None:
    """The data offset that the state in Redis has ingested to; None if Redis does not show the state of the journal.

    A live owner, or one that has released, may have written further records that change no endpoint, so the journal
    offset in the header need not be the last one. For a dead owner it must be.
    """
    queue, partition = place
    journal = journal_topic(queue.topic, queue.subscription)
    begin, end = reader.ends(journal, partition)
    start = max(begin, end - LAST_RECORDS)
    try:
        records = [one for chunk, _ in reader.read(journal, partition, start, end) for one in chunk]
    except LogTruncated:
        return None
    decisions = [(one, decision) for one in records if (decision := decision_of(one)) is not None]
    last, decided = decisions[-1] if decisions else (None, None)
    if last is None or decided is None or decided.owner.hex() != header.owner:
        return None
    commit = next((one for _, one in reversed(decisions) if isinstance(one, Commit)), None)
    if commit is None and start > 0:
        return None
    released = isinstance(decided, Commit) and decided.release
    written_ms = last.timestamp()[1]
    silent_s = max(0, now.ms - written_ms) / 1000
    state = ReadingState(decided.owner, released, written_ms, silent_s, now.silence_timeout_s, 0)
    unshown = not released and header.journal_offset != last.offset()
    if unshown and with_membership(state, place, reader, now.groups).reader is False:
        return None
    return commit.ingest_to if commit else 0
