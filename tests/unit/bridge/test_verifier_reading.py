"""The verifier's reading of logs, by a log reader that answers from lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.verifier.check import Place
from konverse.bridge.verifier.reading import Extent, PartitionReader
from konverse.schemas.identifiers import snapshot_topic
from tests.kit.builders import Scribe, address_of, identifier

IDS = identifier("incarnation"), identifier("data"), identifier("journal")


class Logs:
    """Topics with these records, each a header at an offset, and these ends."""

    def __init__(self, data: dict[int, bytes], ends: dict[str, int]) -> None:
        self._data = data
        self._ends = ends
        self.with_aborted: Callable[[], Logs] = lambda: self

    def ends(self, topic: str, _partition: int) -> tuple[int, int]:
        return 0, self._ends.get(topic, 0)

    def read(self, topic: str, _partition: int, start: int, end: int) -> Iterator[tuple[list[Any], int]]:
        found = [at for at in self._data if topic == "orders" and start <= at < end]
        yield [message(at, self._data[at]) for at in found], end

    def close(self) -> None:
        pass


def message(offset: int, header: bytes) -> Any:
    return SimpleNamespace(
        offset=lambda: offset, headers=lambda: [("konverse", header)], value=lambda: b"", timestamp=lambda: (1, 0)
    )


def findings(logs: Logs, data_end: int, snapshots: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    place = Place("orders", 0, *IDS, data_end, data_end, 0, 0)
    extent = Extent(place, "journal", snapshot_topic("orders", "queue"), 0)
    reader = PartitionReader(logs, ())  # type: ignore[arg-type]
    monkeypatch.setattr(reader, "_snapshots", lambda _: snapshots)
    return [f"{found.rule}: {found.text}" for found in reader.judge(extent).findings]


def snapshot(offset: int, ingest_to: int) -> Any:
    return SimpleNamespace(end=SimpleNamespace(offset=offset, ingest_to=ingest_to))


@pytest.mark.parametrize(
    ("tag", "found"), [("another queue", []), ("this one", ["lost"])], ids=["a copy from elsewhere", "our own record"]
)
def test_the_transaction_of_a_program_that_copied_our_records_explains_a_gap(
    tag: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a record of konverse, which writes without transactions, an offset without a record is a loss."""
    place = Place("orders", 0, *IDS, 3, 3, 0, 0)
    to = place.address if tag == "this one" else address_of("elsewhere")
    record = Scribe("a session").message(to, identifier("c"))
    logs = Logs({0: record, 2: record}, {"orders": 3})
    said = [one.split(":")[0] for one in findings(logs, 3, [], monkeypatch) if "without a record" in one]
    assert said == found


@pytest.mark.parametrize(
    ("journal_end", "data_end", "found"),
    [
        (11, 102, []),
        (0, 102, ["the journal ends at offset 0, but a snapshot was made when it ended at 11 or later"]),
        (11, 7, ["the data log ends at offset 7, but a snapshot was made when it ended at 102 or later"]),
    ],
)
def test_a_log_that_ends_before_a_snapshot_of_it_has_lost_its_last_records(
    journal_end: int, data_end: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = Logs({}, {"journal": journal_end, "orders": data_end})
    monkeypatch.setattr("konverse.bridge.verifier.reading.beginning", lambda *_: None)
    said = [one for one in findings(logs, 0, [snapshot(10, 102)], monkeypatch) if "snapshot was made" in one]
    assert [one.removeprefix("lost: ").split(":")[0] for one in said] == found
