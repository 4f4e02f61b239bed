"""The outbox of a partition: what its commits sent, until every destination acknowledged it.

Outputs stand inside valid COMMITs and nowhere else; a stream numbers them per destination partition. Whoever folds the
journal has the same outbox, so anyone may copy it to the destinations, any number of times (protocol.md section 1).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from konverse.schemas.envelope import encode, head
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Kind, Role
from konverse.schemas.varint import SMALL, high_part, low_table


class Output(NamedTuple):
    """What a record for a destination is made of; its place in the stream gives the counter."""

    prefix: bytes
    key: bytes
    sequence: int
    suffix: bytes
    body: bytes | None


Handed = tuple[bytes, bytes, bytes | None]
"""A record for the producer: header, key, body."""


class Stream:
    """Outputs of this partition for one destination partition, in counter order."""

    __slots__ = ("acked", "address", "entries", "heads", "high", "low", "next", "writer")

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.acked = 0
        """Counter below which the destination has everything, as the journal says."""
        self.next = 0
        """Counter of the next output."""
        self.low = SMALL
        self.high = b""
        self.entries: deque[Handed] = deque()
        """Outputs acked … next-1."""
        self.heads = (self.head(Kind.MESSAGE, Role.INITIATOR), self.head(Kind.MESSAGE, Role.TARGET))

    def head(self, kind: Kind, role: Role, flags: int = 0) -> bytes:
        """First 23 bytes of a header to this destination."""
        return head(kind, flags, role, self.address.tag, self.writer)

    def push(self, output: Output) -> int:
        """Append an output; returns its counter. `apply` does the same inline for messages."""
        counter = self.next
        header = encode(output.prefix, counter, output.sequence, output.suffix)
        self.entries.append((header, output.key, output.body))
        self.next = counter + 1
        self.carry()
        return counter

    def carry(self) -> None:
        """Renew the bytes of the running counter; needed whenever its low part starts again."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

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

    def run(self, first: int, count: int) -> list[Handed]:
        """Outputs first … first+count-1, fewer when there are fewer."""
        return list(islice(self.entries, first - self.acked, first - self.acked + count))
