"""Reading of logs, by Kafka's answers about their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from konverse.bridge.kafka import log_reader
from konverse.bridge.kafka.clients import EndCut, LogTruncated
from konverse.bridge.owner import logs as log_reading
from konverse.bridge.owner.logs import QueueLogs
from konverse.dialog.owner.events import Appended, DataGone, OutOfRange, ReadJournal
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KafkaUnavailable
from tests.kit.builders import identifier


class Reader:
    """Logs with these ends, answer by answer; the last answer repeats. They cannot be read."""

    ends_said: list[tuple[int, int] | None]

    def __init__(self, _kafka: Any) -> None:
        pass

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        said = self.ends_said.pop(0) if len(self.ends_said) > 1 else self.ends_said[0]
        if said is None:
            raise KafkaUnavailable("away")
        return said

    def read(self, *_: Any) -> Iterator[Any]:
        raise LogTruncated("the client thinks that it is truncated")
        yield


@pytest.fixture(autouse=True)
def _reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "LogReader", Reader)
    monkeypatch.setattr(log_reader, "END_ASKED_EVERY_S", 0)


def reading(*ends: tuple[int, int] | None) -> QueueLogs:
    Reader.ends_said = [*ends]
    queue = Queue("Orders", "orders", "queue", 1, identifier("incarnation"), identifier("data"), identifier("journal"))
    return QueueLogs(None, queue)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ends", "event"),
    [
        ([(8, 20)], OutOfRange(beginning=True)),
        ([(0, 5)], OutOfRange(beginning=False)),
        ([(0, 5), (0, 5), (0, 20)], Appended(None)),
        ([(0, 7)], OutOfRange(beginning=False)),
        ([(0, 8)], OutOfRange(beginning=False)),
        ([(0, 9)], Appended(None)),
        ([(7, 20)], Appended(None)),
        ([None], Appended(None)),
        ([(0, 5), None], Appended(None)),
    ],
)
def test_an_end_is_missing_when_kafka_says_so_again_and_again(ends: list[Any], event: Any) -> None:
    assert reading(*ends).answer(0, ReadJournal(7, 9)) == event


@pytest.mark.parametrize(
    ("ends", "event"),
    [
        ([(9, 20)], DataGone(9)),
        ([(0, 5)], OutOfRange(beginning=False)),
        ([(0, 5), (0, 20)], DataGone(0)),
        ([None], Appended(None)),
    ],
)
def test_data_are_gone_in_front_or_behind(ends: list[Any], event: Any) -> None:
    assert reading(*ends).data_gone(0, 7, LogTruncated()) == event


@pytest.mark.parametrize(
    ("stable", "chunks", "bare"),
    [
        (9, [([], 9)], True),
        (9, [([], 8), ([b"a record"], 9)], False),
        (8, [([], 9)], False),
        (9, None, False),
    ],
    ids=["a marker", "a record", "an open transaction", "a log that cannot be read"],
)
def test_a_range_is_bare_when_it_was_read_and_has_no_record(
    stable: int, chunks: list[Any] | None, bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunks is not None:
        monkeypatch.setattr(Reader, "read", lambda *_: (chunk for chunk in chunks))
    assert reading((0, stable)).is_bare(0, 7, 9) == bare


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("broker end offset is 6 (offset leader epoch 0)", OutOfRange(beginning=False)),
        (
            "broker end offset is 7 (offset leader epoch 0)",
            Appended(None),
        ),  # what was read ahead is gone: it is read again
        ("no number", OutOfRange(beginning=False)),
    ],
)
def test_data_that_a_new_leader_lacks_are_missing_although_new_records_have_their_offsets(
    text: str, event: Any
) -> None:
    assert reading((0, 20)).data_gone(0, 7, EndCut.of_client(text)) == event
