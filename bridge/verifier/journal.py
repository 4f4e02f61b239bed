"""Decides a second time which journal records count, from protocol.md section 3, as the records arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.wire.journal import Claim, Commit, Part, decode

from .records import LogRecord


class Judged(NamedTuple):
    """A journal record and its verdict; the last part of a COMMIT in parts stands for all of it."""

    record: LogRecord
    decision: Claim | Commit | Part | None
    counts: bool


@dataclass(slots=True)
class JournalJudge:
    """The verdicts about one journal so far, and everything on which the next verdict depends."""

    identity: tuple[bytes, bytes, bytes]
    """Incarnation, topic id of the data log, topic id of the journal: a CLAIM of another log does not count."""
    judged: list[Judged] = field(default_factory=list)
    epoch: int = 0
    owner: bytes = b""
    number: int = 0
    link: bytes = bytes(32)
    claimed_at: int = -1
    now_ms: int = 0
    """Latest log-append time of a record that counts."""
    commits: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Number of each COMMIT that counts -> offset and owner."""
    claims: dict[bytes, int] = field(default_factory=dict)
    """Owner of each CLAIM that counts -> offset."""
    problems: list[str] = field(default_factory=list)
    _before: list[tuple[int, Part]] = field(default_factory=list)
    """Offset and content of the parts directly before this record."""

    def judge(self, record: LogRecord) -> Judged:
        """Judge the next record of the journal."""
        data, decision = self._read(record)
        if isinstance(decision, Part):
            self.judged.append(Judged(record, decision, counts=False))
            return self.judged[-1]
        counts = False
        if isinstance(decision, Claim):
            named = (decision.incarnation, decision.data_topic_id, decision.journal_topic_id)
            counts = decision.epoch == self.epoch + 1 and named == self.identity
            if counts:
                self.epoch, self.owner, self.claimed_at = decision.epoch, decision.owner, record.offset
                self.claims[decision.owner] = record.offset
        elif isinstance(decision, Commit):
            counts = (decision.epoch, decision.owner, decision.number) == (self.epoch, self.owner, self.number + 1)
            if not counts and (decision.epoch, decision.owner) == (self.epoch, self.owner):
                if decision.number > self.number + 1:
                    self.problems.append(
                        f"I17: commit {decision.number} at {record.offset} comes after commit {self.number}: "
                        "records of the journal are missing"
                    )
            elif counts:
                if decision.previous_hash != self.link:
                    self.problems.append(
                        f"I17: commit {decision.number} at {record.offset} does not follow the one before it: "
                        "a record of the journal was changed or is missing"
                    )
                self.number, self.link = decision.number, sha256(data).digest()
                self.commits[decision.number] = (record.offset, decision.owner)
        if counts:
            self.now_ms = max(self.now_ms, record.timestamp_ms)
        self.judged.append(Judged(record, decision, counts))
        return self.judged[-1]

    def _read(self, record: LogRecord) -> tuple[bytes, Claim | Commit | Part | None]:
        """Bytes and content of a record; for the last part of a COMMIT in parts, those of the whole COMMIT."""
        data = record.body or b""
        decision = _decoded(data) if record.header is None else None
        if not isinstance(decision, Part):
            self._before = []
            return data, decision
        self._before.append((record.offset, decision))
        tail = self._before[-decision.parts :]
        whole = [
            (record.offset - decision.parts + 1 + at, decision._replace(part=at, data=part.data))
            for at, (_, part) in enumerate(tail)
        ]
        if tail != whole or len(tail) < decision.parts or decision.part != decision.parts - 1:
            return data, decision
        data = b"".join(part.data for _, part in tail)
        commit = _decoded(data)
        named = isinstance(commit, Commit) and (commit.owner, commit.number) == (decision.owner, decision.number)
        return data, commit if named else None


def _decoded(data: bytes) -> Claim | Commit | Part | None:
    try:
        return decode(data)
    except MalformedRecord:
        return None
