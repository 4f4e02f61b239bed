"""Judges the records of a partition's journal, and makes their rows: one for the record, and one for each operation.

Which records are valid depends on the journal alone (`konverse.dialog.fold.journal`), so no data is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from konverse.dialog.fold.journal import JournalFeed, JournalHead, JournalRecord
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import LogIdentity, Role
from konverse.schemas.wire.journal import (
    SYSTEM_BITS,
    TOOK_ERROR,
    TOOK_TIMER,
    Claim,
    Commit,
    CommitOperations,
    Part,
    decode,
)
from konverse.schemas.wire.operations import Rare

from .columns import TIMESTAMP, Column


class JournalVerdict(IntEnum):
    """Whether a record of the journal is valid, and if not, why."""

    accepted = 0
    void = 1
    """Written by a process that did not own the partition at that offset, or naming another log."""
    part = 2
    """A PART that does not complete its COMMIT: another PART follows, or one is missing."""
    malformed = 3


class JudgedRecord(NamedTuple):
    """A record, the decision in it, and its verdict."""

    record: JournalRecord
    decision: Claim | Commit | Part | None
    verdict: JournalVerdict
    words: str = ""
    """Why the record cannot be read."""


class DecisionJudge:
    """Judges the journal of one partition, record by record.

    `cut`: the beginning of the journal was truncated. Epoch, owner and number are then taken from the first COMMIT, and
    again from a COMMIT with a higher epoch, as its CLAIM may be deleted.
    """

    def __init__(self, identity: LogIdentity, *, cut: bool = False) -> None:
        self.head = JournalHead(identity)
        self.cut = cut
        self.is_placed = not cut
        """The number of the last COMMIT is known."""
        self.parts_from: int | None = None
        """Offset of the first PART of a COMMIT that is not complete yet."""
        self._feed = JournalFeed(self.head.where)

    def copy(self) -> DecisionJudge:
        """An independent copy, without the PARTs of an incomplete COMMIT: read on from `parts_from`."""
        made = DecisionJudge(self.head.identity, cut=self.cut)
        made.head, made.is_placed = self.head.copy(), self.is_placed
        return made

    def judge(self, record: JournalRecord) -> JudgedRecord:
        """Judge the next record. PartitionHalted when the journal contradicts itself or is from a newer konverse."""
        found = [*self._feed.decisions([record])]
        if not found:
            return self._piece(record)
        self.parts_from = None
        ((whole, decision),) = found
        if self.cut:
            self._place(decision)
        if not self.head.accepts(decision):
            self.head.skip(record.offset)
            return JudgedRecord(whole, decision, JournalVerdict.void)
        self.head.take(decision, whole.data, record.offset, record.timestamp_ms)
        return JudgedRecord(whole, decision, JournalVerdict.accepted)

    def _piece(self, record: JournalRecord) -> JudgedRecord:
        try:
            part = decode(record.data) if record.header is None else None
        except MalformedRecord:
            part = None
        if self._feed.alarms or not isinstance(part, Part):
            self.parts_from = None
            return JudgedRecord(record, part, JournalVerdict.malformed, self._feed.alarms.pop().text)
        if part.part == 0:
            self.parts_from = record.offset
        return JudgedRecord(record, part, JournalVerdict.part)

    def _place(self, decision: Claim | Commit) -> None:
        head = self.head
        if isinstance(decision, Claim):
            if decision.epoch > head.epoch and head.names_this_log(decision):
                head.epoch = decision.epoch - 1
            return
        commit = decision
        here = (commit.epoch, commit.owner) == (head.epoch, head.owner)
        if commit.epoch > head.epoch or (here and not self.is_placed):
            head.epoch, head.owner = commit.epoch, commit.owner
            head.number, head.hash = commit.number - 1, commit.previous_hash
            self.is_placed = True


@dataclass(frozen=True, slots=True)
class JudgeState:
    """The form in which the judgement of a journal is stored; see `states.Form`."""

    identity: LogIdentity

    def entries(self, state: DecisionJudge) -> int:
        """One entry, as the state is always small."""
        assert state.head.identity == self.identity
        return 1

    def copy(self, state: DecisionJudge) -> DecisionJudge:
        """An independent copy."""
        return state.copy()

    def encode(self, state: DecisionJudge) -> tuple[dict[str, Any], bytes]:
        """The values of the journal's head."""
        values = {name: plain(getattr(state.head, name)) for name in _HEAD}
        return {"cut": state.cut, "placed": state.is_placed, "head": values}, b""

    def decode(self, head: dict[str, Any], _body: bytes) -> DecisionJudge:
        """The state from its encoded form."""
        state = DecisionJudge(self.identity, cut=head["cut"])
        state.is_placed = head["placed"]
        for name, kept in head["head"].items():
            setattr(state.head, name, bytes.fromhex(kept) if name in ("owner", "hash") else kept)
        return state


_HEAD: Final = tuple(field.name for field in fields(JournalHead) if field.name != "identity")


