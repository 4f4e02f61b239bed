"""Which journal records count. Depends on the journal alone (invariants I1, I2), so that anyone may judge.

CLAIM   counts when its epoch follows the one before it, and it names this very log
COMMIT  counts when epoch and owner are those of the last CLAIM that counts, and its number follows the last one's
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from konverse.schemas.errors import PartitionHalted
from konverse.schemas.journal import FOLD_VERSION, GENESIS_HASH, Claim, Commit
from konverse.schemas.snapshot import SnapshotEnd


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The log that is being folded: logs are found by name, and a name can be given twice (protocol.md section 2)."""

    data_topic: str
    partition: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes


class NewerFold(PartitionHalted):
    """The log was written by a newer konverse whose rules this one does not know: upgrade this process."""


@dataclass(slots=True)
class JournalHead:
    """What the judgement of the next record rests on."""

    identity: LogIdentity
    epoch: int = 0
    owner: bytes = b""
    number: int = 0
    hash: bytes = GENESIS_HASH
    claim_offset: int = -1
    """Offset of the last CLAIM that counts."""
    offset: int = -1
    """Last record judged, counting or not."""
    now_ms: int = 0
    """Latest log-append time of a record that counts: the time of the partition."""
    clean: bool = True
    """The last owner released the partition (or there was none)."""

    def copy(self) -> JournalHead:
        """An independent head at the same place."""
        return JournalHead(
            self.identity,
            self.epoch,
            self.owner,
            self.number,
            self.hash,
            self.claim_offset,
            self.offset,
            self.now_ms,
            self.clean,
        )

    def restore(self, end: SnapshotEnd) -> None:
        """Stand where a snapshot was made."""
        self.epoch, self.owner, self.number, self.hash = end.epoch, end.owner, end.number, end.hash
        self.claim_offset, self.offset, self.now_ms, self.clean = end.claim_offset, end.offset, end.now_ms, end.clean

    def accepts(self, record: Claim | Commit) -> bool:
        """Whether the record counts; PartitionHalted where the log contradicts itself."""
        if isinstance(record, Claim):
            if record.epoch != self.epoch + 1 or not self.names_this_log(record):
                return False
            if record.fold_version > FOLD_VERSION:
                raise NewerFold(
                    f"{self.where} is folded by rules {record.fold_version}; this process knows {FOLD_VERSION}"
                )
            return True
        if record.epoch != self.epoch or record.owner != self.owner or record.number != self.number + 1:
            return False
        if record.previous_hash != self.hash:
            raise PartitionHalted(
                f"commit {record.number} of {self.where} does not follow the record before it: "
                "the journal was changed or cut. Compare it with a backup before anything is written"
            )
        return True

    def take(self, record: Claim | Commit, data: bytes, offset: int, timestamp_ms: int) -> None:
        """Move past a record that counts."""
        self.skip(offset)
        self.now_ms = max(self.now_ms, timestamp_ms)
        if isinstance(record, Claim):
            self.epoch, self.owner, self.claim_offset, self.clean = record.epoch, record.owner, offset, False
        else:
            self.number = record.number
            self.hash = hashlib.sha256(data).digest()
            self.clean = record.release

    def skip(self, offset: int) -> None:
        """Move past a record that does not count."""
        assert offset > self.offset, f"the journal of {self.where} went back from {self.offset} to {offset}"
        self.offset = offset

    def names_this_log(self, claim: Claim) -> bool:
        """Whether the CLAIM is of this log, and not of another one of this name."""
        identity = self.identity
        return (claim.incarnation, claim.data_topic_id, claim.journal_topic_id) == (
            identity.incarnation,
            identity.data_topic_id,
            identity.journal_topic_id,
        )

    @property
    def where(self) -> str:
        """The partition in words."""
        return f"{self.identity.data_topic}/{self.identity.partition}"
