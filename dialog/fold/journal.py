"""Decides which journal records count, from the journal alone (invariants I1, I2). So all readers agree.

    CLAIM   counts when its epoch is the last counting CLAIM's plus one, and it names this log
    COMMIT  counts when it has the epoch and claim id of the last counting CLAIM, and the next number

`JournalHead` holds everything on which the next verdict depends. `JournalFeed` decodes raw records, and reassembles a
COMMIT that was too large for one record. Its parts count only when they follow each other directly and in order
(protocol.md section 2). Any record between them makes the COMMIT void.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from konverse.dialog.state.recent import Alarm
from konverse.schemas.errors import WAY_ON, MalformedRecord, PartitionHalted
from konverse.schemas.identifiers import LogIdentity
from konverse.schemas.limits import ALARMS_MAX
from konverse.schemas.wire.journal import FOLD_VERSION, GENESIS_HASH, Claim, Commit, Part, decode
from konverse.schemas.wire.snapshot import SnapshotEnd

UNDECODABLE: Final = "undecodable"
"""Kind of the alarms about journal records that cannot be decoded."""


class NewerFold(PartitionHalted):
    """The log was written by fold rules of a newer konverse. Upgrade this process."""


@dataclass(slots=True)
class JournalHead:
    """Everything on which the verdict about the next journal record depends."""

    identity: LogIdentity
    epoch: int = 0
    owner: bytes = b""
    number: int = 0
    hash: bytes = GENESIS_HASH
    claim_offset: int = -1
    """Offset of the last CLAIM that counts."""
    offset: int = -1
    """Offset of the last record that was judged, whether it counts or not."""
    now_ms: int = 0
    """Latest log-append time of a record that counts: the time of the partition."""
    clean: bool = True
    """Whether the last owner released the partition, or there was none."""

    def copy(self) -> JournalHead:
        """An independent copy."""
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
        """Take the position at which a snapshot was made."""
        self.epoch, self.owner, self.number, self.hash = end.epoch, end.owner, end.number, end.hash
        self.claim_offset, self.offset, self.now_ms, self.clean = end.claim_offset, end.offset, end.now_ms, end.clean

    def accepts(self, record: Claim | Commit) -> bool:
        """Whether the record counts. Raises PartitionHalted on a contradiction, NewerFold for newer fold rules."""
        if isinstance(record, Claim):
            if record.epoch != self.epoch + 1 or not self.names_this_log(record):
                return False
            if record.fold_version > FOLD_VERSION:
                raise NewerFold(
                    f"{self.where} needs fold rules {record.fold_version}; this process has only {FOLD_VERSION}: "
                    "upgrade konverse"
                )
            return True
        if record.epoch != self.epoch or record.owner != self.owner or record.number != self.number + 1:
            return False
        if record.previous_hash != self.hash:
            raise PartitionHalted(
                f"commit {record.number} of {self.where} does not follow the record before it: "
                f"the journal was changed or cut. {WAY_ON}"
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
        """Whether the CLAIM belongs to this log and not to another log of the same name (M8)."""
        identity = self.identity
        return (claim.incarnation, claim.data_topic_id, claim.journal_topic_id) == (
            identity.incarnation,
            identity.data_topic_id,
            identity.journal_topic_id,
        )

    @property
    def where(self) -> str:
        """Topic and partition, for log lines and errors."""
        return f"{self.identity.data_topic}/{self.identity.partition}"


class JournalRecord(NamedTuple):
    """A journal record as the driver read it."""

    offset: int
    data: bytes
    timestamp_ms: int
    """Log-append time, the broker's clock."""
    header: bytes | None = None
    """Envelope of a data record; None on every record that an owner writes (M285)."""


Decided = tuple[JournalRecord, Claim | Commit]
"""A CLAIM or COMMIT with its record. For a COMMIT in parts: the last part's record, with the data of all parts."""


class JournalFeed:
    """Turns the raw records of one journal into CLAIMs and COMMITs."""

    def __init__(self, where: str) -> None:
        self.alarms: deque[Alarm] = deque(maxlen=ALARMS_MAX)
        """Alarms about undecodable records, forgeries and lost data. The driver removes those that it has logged."""
        self.undecodable = 0
        """Number of undecodable records so far."""
        self._where = where
        self._parts: list[Part] = []
        self._next = -1
        """Offset at which the next part must be."""

    def decisions(self, records: Sequence[JournalRecord]) -> Iterator[Decided]:
        """The CLAIMs and COMMITs in these records, fed in offset order. A part 0 discards an unfinished COMMIT."""
        for record in records:
            try:
                if record.header is not None:
                    raise MalformedRecord("it has the header of a data record")
                decision = decode(record.data)
                if isinstance(decision, Part):
                    whole = self._whole(decision, record)
                    if whole is None:
                        continue
                    record, decision = whole  # noqa: PLW2901  # the part completes a COMMIT
            except MalformedRecord as error:
                self.undecodable += 1
                text = f"journal record {record.offset} of {self._where} is undecodable: {error}"
                self.alarms.append(Alarm(text, UNDECODABLE))
            else:
                yield record, decision

    def _whole(self, part: Part, record: JournalRecord) -> Decided | None:
        """The COMMIT that this part completes, or None."""
        known = self._parts
        if part.part == 0:
            known.clear()
        elif len(known) != part.part or record.offset != self._next or _commit_of(known[0]) != _commit_of(part):
            known.clear()
            return None
        known.append(part)
        self._next = record.offset + 1
        if len(known) < part.parts:
            return None
        data = b"".join(piece.data for piece in known)
        known.clear()
        commit = decode(data)
        if not isinstance(commit, Commit) or (commit.owner, commit.number) != part[:2]:
            raise MalformedRecord("the parts do not form the COMMIT that they name")
        return record._replace(data=data), commit


def _commit_of(part: Part) -> tuple[bytes, int, int]:
    """Owner and number of the COMMIT that a part belongs to, and the number of its parts."""
    return part.owner, part.number, part.parts
