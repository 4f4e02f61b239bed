"""Lists the conversations of a database, and finds forgotten ("leaked") sides. `Operations.end_leaked` ends them.

A side is leaked when it would stay open for ever, because an application has forgotten it (`dialog.queries.leaks`
lists the causes). A side is judged together with its peer, so every partition is folded first.

A conversation with recent activity is not leaked. No endpoint stores the time of its last use, because that would make
every message more expensive. Instead, the last part of the data log and of the journal is read for the suspects, and
each conversation that appears in a recent record is cleared. All times are those of Kafka's clock. A data record may
carry a timestamp of its sender's clock, which may be wrong by days. Such a record counts as being as old as the COMMIT
that has ingested it, and as recent until it is ingested.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from pydantic import SkipValidation

from konverse.bridge.kafka.clients import Kafka, LogTruncated
from konverse.bridge.kafka.columns import columns_of, journal_record
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.owner.follower import partitions_of
from konverse.bridge.views.endpoints import time_of
from konverse.bridge.views.partitions import Folded, StateReader
from konverse.bridge.views.view_result import Source, View
from konverse.dialog.fold.journal import JournalFeed
from konverse.dialog.queries.leaks import Cause, SideFacts, cause_of, explained, side_of, worked_on
from konverse.dialog.rules.loss import describe_loss
from konverse.schemas.catalog.objects import KEEP_FOR_EVER, Queue
from konverse.schemas.errors import AccessDenied, BadInput, KafkaUnavailable
from konverse.schemas.identifiers import Address, Role, journal_topic
from konverse.schemas.wire.envelope import CONVERSATION_AT, PREFIX_BYTES
from konverse.schemas.wire.journal import Commit

log: Final = logging.getLogger("konverse.operator")

SILENT_S: Final = 3_600.0
"""Default silence after which a conversation may count as forgotten."""
COMMITS_READ: Final = 500
"""Journal records that the first search for an earlier COMMIT reads; each further search reads four times as many."""


@dataclass(frozen=True)
class ConversationSide:
    """One side of a conversation, and the partition where it lives."""

    queue: str
    partition: int
    conversation: UUID
    role: str
    """"initiator" or "target"."""
    service: str
    far_service: str
    contract: str
    state: str
    """Two letters, as in `sys.conversation_endpoints`."""
    received: int
    """Number of messages that arrived, EndDialog included."""
    unread: int
    """Number of waiting messages; EndDialog, Error and DialogTimer included."""
    timer: datetime | None
    """When its timer fires; None: it is not set."""
    lifetime: datetime | None
    """When the conversation expires; None: never."""


@dataclass(frozen=True)
class Leaked(ConversationSide):
    """A side that an application has forgotten: it would stay open for ever."""

    silent_s: float
    """The conversation had no activity for at least this many seconds."""
    cause: str
    """"end unread", "not ended", "fire and forget", "end not passed on", "peer gone", "never answered" or "silent"."""
    why: str
    """The cause as a sentence."""
    remedy: str
    """What to do about it, other than ending the conversation."""


class _Found(NamedTuple):
    queue: Queue
    partition: int
    endpoint: int
    """Index of the endpoint."""
    side: SideFacts
    peer_at: Address
    """Address of the peer, to which its outputs go."""


class Sides:
    """All sides of the conversations of these queues, as an owner that starts now would find them."""

    def __init__(self, looking: StateReader, queues: Iterable[Queue], known: Mapping[str, Queue]) -> None:
        """Folds every partition, and those of other databases in which peers live. `known`: queues by data topic.

        A partition of another database is logged and left out if the right to read it is missing.
        Raises KafkaUnavailable, PartitionHalted when logs contradict themselves, TopicMismatch for replaced topics.
        """
        self._found: list[_Found] = []
        self._elsewhere: list[_Found] = []
        """Sides in other databases. They are judged and listed there, and only compared with their peers here."""
        self._by_side: dict[tuple[Role, bytes], _Found] = {}
        self._moved: set[tuple[Role, bytes]] = set()
        """Sides that have moved away from a partition. If such a side is found nowhere, it is on its way."""
        self._unseen: set[Address] = set()
        """Partitions that were not read to the end of their data."""
        self._losses: dict[Address, str] = {}
        """Partition that has lost data -> a sentence about it."""
        self._sources: list[Source] = []
        own = [*queues]
        for place in partitions_of(own):
            folded = looking.fold(*place)
            self._add(folded, self._found)
            self._sources.append(folded.source())
        topics = {queue.topic for queue in own}
        for address in dict.fromkeys(one.peer_at for one in self._found):
            queue = known.get(address.topic)
            if queue is not None and queue.topic not in topics and queue.address(address.partition) == address:
                try:
                    self._add(looking.fold(queue, address.partition, own=False), self._elsewhere)
                except AccessDenied as error:
                    self._unseen.add(address)
                    log.warning(
                        "%s/%d, of another database, was not read; sides whose peers live there are not judged: %s",
                        address.topic,
                        address.partition,
                        error,
                    )

    def _add(self, folded: Folded, sides: list[_Found]) -> None:
        queue, partition, ahead, _ = folded
        for endpoint in ahead.state.live():
            found = _Found(queue, partition, endpoint.index, side_of(endpoint), endpoint.stream.address)
            sides.append(found)
            self._by_side[endpoint.role, endpoint.conversation] = found
        self._moved.update(ahead.state.moves.stubs)
        if loss := describe_loss(ahead.state):
            self._losses[queue.address(partition)] = loss
        if ahead.unseen:
            self._unseen.add(queue.address(partition))

    def elsewhere(self, conversations: Collection[bytes]) -> list[tuple[Queue, int]]:
        """Partitions of other databases in which these conversations have a side."""
        places = ((one.queue, one.partition) for one in self._elsewhere if one.side.conversation in conversations)
        return [*dict.fromkeys(places)]

    def all(self, queue: Queue | None = None) -> View[ConversationSide]:
        """All sides, or those of one queue."""
        wanted = [one for one in self._found if queue is None or one.queue.name == queue.name]
        return View([ConversationSide(*_told(one)) for one in wanted], self._sources)

    def leaked(self, kafka: Kafka, now_ms: int, older_than_s: float, queue: Queue | None = None) -> View[Leaked]:
        """The leaked sides of one queue, or of all; `now_ms` is Kafka's time, like the timestamps of records.

        A side is not judged when its partition or its peer's was not read to the end of the data (`Source.unseen`).
        """
        _check_kept({one.queue.topic: one.queue for one in (*self._found, *self._elsewhere)}.values(), older_than_s)
        since_ms = round(now_ms - older_than_s * 1000)
        suspects = {one.side.conversation: None for one, _ in self._suspects()}
        silent = self._silent(kafka, [*suspects], since_ms) if suspects else set[bytes]()
        rows = [
            Leaked(*_told(one), older_than_s, cause.value, *self._explained(one, cause))
            for one, cause in self._suspects()
            if one.side.conversation in silent and (queue is None or one.queue.name == queue.name)
        ]
        return View(rows, self._sources)

    def _explained(self, one: _Found, cause: Cause) -> tuple[str, str]:
        """Why a side is leaked, and what to do. If it has no peer, also which data the peer's partition has lost."""
        why, remedy = explained(one.side, cause)
        loss = self._losses.get(one.peer_at) if self._peer(one) is None else None
        return f"{why} {loss}" if loss else why, remedy

    def _suspects(self) -> Iterator[tuple[_Found, Cause]]:
        """Sides that are leaked if their conversation had no recent activity, each with the cause."""
        for one in self._found:
            peer = self._peer(one)
            if peer is None and self._other(one) in self._moved:
                continue
            known = self._unseen.isdisjoint((one.queue.address(one.partition), one.peer_at))
            cause = cause_of(one.side, None if peer is None else peer.side)
            if known and cause is not None:
                yield one, cause

    def _silent(self, kafka: Kafka, suspects: list[bytes], since_ms: int) -> set[bytes]:
        """The suspects that appear in no record since `since_ms`, in any partition where one of their sides lives."""
        silent = set(suspects)
        places: dict[tuple[str, int], list[_Found]] = {}
        for one in (*self._found, *self._elsewhere):
            if one.side.conversation in silent:
                places.setdefault((one.queue.topic, one.partition), []).append(one)
        with closing(LogReader(kafka)) as reader:
            for (_, partition), found in places.items():
                here, queue = {one.endpoint: one.side.conversation for one in found}, found[0].queue
                for conversations in active(reader, queue, partition, here, since_ms):
                    silent -= conversations
                    if silent.isdisjoint(here.values()):
                        break
        return silent

    def _peer(self, one: _Found) -> _Found | None:
        return self._by_side.get(self._other(one))

    @staticmethod
    def _other(one: _Found) -> tuple[Role, bytes]:
        return Role.TARGET if one.side.role is Role.INITIATOR else Role.INITIATOR, one.side.conversation