class DecisionRow(NamedTuple):
    """One row of a decision; `position` 0 is the record itself, its operations follow."""

    partition: int
    judged: JudgedRecord
    position: int
    operation: str | None
    detail: dict[str, Any]
    endpoint: int | None = None
    conversation: bytes | None = None
    role: Role | None = None
    message_type: str | None = None
    messages: int | None = None
    size: int | None = None
    """Bytes of the bodies."""


class OperationRow(NamedTuple):
    """One operation of a COMMIT, with the fields of its row."""

    name: str
    detail: dict[str, Any]
    endpoint: int | None = None
    conversation: bytes | None = None
    role: Role | None = None
    message_type: str | None = None
    messages: int | None = None
    size: int | None = None


def rows(partition: int, judged: JudgedRecord) -> Iterator[DecisionRow]:
    """The rows of a record, in the order in which its operations are applied."""
    decision = judged.decision
    name = type(decision).__name__.upper() if decision is not None else None
    yield DecisionRow(partition, judged, 0, name, _head(judged))
    if isinstance(decision, Commit):
        for position, operation in enumerate(_operations(decision), 1):
            yield DecisionRow(partition, judged, position, *operation)


def _head(judged: JudgedRecord) -> dict[str, Any]:
    decision = judged.decision
    if decision is None:
        return {"error": judged.words}
    if isinstance(decision, Commit):
        acks = [{**plain(address), "counter": counter} for address, counter in decision.output_acks]
        return {"ingest_to": decision.ingest_to, "release": decision.release, "output_acks": acks}
    left_out = ("epoch", "owner", "number", "data")
    found = {name: value for name, value in decision._asdict().items() if name not in left_out}
    return {**found, "error": judged.words} if judged.words else found


def _operations(commit: Commit) -> Iterator[OperationRow]:
    operations = commit.operations
    for offset, why in commit.rejected:
        yield OperationRow("REJECT", {"offset": offset, **why._asdict()})
    for offset in commit.contested:
        yield OperationRow("CONTEST", {"offset": offset})
    for conversation, begin in operations.begins:
        yield OperationRow("BEGIN", begin._asdict(), None, conversation, Role.INITIATOR)
    yield from _handled(operations)
    for rare in operations.rare:
        yield _rare(rare)


def _handled(operations: CommitOperations) -> Iterator[OperationRow]:
    for endpoint, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
        took = {"error": bool(position & TOOK_ERROR), "dialog_timer": bool(position & TOOK_TIMER)}
        yield OperationRow("RECEIVE", {"consumed": position >> SYSTEM_BITS, **took}, endpoint)
    for endpoint, message_type, bodies in operations.sends:
        count, size = len(bodies), sum(map(len, bodies))
        yield OperationRow("SEND", {}, endpoint, message_type=message_type, messages=count, size=size)
    for end in operations.ends:
        yield OperationRow("END", {"code": end.code, "description": end.description}, end.endpoint)


def _rare(operation: Rare) -> OperationRow:
    detail = operation._asdict()
    endpoint = detail.pop("endpoint", None)
    return OperationRow(_WORD.sub("_", type(operation).__name__).upper(), detail, endpoint)


_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def plain(value: Any) -> Any:
    """A value for JSON: bytes in hexadecimal digits, addresses and the like as objects."""
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _decided(name: str) -> Any:
    """Reads a field of the decision; null where a decision of its kind has no such field."""
    return lambda row: getattr(row.judged.decision, name, None)


_WHOLE: Final = ("bigint", pa.int64())
_INT: Final = ("int", pa.int32())
_TEXT: Final = ("string", pa.string())
_BYTES: Final = ("binary", pa.binary())

COLUMNS: Final[dict[str, Column[DecisionRow]]] = {
    "partition": Column(*_INT, lambda row: row.partition),
    "offset": Column(*_WHOLE, lambda row: row.judged.record.offset),
    "timestamp": Column("timestamp", TIMESTAMP, lambda row: row.judged.record.timestamp_ms * 1000),
    "position": Column(*_INT, lambda row: row.position),
    "operation": Column(*_TEXT, lambda row: row.operation),
    "epoch": Column(*_WHOLE, _decided("epoch")),
    "owner": Column(*_BYTES, _decided("owner")),
    "number": Column(*_WHOLE, _decided("number")),
    "endpoint": Column(*_WHOLE, lambda row: row.endpoint),
    "conversation": Column(*_BYTES, lambda row: row.conversation),
    "role": Column(*_TEXT, lambda row: None if row.role is None else row.role.name),
    "message_type": Column(*_TEXT, lambda row: row.message_type),
    "messages": Column(*_WHOLE, lambda row: row.messages),
    "bytes": Column(*_WHOLE, lambda row: row.size),
    "detail": Column(*_TEXT, lambda row: json.dumps(plain(row.detail), ensure_ascii=False)),
    "verdict": Column(*_TEXT, lambda row: row.judged.verdict.name),
}
"""Every column, in the order in which a reader gives them."""

ACCEPTED_COLUMNS: Final = tuple(name for name in COLUMNS if name != "verdict")
