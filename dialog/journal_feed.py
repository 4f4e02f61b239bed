"""Records of a journal as they were read, made into decisions: parts into the COMMIT that they are, the rest as it is.

A COMMIT of k parts is there when its last part stands directly behind the k-1 others, in order (protocol.md section 2);
whatever stands between them makes them void. That depends on the journal alone, so that anyone may judge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from konverse.schemas.errors import MalformedRecord
from konverse.schemas.journal import Claim, Commit, Part, decode
from konverse.schemas.limits import ALARMS_MAX


class JournalRecord(NamedTuple):
    """A record of the journal as it was read."""

    offset: int
    data: bytes
    timestamp_ms: int
    """Log-append time, the broker's clock."""
    header: bytes | None = None
    """An envelope: no owner writes one here."""


UNDECODABLE: Final = "is undecodable"
"""Stands in each alarm about a record of the journal that is none."""

Decided = tuple[JournalRecord, Claim | Commit]
"""A decision, and the record that says it: of a COMMIT in parts the last one, with the data of all."""


class JournalFeed:
    """What was read of one journal, up to the last record."""

    def __init__(self, where: str) -> None:
        self.alarms: deque[str] = deque(maxlen=ALARMS_MAX)
        """What an operator should know: records of the journal that are not records. The driver takes them."""
        self.undecodable = 0
        """How many such records there were."""
        self._where = where
        self._parts: list[Part] = []
        self._next = -1
        """Where the next part has to stand."""

    def decisions(self, records: Sequence[JournalRecord]) -> Iterator[Decided]:
        """The decisions of these records, which are fed in offset order; a piece that is fed again begins anew."""
        for record in records:
            try:
                if record.header is not None:
                    raise MalformedRecord("it has the header of a data record")
                decision = decode(record.data)
                if isinstance(decision, Part):
                    whole = self._whole(decision, record)
                    if whole is None:
                        continue
                    record, decision = whole  # noqa: PLW2901  # what the part completes
            except MalformedRecord as error:
                self.undecodable += 1
                self.alarms.append(f"journal record {record.offset} of {self._where} {UNDECODABLE}: {error}")
            else:
                yield record, decision

    def _whole(self, part: Part, record: JournalRecord) -> Decided | None:
        """The COMMIT that the part completes."""
        known = self._parts
        if part.part == 0:
            known.clear()
        elif len(known) != part.part or record.offset != self._next or known[0][:2] != part[:2]:
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
            raise MalformedRecord("parts that are not those of the COMMIT which they name")
        return record._replace(data=data), commit