def _check_kept(queues: Iterable[Queue], older_than_s: float) -> None:
    """Raise BadInput for a period longer than the logs are kept: activity in deleted records cannot be known."""
    for queue in queues:
        if queue.keep_ms != KEEP_FOR_EVER and older_than_s * 1000 > queue.keep_ms:
            raise BadInput(
                f"queue {queue.name!r} keeps received messages for {queue.keep_ms / 1000:,.0f} s, and earlier "
                f"activity is unknown; ask for at most {queue.keep_ms // 1000:,} s"
            )


def _told(one: _Found) -> tuple[str, int, UUID, str, str, str, str, str, int, int, datetime | None, datetime | None]:
    side = one.side
    return (
        one.queue.name,
        one.partition,
        UUID(bytes=side.conversation),
        side.role.name.lower(),
        side.service,
        side.far_service,
        side.contract,
        side.state.code,
        side.received,
        side.unread + side.end_waits,
        time_of(side.timer_ms),
        time_of(side.expires_ms),
    )


Leaks = Annotated[Iterable[Leaked], SkipValidation]
"""The result of `leaked`, or a part of it. pydantic accepts no View as a list, so `end_leaked` checks it."""


def leaks_of(leaked: object) -> list[Leaked]:
    """The leaks in an argument of `end_leaked`. Raises BadInput for anything else."""
    given = [*leaked] if isinstance(leaked, Iterable) else []
    found = [one for one in given if isinstance(one, Leaked)]
    if len(found) < len(given) or not isinstance(leaked, Iterable):
        raise BadInput(f"end_leaked takes the result of `broker.operations.leaked`, not {leaked!r}")
    return found


