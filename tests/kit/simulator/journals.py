"""Which journal records count, decided a second time: by the words of protocol.md section 3, as records arrive.

Shares nothing with `konverse.dialog`; only the decoder of journal records is the product's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.journal import Claim, Commit, decode

from .kafka import Record


class Judged(NamedTuple):
    """A journal record and its verdict."""

    record: Record
    decision: Claim | Commit | None
    counts: bool


@dataclass(slots=True)
class JournalJudge:
    """The verdicts of one journal so far."""

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

    def hear(self, record: Record) -> Judged:
        """The next record of the journal."""
        data = record.body or b""
        try:
            decision = decode(data)
        except MalformedRecord:
            decision = None
        counts = False
        if isinstance(decision, Claim):
            counts = decision.epoch > self.epoch
            if counts:
                self.epoch, self.owner, self.claimed_at = decision.epoch, decision.owner, record.offset
                self.claims[decision.owner] = record.offset
        elif isinstance(decision, Commit):
            counts = (decision.epoch, decision.owner, decision.number) == (self.epoch, self.owner, self.number + 1)
            if counts:
                if decision.previous_hash != self.link:
                    self.problems.append(f"I17: commit {decision.number} does not follow the one before it")
                self.number, self.link = decision.number, sha256(data).digest()
                self.commits[decision.number] = (record.offset, decision.owner)
        if counts:
            self.now_ms = max(self.now_ms, record.timestamp_ms)
        self.judged.append(Judged(record, decision, counts))
        return self.judged[-1]
