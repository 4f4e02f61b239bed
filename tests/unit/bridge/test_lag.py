"""The age of the oldest record that no owner has ingested."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from konverse.bridge.views import lag
from konverse.bridge.views.lag import _first_unread


class Logs:
    """Stands in for a `LogReader`: chunks of records, each with its timestamp; notes how many were read."""

    def __init__(self, *chunks: list[tuple[int, int]]) -> None:
        self._chunks = chunks
        self.read_chunks = 0

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, len(self._chunks)

    def read(self, *_: object) -> Iterator[tuple[list[Any], int]]:
        for chunk in self._chunks:
            self.read_chunks += 1
            yield [SimpleNamespace(timestamp=lambda stamp=stamp: stamp) for stamp in chunk], self.read_chunks

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("chunks", "times", "read"),
    [
        ([[(TIMESTAMP_LOG_APPEND_TIME, 7), (TIMESTAMP_LOG_APPEND_TIME, 8)], [(TIMESTAMP_LOG_APPEND_TIME, 9)]], [7], 1),
        ([[], [(TIMESTAMP_LOG_APPEND_TIME, 7)], [(TIMESTAMP_LOG_APPEND_TIME, 8)]], [7], 2),
        ([[(TIMESTAMP_CREATE_TIME, 7)], [(TIMESTAMP_LOG_APPEND_TIME, 8)]], [], 1),
        ([], [], 0),
    ],
)
def test_a_log_is_read_to_its_first_record_only_whatever_waits_after_it(
    monkeypatch: pytest.MonkeyPatch, chunks: list[list[tuple[int, int]]], times: list[int], read: int
) -> None:
    logs, kafka = Logs(*chunks), None
    monkeypatch.setattr(lag, "LogReader", lambda _kafka: logs)
    assert _first_unread(kafka, "konverse.sales.Orders", 0, 0) == times  # type: ignore[arg-type]
    assert logs.read_chunks == read
