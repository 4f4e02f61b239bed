"""Records of a snapshot topic, and the sections of a state. Plain Avro (`snapshot.avsc`).

A state is a sequence of sections: one Base, then Endpoints, Levels, Waiting, Outputs, Pending, Mailbox, Cleaned, Named
and Leaving. A section Recent follows, which is not state. The bytes are cut into chunks without regard to sections. An
END record gives the number of chunks, their size and their SHA-256. `decode` is total; sections are read only when the
SHA-256 is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.limits import SNAPSHOT_CHUNK_ENTRIES_MAX, SNAPSHOT_RECORD_BYTES_MAX

BASE: Final = "konverse.Base"
ENDPOINTS: Final = "konverse.Endpoints"
WAITING: Final = "konverse.Waiting"
OUTPUTS: Final = "konverse.Outputs"
PENDING: Final = "konverse.Pending"
MAILBOX: Final = "konverse.Mailbox"
CLEANED: Final = "konverse.Cleaned"
LEVELS: Final = "konverse.Levels"
NAMED: Final = "konverse.Named"
LEAVING: Final = "konverse.Leaving"
RECENT: Final = "konverse.Recent"


class Chunk(NamedTuple):
    """A slice of a state."""

    snapshot: bytes
    number: int
    data: bytes


class SnapshotEnd(NamedTuple):
    """END of a snapshot: names the log, the journal offset `offset` of its state, and the head at that offset."""

    snapshot: bytes
    fold_version: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes
    epoch: int
    owner: bytes
    number: int
    hash: bytes
    claim_offset: int
    offset: int
    now_ms: int
    clean: bool
    ingest_to: int
    chunks: int
    size: int
    sha256: bytes


def encode(record: Chunk | SnapshotEnd) -> bytes:
    """The bytes of a record of the snapshot topic."""
    return encode_section(f"konverse.{type(record).__name__}", record._asdict())


def decode(data: bytes) -> Chunk | SnapshotEnd:
    """The record in `data`; MalformedRecord for anything else, whatever the bytes are."""
    if len(data) > SNAPSHOT_RECORD_BYTES_MAX:
        raise MalformedRecord(
            f"a record of a snapshot with {len(data)} bytes; at most {SNAPSHOT_RECORD_BYTES_MAX} are allowed"
        )
    source = BytesIO(data)
    try:
        name, value = _read(source)
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a record of a snapshot that is not Avro") from error
    kind = {"konverse.Chunk": Chunk, "konverse.SnapshotEnd": SnapshotEnd}.get(name)
    if kind is None or source.tell() != len(data):
        raise MalformedRecord("a record of a snapshot that is neither a chunk nor an END")
    record: Chunk | SnapshotEnd = kind(**value)
    if isinstance(record, SnapshotEnd) and not 0 < record.chunks <= SNAPSHOT_CHUNK_ENTRIES_MAX:
        raise MalformedRecord(f"the END of a snapshot of {record.chunks} chunks")
    return record


def encode_section(name: str, value: dict[str, Any]) -> bytes:
    """The bytes of a section."""
    out = BytesIO()
    schemaless_writer(out, SNAPSHOT_SCHEMA, (name, value), strict=True)
    return out.getvalue()


def sections(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and values of the sections in the bytes of a state."""
    source = BytesIO(data)
    while source.tell() < len(data):
        yield _read(source)


def _read(source: BytesIO) -> tuple[str, dict[str, Any]]:
    value = schemaless_reader(source, SNAPSHOT_SCHEMA, None, return_record_name=True, return_record_name_override=True)
    return cast("tuple[str, dict[str, Any]]", value)


SNAPSHOT_SCHEMA = parse_schema(json.loads(files("konverse.schemas").joinpath("snapshot.avsc").read_text("utf-8")))
