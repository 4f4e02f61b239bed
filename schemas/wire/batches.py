"""Bodies of BATCH and DECISION: the attempts that won a batch of a query's rows. Plain Avro.

`decode_batch` and `decode_winners` are total: a value, or MalformedRecord.
"""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import BATCH_PAIR_ENTRIES_MAX, BATCH_RECORDS_MAX, BODY_BYTES_MAX

from .records import address_from_avro, address_to_avro

ABANDONED: Final = 1 << 62
"""Number of the batch that ends a query: every other batch has a lower number."""

Counts = dict[Address, tuple[int, ...]]
"""Partition -> number of rows of each attempt there; in the order in which the partitions are notified."""

Winners = tuple[tuple[bytes, int], ...]
"""Attempts with their number of rows in one partition, in the order in which the rows are accepted."""


class Batch(NamedTuple):
    """The attempts that won a batch."""

    query: bytes
    number: int
    attempts: tuple[bytes, ...]
    """Winning attempts, in the order of the tasks."""
    homes: Counts
    """Every partition that may hold BEGINs of the query."""
    targets: Counts
    """Every partition that may hold messages of the query."""


def winners_at(batch: Batch, counts: tuple[int, ...]) -> Winners:
    """The winning attempts that have rows in one partition; `counts` are their numbers of rows."""
    return tuple((attempt, count) for attempt, count in zip(batch.attempts, counts, strict=True) if count)


def encode_batch(batch: Batch) -> bytes:
    """The body of BATCH."""
    return _written("konverse.Batch", {
        "query": batch.query,
        "number": batch.number,
        "attempts": batch.attempts,
        "homes": _places(batch.homes),
        "targets": _places(batch.targets),
    })  # fmt: skip


def encode_winners(winners: Winners) -> bytes:
    """The body of DECISION."""
    rows = [{"attempt": attempt, "count": count} for attempt, count in winners]
    return _written("konverse.Winners", {"winners": rows})


def decode_batch(data: bytes) -> Batch:
    """The batch in `data`; MalformedRecord for anything else, whatever the bytes are."""
    value = _read("konverse.Batch", data)
    try:
        batch = Batch(
            value["query"],
            value["number"],
            tuple(value["attempts"]),
            _counts(value["homes"]),
            _counts(value["targets"]),
        )
    except ValueError as error:
        raise MalformedRecord("a batch that names impossible partitions") from error
    if not 0 <= batch.number < ABANDONED or len(set(batch.attempts)) != len(batch.attempts):
        raise MalformedRecord("a batch of an impossible number, or one that names an attempt twice")
    if len(batch.homes) * len(batch.targets) > BATCH_PAIR_ENTRIES_MAX:
        raise MalformedRecord(f"a batch of {len(batch.homes)} homes and {len(batch.targets)} targets")
    for counts in (*batch.homes.values(), *batch.targets.values()):
        if len(counts) != len(batch.attempts) or min(counts, default=0) < 0 or sum(counts) > BATCH_RECORDS_MAX:
            raise MalformedRecord(f"a batch whose rows in a partition are not 0 to {BATCH_RECORDS_MAX} of its attempts")
    return batch


def decode_winners(data: bytes) -> Winners:
    """The winners in `data`; MalformedRecord for anything else, whatever the bytes are."""
    value = _read("konverse.Winners", data)
    winners = tuple((row["attempt"], row["count"]) for row in value["winners"])
    if len({attempt for attempt, _ in winners}) != len(winners):
        raise MalformedRecord("a decision that names an attempt twice")
    if any(count < 0 for _, count in winners) or sum(count for _, count in winners) > BATCH_RECORDS_MAX:
        raise MalformedRecord(f"a decision about rows that are not 0 to {BATCH_RECORDS_MAX}")
    return winners


def _places(counts: Counts) -> list[dict[str, Any]]:
    return [{"to": address_to_avro(address), "counts": numbers} for address, numbers in counts.items()]


def _counts(places: list[dict[str, Any]]) -> Counts:
    counts = {address_from_avro(place["to"]): tuple(place["counts"]) for place in places}
    if len(counts) != len(places):
        raise ValueError("a partition is named twice")
    return counts


def _written(name: str, value: dict[str, Any]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, _SCHEMAS, (name, value), strict=True)
    return out.getvalue()


def _read(name: str, data: bytes) -> dict[str, Any]:
    if len(data) > BODY_BYTES_MAX:
        raise MalformedRecord(f"a batch of {len(data)} bytes; at most {BODY_BYTES_MAX} fit into one record")
    source = BytesIO(data)
    try:
        found, value = cast(
            "tuple[str, dict[str, Any]]", schemaless_reader(source, _SCHEMAS, None, return_record_name=True)
        )
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a batch that is not Avro") from error
    if found != name or source.tell() != len(data):
        raise MalformedRecord("a batch that is something else, or has trailing bytes")
    return value


_SCHEMAS: Final = parse_schema(json.loads(files("konverse.schemas").joinpath("batches.avsc").read_text("utf-8")))
