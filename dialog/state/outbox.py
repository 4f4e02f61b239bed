"""The outbox of a partition: the outputs of its commits, until every destination has acknowledged them.

COMMITs that count are the only source of outputs; a stream numbers them per destination partition. Every fold of the
journal produces the same outbox, so any owner may copy it to the destinations, any number of times (protocol.md section
1). `Suffixes` keeps the header endings of messages, which are the same for each message type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX
from konverse.schemas.wire.envelope import encode_suffix, flagged, head
from konverse.schemas.wire.records import ACKED, NO_SEQUENCE, Kind, Suffix
from konverse.schemas.wire.varint import varint, varints

_ROLE_AT: Final = 2
"""Index of the role in a header (`konverse.schemas.wire.envelope.head`)."""
_SPOKEN: Final = frozenset(kind << 1 for kind in (Kind.MESSAGE, Kind.FIN))
"""First header byte of the records that an endpoint sends to its peer before its end."""
_ENDS: Final = frozenset(kind << 1 for kind in (Kind.END, Kind.ERROR))
"""First header byte of the records by which an endpoint ends."""
_NOTHING_SAID: Final = encode_suffix(Suffix())
_UNNUMBERED: Final = varint(NO_SEQUENCE)


class Run(NamedTuple):
    """Consecutive outputs of one conversation and one type. Their counters follow from their place in the stream."""

    prefix: bytes
    """Start of their headers, up to the counter."""
    key: bytes
    sequence: int
    """Sequence number of the first output; NO_SEQUENCE when they have none."""
    suffix: bytes
    bodies: Sequence[bytes | None]

    def part(self, first: int, count: int) -> Run:
        """The `count` outputs from index `first` on."""
        sequence = self.sequence if self.sequence == NO_SEQUENCE else self.sequence + first
        return self._replace(sequence=sequence, bodies=self.bodies[first : first + count])

    def headers(self, counters: Iterator[bytes]) -> Sequence[bytes]:
        """Headers of the records. Takes one encoded counter per record from `counters`.

        They are made when the run is handed to the producer, so they are freed before they have left the CPU cache.
        """
        prefix, _, sequence, suffix, bodies = self
        size = len(bodies)
        if size == 1:
            return (prefix + next(counters) + varint(sequence) + suffix,)
        join = b"".join
        numbers = varints(sequence, size) if sequence != NO_SEQUENCE else [_UNNUMBERED] * size
        return [join((prefix, counter, number, suffix)) for number, counter in zip(numbers, counters)]  # noqa: B905  # the next run takes the rest


class Gate(NamedTuple):
    """The outputs from `counter` on wait until the destination `to` has every output below `after`."""

    counter: int
    to: Address
    after: int


class Stream:
    """The partition's send stream to one destination partition: outputs in counter order.

    Its twin for the records of a session is `dialog.session.lanes.Lane`.
    """

    __slots__ = ("acked", "address", "gates", "heads", "next", "runs", "writer")

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.acked = 0
        """Counter below which every output has arrived, according to the journal."""
        self.next = 0
        """Counter of the next output."""
        self.runs: deque[Run] = deque()
        """Outputs with the counters acked … next-1."""
        self.gates: deque[Gate] = deque()
        """Gates in counter order: outputs of this stream wait there for acknowledgements of other destinations."""
        self.heads = (self.head(Kind.MESSAGE, Role.INITIATOR), self.head(Kind.MESSAGE, Role.TARGET))

    def head(self, kind: Kind, role: Role, flags: int = 0) -> bytes:
        """The first 23 bytes of a header to this destination."""
        return head(kind, flags, role, self.address.tag, self.writer)

    @property
    def open_to(self) -> int:
        """Counter below which no output waits for another destination."""
        return self.gates[0].counter if self.gates else self.next

    @property
    def waiting(self) -> int:
        """Number of outputs whose arrival the journal does not record yet."""
        return self.next - self.acked

    def push(self, run: Run) -> None:
        """Append a run of outputs. Its first record vouches for the earlier outputs if all have arrived (M291)."""
        size = len(run.bodies)
        if self.acked == self.next and self.next and size:
            self.runs.append(run.part(0, 1)._replace(prefix=flagged(run.prefix, ACKED)))
            if size > 1:
                self.runs.append(run.part(1, size))
        else:
            self.runs.append(run)
        self.next += size

    def take_back(self, role: Role, conversation: bytes, *, ends: bool = True) -> None:
        """Turn the records of this side that may not have arrived into VOID; their counters stay in use.

        Without `ends` its END or Error stays.
        """
        void = self.head(Kind.VOID, role) + conversation
        spoken = _SPOKEN | _ENDS if ends else _SPOKEN
        self.runs = deque(
            Run(void, run.key, NO_SEQUENCE, _NOTHING_SAID, [None] * len(run.bodies))
            if run.prefix[0] in spoken and run.prefix[_ROLE_AT] == role << 1 and run.prefix.endswith(conversation)
            else run
            for run in self.runs
        )

    def acknowledge(self, counter: int) -> None:
        """Forget the outputs below `counter`; `acked` never falls."""
        runs = self.runs
        if counter >= self.next:
            runs.clear()
            self.acked = self.next
            return
        while self.acked < counter:
            size = len(runs[0].bodies)
            if self.acked + size > counter:
                runs[0] = runs[0].part(counter - self.acked, size)
                size = counter - self.acked
            else:
                runs.popleft()
            self.acked += size

    def resume_at(self, counter: int) -> None:
        """Continue at `counter`, the next one that the destination accepts, whatever this stream sent before."""
        if counter > self.next:
            self.runs.clear()
            self.gates.clear()
            self.next = self.acked = counter
        else:
            self.acknowledge(counter)

    def cut(self, first: int, count: int) -> list[Run]:
        """Runs with the outputs first … first+count-1, fewer when there are fewer."""
        end = min(first + count, self.next)
        if first == self.acked and end == self.next:
            return list(self.runs)
        out: deque[Run] = deque()
        at = self.next
        for run in reversed(self.runs):  # the outputs that were not cut yet are at the end
            if at <= first:
                break
            size = len(run.bodies)
            at -= size
            if first <= at and at + size <= end:
                out.appendleft(run)
            elif at < end:
                skip = max(0, first - at)
                out.appendleft(run.part(skip, min(size, end - at) - skip))
        return list(out)


class Suffixes(dict[str, bytes]):
    """Message type -> end of the header, for the messages of one side; encoded once for each type.

    The header of a target's message names the target's partition as home, for the answers of the initiator's home.
    """

    __slots__ = ("_home",)

    def __init__(self, home: Address | None) -> None:
        super().__init__()
        self._home = home

    def __missing__(self, message_type: str) -> bytes:
        if len(self) >= SUFFIX_CACHE_ENTRIES_MAX:
            self.clear()
        suffix = self[message_type] = encode_suffix(Suffix(message_type, home=self._home))
        return suffix
