"""An owner with its journal, data log and snapshots, driven step by step."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from konverse.dialog.fold.journal import JournalRecord
from konverse.dialog.owner.events import (
    Append,
    Appended,
    AppendSnapshot,
    DataRead,
    Effect,
    JournalRead,
    ReadData,
    ReadJournal,
    ReadSnapshots,
    Recover,
    SnapshotsRead,
    SnapshotWritten,
    Tick,
)
from konverse.dialog.owner.handing_out import take_further
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.received import Message
from tests.kit.digests import digest

from .builders import Row, anything, columns_of, identifier, log_of
from .hosts import host_of
from .staging import finds


class Driver:
    """An owner and its logs. Reads are answered at once; appends, outputs and time wait for the test.

    A journal record's broker time is its offset.
    """

    def __init__(
        self, journal: list[bytes] | None = None, data: list[Row] | None = None, claim: str = "me", **settings: Any
    ) -> None:
        self.journal = [] if journal is None else journal
        self.data = [] if data is None else data
        self.snapshots: list[bytes] = []
        self.owner = Owner(log_of(), identifier(claim), anything, OwnerSettings(**{"view_interval_ms": 0, **settings}))
        finds(self.owner.staging)
        host_of(self.owner.staging).further = partial(take_further, self.owner)
        self.now_ms = 0
        self.recovered = b""
        """Digest of the state before the CLAIM."""

    @property
    def state(self) -> Partition:
        return self.owner.fold.state

    def step(self, event: Any) -> list[Effect]:
        """Pass an event to the owner, answer its reads, and return all other effects."""
        return self._answer(self.owner.step(event, self.now_ms))

    def recover(self) -> list[Effect]:
        """Read both logs. The last effect appends the CLAIM."""
        return self.step(Recover(0, len(self.journal), 0, 0, len(self.snapshots)))

    def lead(self) -> list[Effect]:
        """Recover and claim without a competitor."""
        (claim,) = self.recover()
        self.recovered = digest(self.state)
        return self.acknowledge(claim)

    def try_groups(self) -> None:
        """After a crash: commit the TRY, so that its groups can be taken."""
        assert self.owner.trial.due
        self.commit()

    def make_snapshot(self) -> list[Effect]:
        """Advance time until a snapshot is complete in its topic. Returns the effects of `SnapshotWritten`."""
        first = len(self.snapshots)
        for _ in range(1_000):
            self.now_ms += 1
            for effect in self.step(Tick()):
                if isinstance(effect, AppendSnapshot):
                    self.snapshots += effect.records
                    if effect.last:
                        return self.step(SnapshotWritten(first))
        raise AssertionError("no snapshot was due")

    def write(self, effect: Effect | bytes) -> int:
        """Append to the journal and return the offset of the last record."""
        self.journal += effect.records if isinstance(effect, Append) else [cast("bytes", effect)]
        return len(self.journal) - 1

    def acknowledge(self, effect: Effect) -> list[Effect]:
        """Append to the journal and tell the owner the offset."""
        offset = self.write(effect)
        return self.step(Appended(offset, offset))

    def arrive(self, *rows: Row) -> None:
        """Append records to the data log; the owner reads and ingests them."""
        start = len(self.data)
        self.data.extend(rows)
        assert self.step(DataRead(columns_of(rows, start))) == []
        self.owner.ingest(self.now_ms)

    def commit(self) -> list[Effect]:
        """Commit, acknowledge the append, and return the effects."""
        (append,) = self.owner.commit(self.now_ms)
        return self.acknowledge(append)

    def handle(self, *replies: bytes) -> list[Message]:
        """A handler receives the whole next group and replies on its first conversation. Returns the messages."""
        transaction = self.owner.take()
        assert transaction is not None, "no group is ready"
        messages = list(transaction)
        for body in replies:
            transaction.send(messages[0].dialog, "reply", body)
        self.owner.finish(transaction)
        return messages

    def _answer(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, ReadJournal):
                out += self.step(self.journal_read(effect.start, effect.end))
            elif isinstance(effect, ReadData):
                out += self.step(DataRead(columns_of(self.data[effect.start : effect.end], effect.start)))
            elif isinstance(effect, ReadSnapshots):
                records = [*enumerate(self.snapshots)][effect.start : effect.end]
                out += self.step(SnapshotsRead(records, effect.end))
            else:
                out.append(effect)
        return out

    def journal_read(self, start: int, end: int) -> JournalRead:
        """The event with journal records from `start` up to `end`."""
        records = [JournalRecord(offset, self.journal[offset], offset) for offset in range(start, end)]
        return JournalRead(records, end)
