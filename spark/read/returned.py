"""Mode `returned`: messages that were bounced to their home, because the receiver had ended the conversation.

They wait in the mailbox of the partition where their conversation lives, in the order in which they came back.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Message

from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import CONVERSATION_AT, HEADER, PREFIX_BYTES, decode
from konverse.schemas.wire.records import Begin, Kind
from konverse.spark.log.columns import Column
from konverse.spark.log.topic import Topic

from .queue_reader import QueuePartition, QueueReader

_CONVERSATION: Final = slice(CONVERSATION_AT, PREFIX_BYTES)
_BEGINNING: Final = frozenset({Kind.PENDING << 1, Kind.BEGIN << 1})


class ReturnedRow(NamedTuple):
    """A message that came back, and its conversation."""

    partition: int
    position: int
    bounced: Bounced
    begin: Begin | None
    """How the conversation was begun; None when truncation has deleted its BEGIN, and when a handler began it.

    The BEGIN of a handler is in the journal only.
    """
    state: str | None
    """State of the initiator's endpoint; None when it is gone."""


_TEXT: Final = ("string", pa.string())
_BYTES: Final = ("binary", pa.binary())
_WHOLE: Final = ("bigint", pa.int64())

COLUMNS: Final[dict[str, Column[ReturnedRow]]] = {
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


class ReturnedReader(QueueReader[ReturnedRow]):
    """A row for each message that waits in the mailboxes of a queue."""

    columns = COLUMNS

    def row_sources(self, part: QueuePartition) -> list[ReturnedRow]:
        """The mailbox of one partition, in the order in which its messages came back."""
        state = self.fold(part)
        back = [one for one in state.mailbox.entries.values() if one.message_type]  # transactions have no type
        wanted = {one.conversation for one in back}
        begun = self._begun(part, wanted) if wanted else {}
        sides = {conversation: state.endpoint(Role.INITIATOR, conversation) for conversation in wanted}
        states = {conversation: None if side is None else side.state.name for conversation, side in sides.items()}
        return [
            ReturnedRow(part.partition, position, one, begun.get(one.conversation), states[one.conversation])
            for position, one in enumerate(back)
        ]

    def _begun(self, part: QueuePartition, wanted: set[bytes]) -> dict[bytes, Begin]:
        """How these conversations were begun, as far as the log still holds their beginning."""
        begun: dict[bytes, Begin] = {}
        tag = part.queue.address(part.partition).tag
        with Topic(self._settings) as topic:
            bound = topic.bounds([part.partition])[part.partition]
            for messages in topic.chunks(part.partition, bound.first, bound.end):
                for header in map(header_of, messages):
                    if header[:1] and header[0] in _BEGINNING and header[_CONVERSATION] in wanted:
                        begin = _begin(header, tag)
                        if begin is not None:
                            begun[header[_CONVERSATION]] = begin
        return begun


def header_of(message: Message) -> bytes:
    """Konverse's own header of a record; empty when it has none."""
    headers: Any = message.headers() or ()
    found = next((value for name, value in headers if name == HEADER), None)
    return found if isinstance(found, bytes) else b""


def _begin(header: bytes, tag: bytes) -> Begin | None:
    """The BEGIN block in a header; None without one, and in a record for another incarnation."""
    try:
        envelope = decode(header)
    except MalformedRecord:
        return None
    return envelope.suffix.begin if envelope.tag == tag else None
