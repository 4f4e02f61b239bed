"""An execution of a task numbers its rows, and reports when all of them are acknowledged."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from konverse.dialog.batch import task as module
from konverse.dialog.batch.task import Report
from konverse.schemas.errors import TransactionTooLarge
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import FIRST, LAST, RETURNING, Kind, Pending
from tests.kit.batches import HOME, JUDGE, JUDGE_WRITER, QUERY, TARGET, Query, first_row, further_row, last_row
from tests.kit.builders import begin_block, identifier

C = identifier("a conversation")
BLOCK = begin_block(group=C, key=b"a key")


def test_rows_are_numbered_in_each_partition_and_begins_apart() -> None:
    task = Query.task()
    rows = [
        task.begin(C, BLOCK),
        first_row(task, C, BLOCK, "order", b"0"),
        further_row(task, C, BLOCK, "order", b"1"),
        further_row(task, C, BLOCK._replace(target=HOME), "order", b"2"),
        task.begin(identifier("d"), BLOCK),
        last_row(further_row(task, C, BLOCK, "order", b"3")),
    ]
    envelopes = [decode(row.record[0]) for row in rows]
    assert [row.address for row in rows] == [HOME, TARGET, TARGET, HOME, HOME, TARGET]
    assert [envelope.counter for envelope in envelopes] == [0, 0, 1, 0, 1, 2]
    assert {(envelope.kind, envelope.writer) for envelope in envelopes} == {(Kind.PENDING, task.attempt)}
    assert [envelope.flags for envelope in envelopes] == [
        0,
        FIRST | RETURNING,
        RETURNING,
        RETURNING,
        0,
        LAST | RETURNING,
    ]
    assert [envelope.suffix.detail for envelope in envelopes] == [
        Pending(QUERY, 0, begins, JUDGE, JUDGE_WRITER) for begins in (True, False, False, False, True, False)
    ]
    assert [row.record[1] for row in rows] == [b"a key"] * 6
    assert [envelope.suffix.home for envelope in envelopes[2:4]] == [HOME, HOME]


def test_a_task_reports_when_all_its_rows_are_acknowledged() -> None:
    task = Query.task()
    task.begin(C, BLOCK)
    first_row(task, C, BLOCK, "order", b"four")
    further_row(task, C, BLOCK, "order", b"")
    task.acknowledged(2)
    assert task.report() is None
    task.acknowledged()
    assert task.report() == Report(task.task, task.attempt, {(HOME, True): (1, 0), (TARGET, False): (2, 4)})


def test_a_task_without_rows_has_something_to_report() -> None:
    report = Query.task().report()
    assert report is not None
    assert report.counts == {}


def test_rows_too_large_for_a_batch_are_refused_when_they_are_written() -> None:
    task = Query.task()
    with patch.object(module, "BATCH_RECORDS_MAX", 1), patch.object(module, "BATCH_BYTES_MAX", 3):
        with pytest.raises(TransactionTooLarge, match="write smaller batches"):
            further_row(task, C, BLOCK, "order", b"four")
        further_row(task, C, BLOCK, "order", b"1")
        with pytest.raises(TransactionTooLarge, match="more than 1 rows"):
            further_row(task, C, BLOCK, "order", b"2")
    assert task.counts == {(TARGET, False): (1, 1)}
