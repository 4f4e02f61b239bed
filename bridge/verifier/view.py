"""Compares the view in Redis with the state of the second fold at the journal offset of the view."""

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
    """The view of a partition in Redis."""

    journal_offset: int
    endpoints: Mapping[Key, Facts]


def read_view(client: redis.Redis, queue: Queue, partition: int) -> Shown | None:
    """Read the view of a partition; None if there is none, or if it is incomplete.

    All keys are read in one transaction: the owner may write meanwhile, and header and rows must be of one moment.
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
        return None  # no owner wrote this: as good as no view
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return None  # a key of another type: as good as no view


def _endpoint(field: bytes, value: bytes) -> tuple[Key, Facts]:
    numbers = []
    at = 9
    while at < len(value):
        number, at = read_varint(value, at)
        numbers.append(number)
    sent, accepted, consumed, unread, error = numbers[:5]
    return (b"IT".index(field[16:]), field[:16]), (CODES[value[8]], sent, accepted, consumed, unread, bool(error))


def compare_view(verdict: PartitionVerdict, shown: Shown) -> Iterator[Finding]:
    """Report each endpoint whose state in the view differs from the logs at the journal offset of the view."""
    for key in {**shown.endpoints, **verdict.then}:
        ours, theirs = verdict.then.get(key), shown.endpoints.get(key)
        if ours != theirs:
            text = f"at journal {shown.journal_offset} it shows {theirs} for {key[1].hex()}, the logs say {ours}"
            yield Finding("view", verdict.place.name, text)
