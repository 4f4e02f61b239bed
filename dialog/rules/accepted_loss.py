"""Accepted loss: an operator gives up commits whose data was deleted (protocol.md sections 7.7 and 9d).

Those commits cannot be folded any more. The partition continues with the last state that can be recovered. From the
later journal only the facts that need no data are used: which conversations the commits began, from which known
endpoints they delivered, and how far their outputs were acknowledged. Messages that they may have delivered are not
delivered again. The owner then writes LOST, from the data offset of the recovered state to the last offset that a
commit ingested.
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
    """The command by which an operator gives up the lost data of a partition."""
    database, queue = queue_of(data_topic)
    where = f" --database {quote(database)}" if database not in ("", "default") else ""
    return f"konverse accept-loss {quote(queue)} {partition}{where}"


def expected_by(there: Partition, source: Partition, later: Iterable[Envelope], data_start: int) -> int:
    """Counter of the first output of `source` that the destination has not accepted yet.

    `there` is the state of the destination, `later` the envelopes that follow that state in its data log. The
    destination drops an output after a gap, unless its own data was lost: its journal has a LOST, or will have one,
    because its data log begins at `data_start`.
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


class AcceptedLoss:
    """Collects, from the commits that cannot be folded, the facts that need no data."""

    def __init__(self, expected: Mapping[Address, int] | None = None) -> None:
        """`expected`: next counter of this partition's outputs by destination, as far as known."""
        self._expected = expected or {}
        self.ingested_to = 0
        """Data offset below which those commits ingested everything; 0 when there is no such commit."""
        self.commits = 0
        self.first_offset = -1
        """Data offset of the last state that can be recovered."""
        self.begun: dict[bytes, Begin] = {}
        """Conversations that those commits began here."""
        self._acked: dict[Address, int] = {}
        self._received: set[int] = set()
        """Endpoints whose messages those commits may have delivered, dropped or moved. An index is reused only after
        the end of its endpoint, and that end is among these operations. So each index means the endpoint that the
        recovered state has."""

    @property
    def needed(self) -> bool:
        """Whether there is anything to give up."""
        return self.commits > 0

    def pass_over(self, decision: Claim | Commit) -> None:
        """Note a journal record that counts and will not be folded."""
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
        """Destinations to which outputs of this partition may have gone, as far as known."""
        return {*state.streams, *self._acked, *(begin.target for begin in self.begun.values())}

    def handed_out(self, state: Partition) -> dict[int, int]:
        """Endpoint -> number of its waiting messages, where a given-up commit may have delivered them."""
        return {
            endpoint.index: len(endpoint.queue)
            for endpoint in state.live()
            if endpoint.queue and endpoint.index in self._received
        }

    def settle(self, state: Partition) -> None:
        """Make the recovered state continue after the end of the journal.

        Nothing is delivered twice, and each stream of outputs continues at the counter that its destination expects.
        """
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
