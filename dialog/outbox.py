"""The outbox of a partition: what its commits sent, until every destination acknowledged it.

Outputs stand inside valid COMMITs and nowhere else; a stream numbers them per destination partition. Whoever folds the
journal has the same outbox, so anyone may copy it to the destinations, any number of times (protocol.md section 1).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from konverse.schemas.envelope import head
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Kind, Role
from konverse.schemas.varint import LOW_MASK, SMALL, high_part, low_table, varint


class Output(NamedTuple):
    """A record for a destination, without the counter, which its place in the stream gives."""

    prefix: bytes
    key: bytes
    sequence: int
    suffix: bytes
    body: bytes | None


OutputTuple = tuple[bytes, bytes, int, bytes, bytes | None]
"""An Output without its names: a third of the cost where there are many."""


class Stream:
    """Outputs of this partition for one destination partition, in counter order."""

    __slots__ = ("acked", "address", "entries", "heads", "next", "writer")

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.acked = 0
        """Counter below which the destination has everything, as the journal says."""
        self.next = 0
        """Counter of the next output."""
        self.entries: deque[OutputTuple] = deque()
        """Outputs acked … next-1."""
        self.heads = (self.head(Kind.MESSAGE, Role.INITIATOR), self.head(Kind.MESSAGE, Role.TARGET))

    def head(self, kind: Kind, role: Role, flags: int = 0) -> bytes:
        """First 23 bytes of a header to this destination."""
        return head(kind, flags, role, self.address.tag, self.writer)

    def push(self, output: Output) -> int:
        """Append an output; returns its counter."""
        self.entries.append(output)
        self.next += 1
        return self.next - 1

    def acknowledge(self, counter: int) -> None:
        """Forget the outputs below `counter` (never moves back)."""
        counter = min(counter, self.next)
        entries = self.entries
        if counter - self.acked == len(entries):
            entries.clear()
        else:
            for _ in range(counter - self.acked):
                entries.popleft()
        self.acked = max(self.acked, counter)

    def run(self, first: int, count: int) -> list[OutputTuple]:
        """Outputs first … first+count-1, fewer when there are fewer."""
        return list(islice(self.entries, first - self.acked, first - self.acked + count))


def headers_of(first: int, outputs: list[OutputTuple]) -> list[bytes]:
    """The finished headers of consecutive outputs whose counters start at `first`."""
    headers: list[bytes] = []
    at = 0
    while at < len(outputs):
        counter = first + at
        run = min(len(outputs) - at, (counter | LOW_MASK) + 1 - counter)
        low = low_table(counter)
        high = high_part(counter)
        start = counter & LOW_MASK
        headers += [
            prefix + part + high + (SMALL[sequence] if 0 <= sequence <= LOW_MASK else varint(sequence)) + suffix
            for part, (prefix, _, sequence, suffix, _) in zip(
                low[start : start + run], outputs[at : at + run] if at or run < len(outputs) else outputs, strict=True
            )
        ]
        at += run
    return headers
