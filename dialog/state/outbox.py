"""The outbox of a partition: what its commits sent, until every destination acknowledged it.

Outputs stand inside valid COMMITs and nowhere else; a stream numbers them per destination partition. Whoever folds the
journal has the same outbox, so anyone may copy it to the destinations, any number of times (protocol.md section 1).

Ends of the headers of an owner's messages, made once for each message type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from konverse.schemas.identifiers import Address, Role
from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix
from konverse.schemas.wire.varint import varint, varints

_ROLE_AT: Final = 2
"""Place of the role in a header (`konverse.schemas.wire.envelope.head`)."""
_SPOKEN: Final = frozenset(kind << 1 for kind in (Kind.MESSAGE, Kind.FIN))
"""First bytes of headers of what an endpoint says to its peer,"""
_ENDS: Final = frozenset(kind << 1 for kind in (Kind.END, Kind.ERROR))
"""and of what it says last."""
_NOTHING_SAID: Final = encode_suffix(Suffix())
_UNNUMBERED: Final = varint(NO_SEQUENCE)


class Run(NamedTuple):
    """Outputs that follow each other in a conversation and are of one type; their place in the stream counts them."""

    prefix: bytes
    """Of their headers: everything before the counter."""
    key: bytes
    sequence: int
    """Of the first one; NO_SEQUENCE when they have none."""
    suffix: bytes
    bodies: Sequence[bytes | None]

    def part(self, first: int, count: int) -> Run:
        """Some of them."""
        sequence = self.sequence if self.sequence == NO_SEQUENCE else self.sequence + first
        return self._replace(sequence=sequence, bodies=self.bodies[first : first + count])

    def headers(self, counters: Iterator[bytes]) -> Sequence[bytes]:
        """Headers of the records, with the next of these counters.

        Made when they are handed over, a run at a time: they are gone again before they have left the cache.
        """
        prefix, _, sequence, suffix, bodies = self
        size = len(bodies)
        if size == 1:
            return (prefix + next(counters) + varint(sequence) + suffix,)
        join = b"".join
        numbers = varints(sequence, size) if sequence != NO_SEQUENCE else [_UNNUMBERED] * size
        return [join((prefix, counter, number, suffix)) for number, counter in zip(numbers, counters)]  # noqa: B905  # counters go on


class Gate(NamedTuple):
    """The output `counter` and what follows it wait until the destination `to` has every output below `after`."""

    counter: int
    to: Address
    after: int


class Stream:
    """Outputs of this partition for one destination partition, in counter order."""

    __slots__ = ("acked", "address", "gates", "heads", "next", "runs", "writer")

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.acked = 0
        """Counter below which the destination has everything, as the journal says."""
        self.next = 0
        """Counter of the next output."""
        self.runs: deque[Run] = deque()
        """Outputs acked … next-1."""
        self.gates: deque[Gate] = deque()
        """What must be acknowledged elsewhere before the outputs behind it leave, in counter order."""
        self.heads = (self.head(Kind.MESSAGE, Role.INITIATOR), self.head(Kind.MESSAGE, Role.TARGET))

    def head(self, kind: Kind, role: Role, flags: int = 0) -> bytes:
        """First 23 bytes of a header to this destination."""
        return head(kind, flags, role, self.address.tag, self.writer)

    @property
    def open_to(self) -> int:
        """Outputs below it need not wait for another destination."""
        return self.gates[0].counter if self.gates else self.next

    @property
    def waiting(self) -> int:
        """Outputs that the destination does not have yet, as the journal says."""
        return self.next - self.acked

    def push(self, run: Run) -> None:
        """Append outputs."""
        self.runs.append(run)
        self.next += len(run.bodies)

    def take_back(self, role: Role, conversation: bytes, *, ends: bool = True) -> None:
        """What this side has said and the destination may not have says nothing any more; the counters stay.

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
        """Forget the outputs below `counter` (never moves back)."""
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
        """The destination goes on with `counter`, whatever was said to it so far."""
        if counter > self.next:
            self.runs.clear()
            self.gates.clear()
            self.next = self.acked = counter
        else:
            self.acknowledge(counter)

    def cut(self, first: int, count: int) -> list[Run]:
        """Outputs first … first+count-1, fewer when there are fewer."""
        end = min(first + count, self.next)
        if first == self.acked and end == self.next:
            return list(self.runs)
        out: deque[Run] = deque()
        at = self.next
        for run in reversed(self.runs):  # what was not cut yet stands at the end
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
    """Message type -> end of the header, for the messages of one side.

    Those of a target name its partition: what an initiator's home answers to them must find the way.
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
