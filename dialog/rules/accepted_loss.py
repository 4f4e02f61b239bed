"""What an operator gives up when data were deleted that commits have ingested (protocol.md section 7.7).

Nobody can fold those commits any more. So the partition goes on with the last state that can be had, and the journal
behind it says only what it says without data: which conversations it began, which of the known ones it handed out, how
far its outputs came. What of it may have been received is not received again, and the owner then says LOST, from the
last data that the state has ingested to the last that a commit has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote

from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, queue_of
from konverse.schemas.wire.journal import Claim, Commit
from konverse.schemas.wire.records import Begin, Envelope

from .endings import discard


def command(data_topic: str, partition: int) -> str:
    """What an operator types who gives up what is lost of a partition."""
    database, queue = queue_of(data_topic)
    where = f" --database {quote(database)}" if database not in ("", "default") else ""
    return f"konverse accept-loss {quote(queue)} {partition}{where}"


def expected_by(there: Partition, source: Partition, later: Iterable[Envelope], data_start: int) -> int:
    """The counter of a partition's outputs that a destination has not heard yet.

    `there` is the state of the destination, `later` what stands in its data log behind that. What stands there behind a
    gap it drops, unless data of it was lost: it has said so, or will, as its log begins at `data_start`.
    """
    writer, tag = source.writer_id, there.address.tag
    known = there.writers.get(writer)
    counter = known.next if known is not None else 0
    passes_over = there.lost_to > 0 or data_start > there.ingest_to
    for one in later:
        mine = one.writer == writer and one.tag == tag
        if mine and (one.counter == counter or (passes_over and one.counter > counter)):
            counter = one.counter + 1
    return counter


class Acceptance:
    """The commits of one partition that cannot be folded."""

    def __init__(self, expected: Mapping[Address, int] | None = None) -> None:
        """`expected`: the counter of this partition's outputs with which each destination goes on, as far as known."""
        self._expected = expected or {}
        self.ingested_to = 0
        """Data offset below which those commits have ingested everything; 0: there is no such commit."""
        self.commits = 0
        self.first_offset = -1
        """Data offset behind the last state that can be had."""
        self.begun: dict[bytes, Begin] = {}
        """Conversations that those commits began here."""
        self._acked: dict[Address, int] = {}
        self._received: set[int] = set()
        """Endpoints whose messages they may have handed out, dropped or sent elsewhere. A place is given to another one
        only behind the end of the first, so those are the ones that the state knows."""

    @property
    def needed(self) -> bool:
        """Something has to be given up."""
        return self.commits > 0

    def pass_over(self, decision: Claim | Commit) -> None:
        """A record of the journal counts, and is not folded."""
        if isinstance(decision, Claim):
            return
        self.commits += 1
        self.ingested_to = max(self.ingested_to, decision.ingest_to)
        self._acked.update(decision.output_acks)
        operations = decision.operations
        self.begun.update(operations.begins)
        self._received.update(operations.receive_endpoints, (end.endpoint for end in operations.ends))
        self._received.update(index for one in operations.rare if (index := getattr(one, "endpoint", -1)) >= 0)

    def destinations(self, state: Partition) -> set[Address]:
        """Where outputs of this partition may have gone, as far as known."""
        return {*state.streams, *self._acked, *(begin.target for begin in self.begun.values())}

    def handed_out(self, state: Partition) -> dict[int, int]:
        """Endpoint -> messages that wait there by the state, and may have been received since."""
        return {
            endpoint.index: len(endpoint.queue)
            for endpoint in state.live()
            if endpoint.queue and endpoint.index in self._received
        }

    def settle(self, state: Partition) -> None:
        """Let the state go on where the journal ends: nothing is received twice, and what is sent is heard."""
        for index in self.handed_out(state):
            endpoint = state.table[index]
            assert endpoint is not None
            discard(state, endpoint)
        for address in {**self._acked, **self._expected}:
            counter = max(self._acked.get(address, 0), self._expected.get(address, 0))
            if counter:
                state.stream_to(address).resume_at(counter)
        if state.gated:
            state.open_gates()
