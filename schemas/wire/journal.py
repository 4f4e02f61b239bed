"""Journal records: the decisions of a partition's owners. Plain Avro (`journal.avsc`).

A commit of a thousand messages is packed by a dozen calls into C: values that every message has are in columns inside
Avro `bytes` fields. `encode_commit` encodes the record by hand, and `tests/properties` compares it with fastavro.
`decode` uses fastavro and is total: a value, or MalformedRecord.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import COMMIT_BYTES_MAX, COMMIT_PARTS_MAX, JOURNAL_PART_BYTES_MAX
from konverse.schemas.system_messages import Rejection

from .columns import pack, unpack
from .operations import Rare, rare_from_avro, rare_to_avro
from .records import Begin, address_from_avro, begin_from_avro, begin_to_avro
from .varint import varint

FOLD_VERSION: Final = 1
"""Version of the fold's rules. It never decreases; a process with an older version neither folds nor claims the log."""

GENESIS_HASH: Final = bytes(32)
"""`previous_hash` of the first commit."""

SYSTEM_BITS: Final = 2
TOOK_ERROR: Final = 1
"""Bit of a receive position: the Error was consumed too (it overtakes the sequence)."""
TOOK_TIMER: Final = 2
"""Bit of a receive position: the DialogTimer was consumed too; it overtakes even the Error (behaviour 100)."""
TOOK_SYSTEM: Final = TOOK_ERROR | TOOK_TIMER


class Claim(NamedTuple):
    """An owner takes the partition for `epoch`."""

    epoch: int
    owner: bytes
    fold_version: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes
    clean: bool


class EndOperation(NamedTuple):
    """END CONVERSATION by a handler, an operator or a DROP: plain when `code` is 0, else WITH ERROR."""

    endpoint: int
    code: int = 0
    description: str = ""


OUTPUT_BYTES: Final = 14
"""Bytes of an output in a commit besides its body: endpoint, type and size."""

END_BYTES: Final = 24
"""Bytes of an end, or a timer, in a commit besides its description: endpoint, code and a length."""

Sends = tuple[int, str, list[bytes]]
"""Consecutive outputs of one endpoint: its index, their message type, their bodies."""


@dataclass(slots=True)
class CommitOperations:
    """Operations of a COMMIT: one entry per begin, receive, run of outputs, end, or rare operation."""

    begins: list[tuple[bytes, Begin]] = field(default_factory=list)
    receive_endpoints: list[int] = field(default_factory=list)
    receive_positions: list[int] = field(default_factory=list)
    sends: list[Sends] = field(default_factory=list)
    ends: list[EndOperation] = field(default_factory=list)
    rare: list[Rare] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.begins or self.receive_endpoints or self.sends or self.ends or self.rare)


@dataclass(slots=True)
class Commit:
    """One step of a partition: ingest up to `ingest_to`, then apply `operations`."""

    epoch: int
    owner: bytes
    number: int
    previous_hash: bytes
    ingest_to: int
    operations: CommitOperations
    output_acks: Sequence[tuple[Address, int]] = ()
    rejected: Sequence[tuple[int, Rejection]] = ()
    contested: Sequence[int] = ()
    release: bool = False


class Part(NamedTuple):
    """A slice of an encoded COMMIT: number `part` of `parts`."""

    owner: bytes
    number: int
    part: int
    parts: int
    data: bytes


def encode_claim(claim: Claim) -> bytes:
    """The bytes of a CLAIM."""
    out = BytesIO()
    schemaless_writer(out, JOURNAL_SCHEMA, ("konverse.Claim", claim._asdict()), strict=True)
    return out.getvalue()


def encode_part(part: Part) -> bytes:
    """The bytes of a PART."""
    numbers = varint(part.number) + varint(part.part) + varint(part.parts)
    return b"".join((b"\x04", part.owner, numbers, varint(len(part.data)), part.data))


def cut(commit: Commit, data: bytes) -> list[bytes]:
    """The journal records of an encoded COMMIT: itself, or its parts when it is too large for one record."""
    if len(data) <= JOURNAL_PART_BYTES_MAX:
        return [data]
    slices = [data[at : at + JOURNAL_PART_BYTES_MAX] for at in range(0, len(data), JOURNAL_PART_BYTES_MAX)]
    count = len(slices)
    return [encode_part(Part(commit.owner, commit.number, index, count, piece)) for index, piece in enumerate(slices)]


def encode_commit(commit: Commit) -> bytes:
    """The bytes of a COMMIT."""
    operations = commit.operations
    types, endpoints, kinds, bodies = _columns(operations.sends)
    sizes = list(map(len, bodies))
    parts = [
        b"\x02",
        varint(commit.epoch),
        commit.owner,
        varint(commit.number),
        commit.previous_hash,
        varint(commit.ingest_to),
        b"\x01" if commit.release else b"\x00",
        _avro_array([varint(offset) + varint(why.reason) + _string(why.fault) for offset, why in commit.rejected]),
        _avro_array([varint(offset) for offset in commit.contested]),
        _avro_array(
            [_string(to.topic) + varint(to.partition) + to.tag + varint(counter) for to, counter in commit.output_acks]
        ),
        _avro_array([_begin(conversation, begin) for conversation, begin in operations.begins]),
        _column("Q", operations.receive_endpoints),
        _column("Q", operations.receive_positions),
        _avro_array([_string(name) for name in types]),
        _column("Q", endpoints),
        _column("H", kinds),
        _column("I", sizes),
        varint(sum(sizes)),
        *bodies,
        _avro_array([varint(end.endpoint) + varint(end.code) + _string(end.description) for end in operations.ends]),
        _rare(operations.rare) if operations.rare else b"\x00",
    ]
    data = b"".join(parts)
    assert len(data) <= COMMIT_BYTES_MAX, "transactions are bounded so that every commit can be read"
    return data