def key_of(one: Leaked) -> tuple[UUID, str, str, int, int]:
    """The identity of a side, and the values that change with any activity on it."""
    return one.conversation, one.role, one.state, one.received, one.unread


def active(
    reader: LogReader, queue: Queue, partition: int, names: Mapping[int, bytes], since_ms: int
) -> Iterator[set[bytes]]:
    """Conversations that appear in records of a partition since `since_ms`: a set for each chunk read.

    `names` maps the index of an endpoint to its conversation. If the index belonged to another endpoint before, the
    records of that one count as activity too; an active conversation never seems silent. Raises KafkaUnavailable.
    """
    journal = journal_topic(queue.topic, queue.subscription)
    try:
        young = reader.offset_at(journal, partition, since_ms)
        arrived = _arrived_before(reader, queue, partition, young)
        _, end = reader.ends(queue.topic, partition)
        for messages in _chunks(reader, queue.topic, partition, arrived, end):
            recent = [message for message in messages if not _is_old(message, since_ms)]
            headers = columns_of(recent)[0].headers
            yield {header[CONVERSATION_AT:PREFIX_BYTES] for header in headers if header is not None}
        _, end = reader.ends(journal, partition)
        found = set[bytes]()
        for commit in _commits(reader, journal, partition, young, end):
            found.update(conversation for conversation, _ in commit.operations.begins)
            found.update(names[index] for index in worked_on(commit.operations) if index in names)
        yield found
    except LogTruncated as error:
        raise KafkaUnavailable(f"{queue.topic}/{partition} was truncated while it was being read; try again") from error


def _is_old(message: Message, since_ms: int) -> bool:
    """Whether Kafka appended the record before `since_ms`; False if its timestamp is of the sender's clock."""
    kind, stamp_ms = message.timestamp()
    return kind == TIMESTAMP_LOG_APPEND_TIME and stamp_ms < since_ms


def _arrived_before(reader: LogReader, queue: Queue, partition: int, young: int) -> int:
    """Data offset below which each record arrived before the journal record at `young` was written.

    It is the highest offset to which an earlier COMMIT has ingested. If the journal holds no such COMMIT, it is the
    beginning of the data log, so that records of any age count as recent.
    """
    journal = journal_topic(queue.topic, queue.subscription)
    first, _ = reader.ends(journal, partition)
    end, count = young, COMMITS_READ
    while end > first:
        start = max(first, end - count)
        ingested = max((one.ingest_to for one in _commits(reader, journal, partition, start, end)), default=0)
        if ingested:
            return ingested
        end, count = start, 4 * count
    return reader.ends(queue.topic, partition)[0]


def _commits(reader: LogReader, journal: str, partition: int, start: int, end: int) -> Iterator[Commit]:
    feed = JournalFeed(f"{journal}/{partition}")
    for messages in _chunks(reader, journal, partition, start, end):
        for _, decision in feed.decisions([*map(journal_record, messages)]):
            if isinstance(decision, Commit):
                yield decision


def _chunks(reader: LogReader, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
    with closing(reader.read(topic, partition, start, end)) as chunks:
        for messages, _ in chunks:
            yield messages
