"""Converts records of Kafka's client to the columns that the fold reads.

The usual record has a single header, that of konverse. A run of such records is converted by fast comprehensions; one
record that differs sends the whole run through the slow path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from confluent_kafka import Message

from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.state.endpoint import Stamp
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.wire.envelope import HEADER

from .headers import header_of


def columns_of(messages: list[Message], span: tuple[int, int] | None = None) -> tuple[RecordColumns, list[Message]]:
    """A run of records of one partition as columns, and the client's events that stood between them.

    `span` is the first offset and the end of the range that was read. Without it the columns span the records alone.
    """
    events: list[Message] = []
    try:
        headers, bodies, stamps = _usual(messages)
    except (TypeError, ValueError):
        events = [message for message in messages if message.error() is not None]
        messages = [message for message in messages if message.error() is None]
        headers, bodies, stamps = _unusual(messages)
    if not messages:
        start, end = span or (0, 0)
        return RecordColumns((), (), (), (), end, start), events
    first, last = messages[0].offset() or 0, messages[-1].offset() or 0
    contiguous = last - first + 1 == len(messages)
    offsets: Sequence[int] = range(first, last + 1) if contiguous else [m.offset() or 0 for m in messages]
    start, end = span or (first, last + 1)
    return RecordColumns(offsets, headers, bodies, stamps, end, start), events


def journal_record(message: Message) -> JournalRecord:
    """A journal record in the form that the fold reads."""
    return JournalRecord(message.offset() or 0, message.value() or b"", message.timestamp()[1], header_of(message))


_Columns = tuple[list[bytes | None], list[bytes | None], list[Stamp]]
"""Headers, bodies and stamps."""


def _usual(messages: list[Message]) -> _Columns:
    """Columns of records whose only header is konverse's. TypeError or ValueError when a record differs."""
    pairs: Any = map(Message.headers, messages)
    headers = [value if name == HEADER else _refuse() for ((name, value),) in pairs]
    return headers, list(map(Message.value, messages)), [message.timestamp()[1] for message in messages]


def _refuse() -> Never:
    raise ValueError


def _unusual(messages: list[Message]) -> _Columns:
    """Columns of any records: header None for a record without konverse's; other headers go with the timestamp."""
    headers: list[bytes | None] = []
    stamps: list[Stamp] = []
    for message in messages:
        pairs: Any = message.headers() or ()
        headers.append(header_of(message))
        others = [pair for pair in pairs if pair[0] != HEADER]
        timestamp = message.timestamp()[1]
        stamps.append((timestamp, others) if others else timestamp)
    return headers, [message.value() for message in messages], stamps
