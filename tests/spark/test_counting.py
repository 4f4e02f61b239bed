"""Messages for each side of a conversation, counted from records alone, without Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import pytest
from confluent_kafka import Message

from konverse.schemas.identifiers import Role
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.records import End
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.ingest import Ingest
from konverse.spark.read.ledger import PARTS_MAX, RecordCounter, SideCounts
from tests.kit.builders import GARBAGE, Scribe, identifier
from tests.spark.logs import ORDERS
from tests.spark.test_batch_rows import log_of as log_of_bodies

ONE: Final = identifier("one")
OTHER: Final = identifier("another")

Counted = dict[tuple[bytes, Role], SideCounts]


def log_of(*headers: bytes | None, body: bytes = b"body") -> list[Message]:
    """Records as a consumer returns them, one each second."""
    return [
        Message(
            topic="t",
            partition=0,
            offset=offset,
            key=b"k",
            value=body,
            headers=[] if header is None else [(HEADER, header)],
            timestamp=(1, 1_000 * offset),
        )
        for offset, header in enumerate(headers)
    ]


def counted(messages: Sequence[Message], *, chunk: int = 1_000, cut: bool = False) -> Counted:
    """The counts when `chunk` records come at a time."""
    ingest, counting = Ingest(Acceptance(cut=cut), tag=None), RecordCounter()
    for start in range(0, len(messages), chunk):
        for rows in ingest.take([*messages[start : start + chunk]]):
            counting.add(rows)
    return counting.result()


@pytest.mark.parametrize("chunk", [1, 2, 1_000])
def test_a_duplicate_is_counted_for_its_side_and_changes_no_other_count(chunk: int) -> None:
    writer, answering = Scribe("writer"), Scribe("answering")
    first, second = (writer.message(ORDERS, ONE) for _ in range(2))
    other = writer.message(ORDERS, OTHER)
    answer = answering.message(ORDERS, ONE, role=Role.TARGET)
    found = counted(log_of(first, second, first, other, answer, second, first, answer, None, GARBAGE), chunk=chunk)
    assert found == {
        (ONE, Role.TARGET): SideCounts(messages=2, bytes=8, duplicates=3, first_ms=0, last_ms=1_000),
        (OTHER, Role.TARGET): SideCounts(messages=1, bytes=4, duplicates=0, first_ms=3_000, last_ms=3_000),
        (ONE, Role.INITIATOR): SideCounts(messages=1, bytes=4, duplicates=1, first_ms=4_000, last_ms=4_000),
    }


def test_a_contested_message_is_counted_as_its_side_receives_it() -> None:
    header = Scribe("writer").message(ORDERS, ONE)
    found = counted(log_of_bodies([(header, b"forged"), (header, b"honest"), (header, b"forged")]))
    ((side, counts),) = found.items()
    assert (side, counts[:3]) == ((ONE, Role.TARGET), (2, 12, 1))


def test_an_end_is_no_message_and_its_copy_a_duplicate() -> None:
    writer = Scribe("writer")
    message, end = writer.message(ORDERS, ONE), writer.end(ORDERS, ONE, End(identifier("opener"), ORDERS))
    assert counted(log_of(message, end, end)) == {(ONE, Role.TARGET): SideCounts(1, 4, 1, 0, 1_000)}


def test_duplicate_control_records_and_messages_after_a_gap_are_not_counted() -> None:
    writer = Scribe("writer")
    close = writer.close(ORDERS, OTHER)
    gap = writer.message(ORDERS, ONE, counter=9)
    assert counted(log_of(close, close, gap)) == {}
    assert counted([]) == {}


def test_however_many_chunks_there_are_the_counts_are_the_same() -> None:
    writer, rng = Scribe("writer"), random.Random(7)
    conversations = [identifier(f"conversation {number}") for number in range(5)]
    headers = [writer.message(ORDERS, rng.choice(conversations)) for _ in range(2 * PARTS_MAX)]
    log = log_of(*headers, *rng.sample(headers, PARTS_MAX))
    assert len(log) > 2 * PARTS_MAX
    whole = counted(log)
    assert sum(came.messages for came in whole.values()) == len(headers)
    assert sum(came.duplicates for came in whole.values()) == PARTS_MAX
    assert counted(log, chunk=1) == counted(log, chunk=7) == whole