def decode(data: bytes) -> Claim | Commit | Part:
    """The record in `data`; MalformedRecord for anything else, whatever the bytes are."""
    if len(data) > COMMIT_BYTES_MAX:
        raise MalformedRecord(f"a journal record of {len(data)} bytes; at most {COMMIT_BYTES_MAX} are allowed")
    source = BytesIO(data)
    try:
        name, value = cast(
            "tuple[str, dict[str, Any]]", schemaless_reader(source, JOURNAL_SCHEMA, None, return_record_name=True)
        )
        if source.tell() != len(data):
            raise MalformedRecord("a journal record with trailing bytes")
        if name == "konverse.Claim":
            return Claim(**value)
        return _part_from_avro(value) if name == "konverse.Part" else _commit_from_avro(value)
    except MalformedRecord:
        raise
    except Exception as error:  # fastavro raises a dozen types for broken input; they all mean this
        raise MalformedRecord("a journal record that is not Avro") from error


def _columns(sends: list[Sends]) -> tuple[list[str], list[int], list[int], list[bytes]]:
    """Message types; then endpoint, index of the type and body of each output."""
    places: dict[str, int] = {}
    endpoints: list[int] = []
    kinds: list[int] = []
    bodies: list[bytes] = []
    for index, name, run in sends:
        size = len(run)
        endpoints += [index] * size
        kinds += [places.setdefault(name, len(places))] * size
        bodies += run
    return list(places), endpoints, kinds, bodies


def _part_from_avro(value: dict[str, Any]) -> Part:
    part = Part(**value)
    if not 0 <= part.part < part.parts <= COMMIT_PARTS_MAX:
        raise MalformedRecord(f"part {part.part} of {part.parts} parts of a COMMIT; it has at most {COMMIT_PARTS_MAX}")
    return part


def _commit_from_avro(value: dict[str, Any]) -> Commit:
    operations = CommitOperations(
        [(item["conversation"], begin_from_avro(item["begin"])) for item in value["begins"]],
        unpack("Q", value["receive_endpoints"]),
        unpack("Q", value["receive_positions"]),
        _sends(value),
        [EndOperation(**end) for end in value["ends"]],
        [rare_from_avro(item) for item in value["rare"]],
    )
    if len(operations.receive_endpoints) != len(operations.receive_positions):
        raise MalformedRecord("a COMMIT whose receive columns differ in length")
    acks = [(address_from_avro(item), item["counter"]) for item in value["output_acks"]]
    return Commit(
        value["epoch"],
        value["owner"],
        value["number"],
        value["previous_hash"],
        value["ingest_to"],
        operations,
        acks,
        [(item["offset"], Rejection(item["reason"], item["fault"])) for item in value["rejected"]],
        value["contested"],
        value["release"],
    )


def _sends(value: dict[str, Any]) -> list[Sends]:
    """Read the runs of outputs from the columns of a COMMIT."""
    types, blob = value["types"], value["send_bodies"]
    endpoints, kinds, sizes = (
        unpack("Q", value["send_endpoints"]),
        unpack("H", value["send_types"]),
        unpack("I", value["send_sizes"]),
    )
    if sum(sizes) != len(blob):
        raise MalformedRecord("a COMMIT whose bodies do not have the sizes that it names")
    if not len(endpoints) == len(kinds) == len(sizes):
        raise MalformedRecord("a COMMIT whose send columns differ in length")
    if kinds and max(kinds) >= len(types):
        raise MalformedRecord("a COMMIT that names a message type which it does not list")
    sends: list[Sends] = []
    at = 0
    for (index, kind), run in groupby(zip(endpoints, kinds, sizes, strict=True), itemgetter(0, 1)):
        bodies: list[bytes] = []
        for _, _, size in run:
            bodies.append(blob[at : at + size])
            at += size
        sends.append((index, types[kind], bodies))
    return sends


def _column(code: str, values: list[int]) -> bytes:
    if not values:
        return b"\x00"
    data = pack(code, values)
    return varint(len(data)) + data


def _avro_array(items: list[bytes]) -> bytes:
    if not items:
        return b"\x00"
    return varint(len(items)) + b"".join(items) + b"\x00"


def _string(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _begin(conversation: bytes, begin: Begin) -> bytes:
    out = BytesIO()
    value = {"conversation": conversation, "begin": begin_to_avro(begin)}
    schemaless_writer(out, _BEGIN_SCHEMA, {"part": value}, strict=True)
    return out.getvalue()


def _rare(operations: list[Rare]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, _RARE_SCHEMA, {"part": [rare_to_avro(operation) for operation in operations]}, strict=True)
    return out.getvalue()


def _schemas() -> tuple[Any, Any, Any]:
    """Schemas of a journal record, of one BEGIN operation, and of the rare operations."""
    whole = json.loads(files("konverse.schemas").joinpath("journal.avsc").read_text("utf-8"))
    fields = {entry["name"]: entry["type"] for entry in whole[1]["fields"]}
    rare = {"type": "array", "items": [f"konverse.{item['name']}" for item in fields["rare"]["items"]]}
    known: dict[str, Any] = {}
    journal = parse_schema(whole, known)
    one, some = (
        parse_schema(
            {"type": "record", "name": f"konverse.Part{at}", "fields": [{"name": "part", "type": part}]}, known
        )
        for at, part in enumerate(("konverse.BeginOperation", rare))
    )
    return journal, one, some


JOURNAL_SCHEMA, _BEGIN_SCHEMA, _RARE_SCHEMA = _schemas()
