"""Mode `returned`: messages that came back to their home, as their receivers had ended the conversation.

They wait in the mailbox of the partition where their conversation lives, in the order in which they came back. A driver
that goes on in conversations of earlier writes looks for such rows behind each decision (`look_for`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Message

from konverse.dialog.mailbox import Bounced
from konverse.schemas.envelope import CONVERSATION_AT, HEADER, PREFIX_BYTES, decode
from konverse.schemas.errors import KonverseError, MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import RETURNED_LOOK_RECORDS_MAX
from konverse.schemas.records import Begin, Kind, Role

from .columns import Column
from .queue_reader import Part, QueueReader
from .settings import CLIENT_PREFIX, parse
from .topic import Topic
from .write_plan import VERSION
from .write_settings import WriteSettings

log: Final = logging.getLogger("konverse.spark")

LOOK_BACK_MS: Final = 10_000
"""What came back so long before a write is told by it, too: rows of the write before come back when that is over."""

LOOK_WAIT_S: Final = 0.5
"""A write that Spark commits once waits so long for rows to come back: a target that works needs less."""

_CONVERSATION: Final = slice(CONVERSATION_AT, PREFIX_BYTES)
_BEGINNING: Final = frozenset({Kind.PENDING << 1, Kind.BEGIN << 1})


class Row(NamedTuple):
    """A message that came back, and what is known of its conversation."""

    partition: int
    position: int
    bounced: Bounced
    begin: Begin | None
    """How it was begun; None when nothing tells it any more."""
    state: str | None
    """Of our side; None when it is gone."""


_TEXT: Final = ("string", pa.string())
_BYTES: Final = ("binary", pa.binary())
_WHOLE: Final = ("bigint", pa.int64())

COLUMNS: Final[dict[str, Column[Row]]] = {
    "conversation": Column(*_BYTES, lambda row: row.bounced.conversation),
    "state": Column(*_TEXT, lambda row: row.state),
    "from_service": Column(*_TEXT, lambda row: None if row.begin is None else row.begin.from_service),
    "to_service": Column(*_TEXT, lambda row: None if row.begin is None else row.begin.to_service),
    "contract": Column(*_TEXT, lambda row: None if row.begin is None else row.begin.contract),
    "key": Column(*_BYTES, lambda row: None if row.begin is None else row.begin.key),
    "message_type": Column(*_TEXT, lambda row: row.bounced.message_type),
    "body": Column(*_BYTES, lambda row: row.bounced.body),
    "reason": Column(*_TEXT, lambda row: row.bounced.bounce.reason.name),
    "writer": Column(*_BYTES, lambda row: row.bounced.bounce.writer),
    "counter": Column(*_WHOLE, lambda row: row.bounced.bounce.counter),
    "partition": Column("int", pa.int32(), lambda row: row.partition),
    "position": Column(*_WHOLE, lambda row: row.position),
}
"""Every column, in the order in which a reader gives them."""


class ReturnedReader(QueueReader[Row]):
    """A row for each message that waits in the mailboxes of a queue."""

    columns = COLUMNS

    def things(self, part: Part) -> list[Row]:
        """The mailbox of one partition, in the order in which its messages came back."""
        state = self.fold(part)
        back = [one for one in state.mailbox.entries.values() if one.message_type]  # others are transactions
        wanted = {one.conversation for one in back}
        begun = self._begun(part.partition, wanted) if wanted else {}
        sides = {conversation: state.endpoint(Role.INITIATOR, conversation) for conversation in wanted}
        states = {conversation: None if side is None else side.state.name for conversation, side in sides.items()}
        return [
            Row(part.partition, position, one, begun.get(one.conversation), states[one.conversation])
            for position, one in enumerate(back)
        ]

    def _begun(self, partition: int, wanted: set[bytes]) -> dict[bytes, Begin]:
        """How conversations were begun, as far as the log still says so."""
        begun: dict[bytes, Begin] = {}
        with Topic(self._settings) as topic:
            bound = topic.bounds([partition])[partition]
            for messages in topic.chunks(partition, bound.first, bound.end):
                for header in map(_header, messages):
                    if header[:1] and header[0] in _BEGINNING and header[_CONVERSATION] in wanted:
                        begin = _begin(header)
                        if begin is not None:
                            begun[header[_CONVERSATION]] = begin
        return begun


def _header(message: Message) -> bytes:
    """The header of a record that is konverse's own; empty when it has none."""
    headers: Any = message.headers() or ()
    found = next((value for name, value in headers if name == HEADER), None)
    return found if isinstance(found, bytes) else b""


def _begin(header: bytes) -> Begin | None:
    try:
        return decode(header).suffix.begin
    except MalformedRecord:
        return None


def look_for(settings: WriteSettings, homes: Sequence[Address], began_ms: int, wait_s: float) -> int:
    """How many rows have come back to these partitions since shortly before a write began, which is logged.

    Nothing of the write depends on it: when Kafka does not say, 0.
    """
    time.sleep(wait_s)
    client = {CLIENT_PREFIX + name: value for name, value in settings.client.items()}
    place = parse({**client, "bootstrap": settings.bootstrap, "topic": homes[0].topic})
    try:
        with Topic(place) as topic:
            count = _came_back(topic, [home.partition for home in homes], began_ms - LOOK_BACK_MS)
    except KonverseError as error:
        log.info("whether rows came back is not known: %s", error)
        return 0
    if count:
        log.warning(
            "%d rows of this write, or of one shortly before it, came back: their targets have ended the conversations "
            "of their keys. What is written under these keys comes back until the queue of service %r was read and "
            "its sides have ended, too. Read that queue with 'mode' = 'returned' to get the rows, and write them again "
            "behind that",
            count,
            settings.from_service,
        )
    return count


def _came_back(topic: Topic, partitions: list[int], since_ms: int) -> int:
    """Of as many records at the ends as may be looked at."""
    bounds = topic.bounds(partitions)
    since = topic.since(dict.fromkeys(partitions, since_ms))
    count = 0
    for partition in partitions:
        end = bounds[partition].end
        start = max(since[partition], bounds[partition].first, end - RETURNED_LOOK_RECORDS_MAX)
        for messages in topic.chunks(partition, start, end):
            count += sum(map(_is_row_that_came_back, map(_header, messages)))
    return count


def _is_row_that_came_back(header: bytes) -> bool:
    """A BOUNCE on a conversation whose id a plan has made: no other ids are of that version."""
    return len(header) > PREFIX_BYTES and header[0] == Kind.BOUNCE << 1 and header[CONVERSATION_AT + 6] >> 4 == VERSION
