"""Converts a COMMIT to fastavro's form, so that tests can compare our own encoder with fastavro."""

from __future__ import annotations

from typing import Any

from konverse.schemas.wire import journal
from konverse.schemas.wire.columns import pack
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.operations import rare_to_avro
from konverse.schemas.wire.records import begin_to_avro


def commit_to_avro(commit: Commit) -> dict[str, Any]:
    """The value from which fastavro encodes the COMMIT."""
    operations = commit.operations
    types, endpoints, kinds, bodies = journal._columns(operations.sends)
    return {
        "epoch": commit.epoch,
        "owner": commit.owner,
        "number": commit.number,
        "previous_hash": commit.previous_hash,
        "ingest_to": commit.ingest_to,
        "release": commit.release,
        "rejected": [{"offset": offset, **why._asdict()} for offset, why in commit.rejected],
        "contested": list(commit.contested),
        "output_acks": [
            {"topic": to.topic, "partition": to.partition, "tag": to.tag, "counter": counter}
            for to, counter in commit.output_acks
        ],
        "begins": [
            {"conversation": conversation, "begin": begin_to_avro(begin)} for conversation, begin in operations.begins
        ],
        "receive_endpoints": pack("Q", operations.receive_endpoints),
        "receive_positions": pack("Q", operations.receive_positions),
        "types": types,
        "send_endpoints": pack("Q", endpoints),
        "send_types": pack("H", kinds),
        "send_sizes": pack("I", [len(body) for body in bodies]),
        "send_bodies": b"".join(bodies),
        "ends": [end._asdict() for end in operations.ends],
        "rare": [rare_to_avro(operation) for operation in operations.rare],
    }
