"""On which conversations something was said or done lately: what the ends of the logs tell.

No endpoint knows when it was used last; that would cost every message. So whoever wonders reads what has come since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from confluent_kafka import Message

from konverse.dialog.forgotten import worked_on
from konverse.dialog.journal_feed import JournalFeed
from konverse.schemas.catalog import Queue
from konverse.schemas.envelope import CONVERSATION_AT, PREFIX_BYTES
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.journal import Commit

from .columns import columns_of, journal_record
from .kafka import LogReader, LogTruncated


def active(
    reader: LogReader, queue: Queue, partition: int, names: Mapping[int, bytes], since_ms: int
) -> Iterator[set[bytes]]:
    """Conversations of which records of a partition tell that came since then: a set for each chunk.

    Journals have the broker's time. Data has that of whoever sent it, which is wrong by less than anybody asks for.

    `names` are the conversations of its endpoints, by index. One that was forgotten meanwhile, and whose index another
    one has, counts for that: so none seems silent that is not. Raises KafkaUnavailable.
    """
    for messages in _since(reader, queue.topic, partition, since_ms):
        headers = columns_of(messages)[0].headers
        yield {header[CONVERSATION_AT:PREFIX_BYTES] for header in headers if header is not None}
    journal = journal_topic(queue.topic, queue.subscription)
    feed = JournalFeed(f"{journal}/{partition}")
    for messages in _since(reader, journal, partition, since_ms):
        found = set[bytes]()
        for _, decision in feed.decisions([*map(journal_record, messages)]):
            if isinstance(decision, Commit):
                found.update(conversation for conversation, _ in decision.operations.begins)
                found.update(names[index] for index in worked_on(decision.operations) if index in names)
        yield found


def _since(reader: LogReader, topic: str, partition: int, since_ms: int) -> Iterator[list[Message]]:
    try:
        _, end = reader.ends(topic, partition)
        start = reader.offset_at(topic, partition, since_ms)
        with closing(reader.read(topic, partition, start, end)) as chunks:
            for messages, _ in chunks:
                yield messages
    except LogTruncated as error:
        raise KafkaUnavailable(f"{topic}/{partition} was cut while it was read; try again") from error
