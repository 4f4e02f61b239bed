"""When Redis's rows of a partition suffice for a view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast

import pytest

from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.redis.view import Header
from konverse.bridge.views.partitions import LAST_RECORDS, _is_fresh
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.wire.journal import GENESIS_HASH, Claim, Commit, CommitOperations, encode_claim, encode_commit

NOW_MS = 1_800_000_000_000


class Logs:
    """Stands in for the reader of logs: the last records of the journal, and the beginning of young data."""

    def __init__(self, *records: bytes, start: int = 0, age_s: float = 0, young_from: int = 10) -> None:
        self.records = records
        self.start = start
        self.young_from = young_from
        self.age_s = age_s

    def ends(self, _topic: str, _partition: int) -> tuple[int, int]:
        return self.start, self.start + len(self.records)

    def read(self, _topic: str, _partition: int, start: int, end: int) -> Any:
        assert start >= self.start
        time_ms = NOW_MS - round(self.age_s * 1000)
        yield [Message(record, time_ms) for record in self.records[start - self.start : end - self.start]], end

    def offset_at(self, _topic: str, _partition: int, _time_ms: int) -> int:
        return self.young_from


class Message(NamedTuple):
    """A record in the form of Kafka's client."""

    data: bytes
    time_ms: int

    def value(self) -> bytes:
        return self.data

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


OWNER = b"o" * 16
COMMIT = Commit(1, OWNER, 3, GENESIS_HASH, 10, CommitOperations())
LEFT = encode_commit(replace(COMMIT, release=True))
LEADS = encode_commit(COMMIT)
ANOTHER = encode_commit(replace(COMMIT, owner=b"x" * 16))


CLAIM = encode_claim(Claim(2, OWNER, 1, OWNER, OWNER, OWNER, clean=True))


@pytest.mark.parametrize(
    ("reader", "shown", "fresh"),
    [
        (Logs(LEADS, LEADS), 1, True),
        (Logs(LEADS, LEADS), 0, True),
        (Logs(LEADS, LEADS, age_s=3_600), 1, True),
        (Logs(LEADS, LEADS, age_s=3_600), 0, False),
        (Logs(LEADS, LEFT, age_s=3_600), 0, True),
        (Logs(LEADS, young_from=11), 0, False),
        (Logs(LEADS, ANOTHER), 0, False),
        (Logs(ANOTHER, CLAIM), 1, True),
        (Logs(CLAIM, young_from=0), 0, True),
        (Logs(CLAIM, young_from=1), 0, False),
        (Logs(*[LEADS, *[CLAIM] * LAST_RECORDS]), LAST_RECORDS, False),
        (Logs(LEADS, start=5), 5, True),
        (Logs(CLAIM, start=5), 5, False),
        (Logs(LEADS, b"garbage"), 1, False),
        (Logs(), 7, False),
    ],
    ids=[
        "it shows all",
        "what it wrote since changed nothing",
        "dead and all is shown",
        "dead and something is not shown",
        "it left in order",
        "old data was not ingested",
        "another owner leads",
        "it has just begun",
        "nothing was ever ingested",
        "nothing was ingested yet",
        "nobody has committed for long",
        "what is older was deleted",
        "and nothing says how far it ingested",
        "garbage in the journal",
        "no journal",
    ],
)
def test_redis_counts_when_the_last_owner_has_shown_it(reader: Logs, shown: int, *, fresh: bool) -> None:
    header = Header(shown, 1, OWNER.hex(), 0, 0, complete=True)
    queue = Queue("orders", "orders", "queue", 1, OWNER, OWNER, OWNER)
    assert _is_fresh(cast("LogReader", reader), (queue, 0), header, NOW_MS, 600.0) is fresh
