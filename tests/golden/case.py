"""A golden journal: the logs of one partition, and their recorded results. A release has one Avro file of them.

The file contains its schema, so that it can be read after the product's schemas have changed. Journal, data and
snapshots are the bytes from Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro

from konverse.bridge.verifier.check import PartitionVerdict
from konverse.bridge.verifier.check import Place as Verified
from konverse.bridge.verifier.records import Record
from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.identifiers import LogIdentity
from tests.kit.digests import digest

FOLDER: Final = Path(__file__).parent

Headers = Sequence[tuple[str, bytes]]


class DataRecord(NamedTuple):
    """A record of a data log."""

    offset: int
    header: bytes | None
    body: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    """The sender's own headers."""


class Outcome(NamedTuple):
    """The state behind a journal record, and the head that judges the next one."""

    offset: int
    """Offset of the journal record."""
    epoch: int
    owner: bytes
    number: int
    hash: bytes
    claim_offset: int
    now_ms: int
    clean: bool
    ingest_to: int
    digest: bytes
    """SHA-256 of the state."""
    snapshots_to: int
    """The snapshot topic up to this offset contains a snapshot of this state."""


class Case(NamedTuple):
    """One partition."""

    world: str
    """Partitions of one world send to each other."""
    identity: LogIdentity
    journal: list[JournalRecord]
    data: list[DataRecord]
    data_end: int
    snapshots: list[bytes]
    outcomes: list[Outcome]
    """The fullest state on the way, and the last one if it differs."""
    counts: dict[str, int]
    """Counts of the verifier."""

    @property
    def name(self) -> str:
        """World, topic and partition."""
        return f"{self.world}/{self.identity.data_topic}/{self.identity.partition}"

    def fold(self) -> Fold:
        """A fold with all of the data and nothing of the journal."""
        fold = Fold(self.identity)
        self.feed_data(fold)
        return fold

    def feed_data(self, fold: Fold) -> None:
        """Give a fold the data that it lacks."""
        fold.feed_data(
            RecordColumns(
                [record.offset for record in self.data],
                [record.header for record in self.data],
                [record.body for record in self.data],
                [(r.timestamp_ms, list(r.headers)) if r.headers else r.timestamp_ms for r in self.data],
                self.data_end,
                fold.data_to,
            )
        )

    def place(self) -> Verified:
        """The partition in the form that the verifier judges."""
        i = self.identity
        ids = (i.incarnation, i.data_topic_id, i.journal_topic_id)
        return Verified(i.data_topic, i.partition, *ids, self.data_end, self.data_end)

    def journal_records(self) -> list[Record]:
        """The journal in the verifier's form."""
        return [Record(one.offset, one.header, one.data, one.timestamp_ms) for one in self.journal]

    def data_records(self) -> list[Record]:
        """The data log in the verifier's form."""
        return [Record(*record[:4]) for record in self.data]


def outcome_of(fold: Fold, snapshots_to: int) -> Outcome:
    """The current outcome of a fold."""
    h = fold.head
    return Outcome(
        h.offset, h.epoch, h.owner, h.number, h.hash, h.claim_offset, h.now_ms, h.clean,
        fold.state.ingest_to, digest(fold.state), snapshots_to,
    )  # fmt: skip


def counts_of(verdict: PartitionVerdict) -> dict[str, int]:
    """The counts of a verdict."""
    verdicts = [*verdict.fold.verdicts.values()]
    return {
        "conversations": verdict.conversations,
        "accepted": verdict.accepted,
        "consumed": verdict.consumed,
        "unread": verdict.unread,
        "outputs": verdict.outputs,
        "void": verdict.void,
        "undecodable": verdict.undecodable,
        "commits": len(verdict.journal.commits),
        "claims": len(verdict.journal.claims),
        "bounced": sum(said.startswith("bounced") for said in verdicts),
        "discarded": verdicts.count("discarded"),
        "tombstones": len(verdict.fold.tombstones),
        "mailbox": len(verdict.fold.mailbox),
        **verdict.fold.tally,
    }


# ---------------------------------------------------------------------------------------------------------- files

_BYTES: Final = ["null", "bytes"]


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


SCHEMA: Final = _record(
    "Case",
    world="string",
    topic="string",
    partition="int",
    incarnation="bytes",
    data_topic_id="bytes",
    journal_topic_id="bytes",
    journal=_array(_record("Journaled", offset="long", data="bytes", timestamp_ms="long", header=_BYTES)),
    data=_array(
        _record(
            "Sent",
            offset="long",
            header=_BYTES,
            body=_BYTES,
            timestamp_ms="long",
            headers=_array(_record("Header", name="string", value="bytes")),
        )
    ),
    data_end="long",
    snapshots=_array("bytes"),
    outcomes=_array(
        _record(
            "Outcome",
            offset="long",
            epoch="long",
            owner="bytes",
            number="long",
            hash="bytes",
            claim_offset="long",
            now_ms="long",
            clean="boolean",
            ingest_to="long",
            digest="bytes",
            snapshots_to="long",
        )
    ),
    counts={"type": "map", "values": "long"},
)


def write(path: Path, cases: Sequence[Case]) -> None:
    """Write a new file. FileExistsError when it exists: recorded cases never change."""
    with path.open("xb") as out:
        marker = sha256(path.name.encode()).digest()[:16]
        fastavro.writer(out, SCHEMA, map(_to_avro, cases), codec="deflate", sync_marker=marker, strict=True)


def read(path: Path) -> Iterator[Case]:
    """The cases of a file."""
    with path.open("rb") as source:
        for value in fastavro.reader(source):
            yield _from_avro(value)  # type: ignore[arg-type]  # records are dictionaries


def _to_avro(case: Case) -> dict[str, Any]:
    i = case.identity
    return {
        "world": case.world,
        "topic": i.data_topic,
        "partition": i.partition,
        "incarnation": i.incarnation,
        "data_topic_id": i.data_topic_id,
        "journal_topic_id": i.journal_topic_id,
        "journal": [record._asdict() for record in case.journal],
        "data": [
            {**record._asdict(), "headers": [{"name": name, "value": value} for name, value in record.headers]}
            for record in case.data
        ],
        "data_end": case.data_end,
        "snapshots": case.snapshots,
        "outcomes": [outcome._asdict() for outcome in case.outcomes],
        "counts": case.counts,
    }


def _from_avro(value: dict[str, Any]) -> Case:
    ids = (value["incarnation"], value["data_topic_id"], value["journal_topic_id"])
    return Case(
        value["world"],
        LogIdentity(value["topic"], value["partition"], *ids),
        [JournalRecord(**record) for record in value["journal"]],
        [
            DataRecord(
                **{**record, "headers": tuple((header["name"], header["value"]) for header in record["headers"])}
            )
            for record in value["data"]
        ],
        value["data_end"],
        value["snapshots"],
        [Outcome(**outcome) for outcome in value["outcomes"]],
        value["counts"],
    )
