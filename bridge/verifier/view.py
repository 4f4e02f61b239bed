"""The view in Redis against the second fold, which is asked how things stood at the journal offset of the view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import redis

from konverse.bridge.verifier.fold.state import CODES, Facts
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import view_key
from konverse.schemas.limits import VIEW_BUCKETS
from konverse.schemas.wire.varint import read_varint

from .check import Finding, PartitionVerdict
from .records import Key


class Shown(NamedTuple):
    """What Redis shows of a partition."""

    journal_offset: int
    endpoints: Mapping[Key, Facts]


def read_view(client: redis.Redis, queue: Queue, partition: int) -> Shown | None:
    """The view of a partition; None when there is none, or none that is whole.

    Read in one step: its owner may be at work, and a header of one moment says nothing of the rows of the next.
    """

    def key(suffix: str) -> str:
        return view_key(queue.topic, queue.subscription, partition, suffix)

    pipeline = client.pipeline(transaction=True)
    for suffix in ("header", *(f"e:{number}" for number in range(VIEW_BUCKETS))):
        pipeline.hgetall(key(suffix))
    header: Any
    try:
        header, *buckets = pipeline.execute()
        if header.get(b"complete") != b"1" or header.get(b"incarnation") != queue.incarnation:
            return None
        rows = [pair for bucket in buckets for pair in bucket.items()]
        return Shown(int(header[b"journal"]), dict(_endpoint(field, value) for field, value in rows))
    except (ValueError, IndexError, KeyError):
        return None  # not written by an owner: it is as good as none
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return None  # and so is a key that holds something else


def _endpoint(field: bytes, value: bytes) -> tuple[Key, Facts]:
    numbers = []
    at = 9
    while at < len(value):
        number, at = read_varint(value, at)
        numbers.append(number)
    sent, accepted, consumed, unread, error = numbers[:5]
    return (b"IT".index(field[16:]), field[:16]), (CODES[value[8]], sent, accepted, consumed, unread, bool(error))


def compare_view(verdict: PartitionVerdict, shown: Shown) -> Iterator[Finding]:
    """Where the view differs from what the logs said at its journal offset."""
    for key in {**shown.endpoints, **verdict.then}:
        ours, theirs = verdict.then.get(key), shown.endpoints.get(key)
        if ours != theirs:
            text = f"at journal {shown.journal_offset} it shows {theirs} for {key[1].hex()}, the logs say {ours}"
            yield Finding("view", verdict.place.name, text)
