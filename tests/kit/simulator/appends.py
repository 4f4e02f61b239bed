"""An owner's writes to its own logs: journal records and snapshot chunks, and their acknowledgements."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.fold.snapshot_sections import pieces_of
from konverse.dialog.owner.events import Appended, AppendSnapshot, SnapshotWritten
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.recovery import FoundSnapshot
from konverse.dialog.state.partition import Partition
from konverse.schemas.wire.snapshot import Chunk, SnapshotEnd, decode
from tests.kit.digests import digest

from .kafka import Outcome, Payload, Request
from .places import Place
from .truncating import left

if TYPE_CHECKING:
    from .world import World


class Appends:
    """The append of an owner that is under way."""

    def __init__(self, world: World, place: Place) -> None:
        self._world = world
        self._place = place
        self._requests: list[Request] = []
        self._answer_lost = False

    @property
    def waiting(self) -> bool:
        """An append is under way."""
        return bool(self._requests)

    def send(self, records: list[bytes]) -> None:
        """Send the records as one batch, or one by one."""
        world = self._world
        payloads: list[Payload] = [(None, b"", record) for record in records]
        world.sometimes.happened("parts", len(payloads) > 1)
        apart = len(payloads) > 1 and world.choices.chance(300)  # else the client makes one batch of them
        batches = [[payload] for payload in payloads] if apart else [payloads]
        self._requests = [Request(self._place.journal, batch) for batch in batches]
        self._answer_lost = False
        for request in self._requests:
            self._answer_lost |= world.kafka.send(request) is Outcome.SILENT
            if apart:
                world.meddle(self._place)

    def outcome(self) -> Appended | None:
        """The outcome, once the append is answered or the driver stops waiting; None until then."""
        world = self._world
        if not self._requests:
            return None
        landed = all(request.landed for request in self._requests)
        if landed and not self._answer_lost:
            outcome = self._report()
        elif self._answer_lost or world.kafka.calm or world.choices.chance(300):
            outcome = Appended(None)
            world.sometimes.happened("append unknown, landed" if landed else "append unknown")
        else:
            return None
        self.abandon()
        return outcome

    def _report(self) -> Appended:
        """The client's report when all records are in the journal."""
        pick = self._world.choices.pick
        firsts = [pick(request.landed) for request in self._requests]
        offsets = [
            first.offset + at
            for first, request in zip(firsts, self._requests, strict=True)
            for at in range(len(request.payloads))
        ]
        together = offsets == [*range(offsets[0], offsets[0] + len(offsets))]
        self._world.sometimes.happened("parts apart", not together)
        return Appended(max(offsets), self._place.journal.records[max(offsets)].timestamp_ms, together)

    def abandon(self) -> None:
        """Stop waiting for the append."""
        for request in self._requests:
            request.abandoned = True
        self._requests = []


class Snapshots:
    """The snapshot of an owner that is under way. Each of its records is a request of its own."""

    def __init__(self, world: World, place: Place) -> None:
        self._world = world
        self._place = place
        self._sent: list[tuple[Request, bool]] = []
        """Each request, and whether its answer is lost."""
        self._state = b""
        """Digest of the state when the snapshot began."""
        self._whole = sha256()
        """Digest of the state and of the recent records after it."""

    def watch(self, owner: Owner) -> None:
        """Note the state at the beginning of each snapshot, and the snapshot from which the owner recovered."""

        def begun() -> None:
            self._state = digest(owner.fold.state)
            self._whole = sha256(b"".join((*Freeze(owner.fold.state).pieces(), *pieces_of(owner.fold.state.recent))))

        owner.snapshots.on_begin = begun
        owner.snapshots.on_restored = self._found

    def _found(self, found: FoundSnapshot) -> None:
        happened, place = self._world.sometimes.happened, self._place
        happened("recovered from a follower's snapshot", not found.by_owner)
        stale = [end for end in left(place) if end.offset + 1 < place.journal.start]
        happened("snapshot passed over", len(stale))

    def append(self, effect: AppendSnapshot) -> SnapshotWritten | None:
        """Send records of a snapshot. With the last ones, return the event that reports the whole snapshot."""
        kafka, happened = self._world.kafka, self._world.sometimes.happened
        for record in effect.records:
            request = Request(self._place.snapshots, [(None, b"", record)])
            self._sent.append((request, kafka.send(request) is Outcome.SILENT))
        if not effect.last:
            return None
        end = decode(effect.records[-1])
        assert isinstance(end, SnapshotEnd)
        sent, self._sent = self._sent, []
        if end.sha256 != self._whole.digest():
            self._place.fail(f"I3: {self._place.name}: a snapshot is not the state with which it began")
        one_of_four = end.sha256[0] < 64  # restoring all of them would take a quarter of a run
        if one_of_four and digest(_restored(self._place, [request for request, _ in sent])) != self._state:
            self._place.fail(f"I3: {self._place.name}: what is recovered from a snapshot is not its state")
        known = all(request.landed and not lost for request, lost in sent)
        happened("snapshot written" if known else "snapshot lost")
        return SnapshotWritten(min(request.landed[0].offset for request, _ in sent) if known else None)

    def abandon(self) -> None:
        """The process is gone. Its requests may still arrive."""
        self._sent = []


def _restored(place: Place, requests: list[Request]) -> Partition:
    """The state that the records of one snapshot hold."""
    state = Partition(place.identity)
    records = [decode(record) for request in requests for _, _, record in request.payloads if record is not None]
    restore(state, b"".join(record.data for record in records if isinstance(record, Chunk)))
    return state
