"""Mode `conversations`: each side of each conversation of a queue, from the folded partition and counts of its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa

from konverse.dialog.state.endpoint import NO_TIME, Endpoint, bytes_of
from konverse.schemas.identifiers import Role
from konverse.spark.connection.settings import tag_of
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.columns import TIMESTAMP, Column, handle
from konverse.spark.log.ingest import Ingest
from konverse.spark.log.topic import Topic

from .ledger import NOTHING, RecordCounter, SideCounts
from .queue_reader import QueuePartition, QueueReader


class SideRow(NamedTuple):
    """One side of a conversation; without an endpoint when the partition no longer has it."""

    conversation: bytes
    role: Role
    partition: int
    endpoint: Endpoint | None
    counts: SideCounts


def _of(read: Callable[[Endpoint], Any]) -> Callable[[SideRow], Any]:
    """Read from the endpoint; null for a side without one."""
    return lambda side: None if side.endpoint is None else read(side.endpoint)


def _micros(time_ms: int | None) -> int | None:
    return None if time_ms is None or time_ms == NO_TIME else time_ms * 1000


_TEXT: Final = ("string", pa.string())
_WHOLE: Final = ("bigint", pa.int64())
_BYTES: Final = ("binary", pa.binary())
_INT: Final = ("int", pa.int32())
_MOMENT: Final = ("timestamp", TIMESTAMP)

COLUMNS: Final[dict[str, Column[SideRow]]] = {
    "conversation": Column(*_BYTES, lambda side: side.conversation),
    "handle": Column(*_BYTES, lambda side: handle(side.conversation, side.role)),
    "role": Column(*_TEXT, lambda side: side.role.name),
    "state": Column(*_TEXT, _of(lambda endpoint: endpoint.state.name)),
    "service": Column(*_TEXT, _of(lambda endpoint: endpoint.service)),
    "far_service": Column(*_TEXT, _of(lambda endpoint: endpoint.far_service)),
    "contract": Column(*_TEXT, _of(lambda endpoint: endpoint.contract)),
    "conversation_group": Column(*_BYTES, _of(lambda endpoint: endpoint.group_id)),
    "priority": Column(*_INT, _of(lambda endpoint: endpoint.level)),
    "partition": Column(*_INT, lambda side: side.partition),
    "messages": Column(*_WHOLE, lambda side: side.counts.messages),
    "bytes": Column(*_WHOLE, lambda side: side.counts.bytes),
    "duplicates": Column(*_WHOLE, lambda side: side.counts.duplicates),
    "first_timestamp": Column(*_MOMENT, lambda side: _micros(side.counts.first_ms)),
    "last_timestamp": Column(*_MOMENT, lambda side: _micros(side.counts.last_ms)),
    "send_sequence": Column(*_WHOLE, _of(lambda endpoint: None if endpoint.sent < 0 else endpoint.sent)),
    "receive_sequence": Column(*_WHOLE, _of(lambda endpoint: endpoint.received)),
    "unread": Column(*_WHOLE, _of(lambda endpoint: len(endpoint.queue) + len(endpoint.urgent))),
    "unread_bytes": Column(*_WHOLE, _of(lambda endpoint: bytes_of(endpoint.queue) + bytes_of(endpoint.urgent))),
    "attempts": Column(*_INT, _of(lambda endpoint: endpoint.attempts)),
    "suspended": Column("boolean", pa.bool_(), _of(lambda endpoint: endpoint.suspended)),
    "dialog_timer": Column(*_MOMENT, _of(lambda one: None if one.clock is None else _micros(one.clock.timer_ms))),
    "lifetime": Column(*_MOMENT, _of(lambda one: None if one.clock is None else _micros(one.clock.expires_ms))),
}
"""Every column, in the order in which a reader gives them."""


class ConversationsReader(QueueReader[SideRow]):
    """A row for each side that has an endpoint in the queue, or records in its log."""

    columns = COLUMNS

    def row_sources(self, part: QueuePartition) -> list[SideRow]:
        """The sides of one partition, with counts of the records for them."""
        came = self._counts(part)
        return _sides(part.partition, self.fold(part).live(), came)

    def _counts(self, part: QueuePartition) -> dict[tuple[bytes, Role], SideCounts]:
        counting = RecordCounter()
        with Topic(self._settings) as topic:
            bound = topic.bounds([part.partition])[part.partition]
            ingest = Ingest(Acceptance(cut=bound.first > 0), tag=tag_of(self._settings, part.queue))
            for messages in topic.chunks(part.partition, bound.first, bound.end):
                for rows in ingest.take(messages):
                    counting.add(rows)
        return counting.result()


def _sides(partition: int, live: list[Endpoint], came: dict[tuple[bytes, Role], SideCounts]) -> list[SideRow]:
    """Sides with an endpoint first, then the others."""
    sides = [
        SideRow(one.conversation, one.role, partition, one, came.pop((one.conversation, one.role), NOTHING))
        for one in live
    ]
    return [
        *sides,
        *(SideRow(conversation, role, partition, None, counts) for (conversation, role), counts in came.items()),
    ]
