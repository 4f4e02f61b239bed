"""Contested records: a used counter of a writer with other content (protocol.md section 9f).

A foreign producer wrote in the name of a sender, and the queue's receivers get both records. An owner detects this by
the records that it remembers. Here a record is compared with the 4,096 records before it, or fewer if their headers and
bodies have more than 1 MiB together. Records before the start of the read are not compared.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.limits import RECENT_BODY_BYTES_MAX, RECENT_RECORDS_MAX
from konverse.schemas.wire.records import Kind

from .acceptance import ACCEPTED, DUPLICATE
from .frame import TAG_BYTES, Frame

CONTESTED: Final = 7
"""The verdict, beside those of `acceptance`."""

Ints = NDArray[np.int64]


class ContestedPair(NamedTuple):
    """Offsets of two records with one writer and counter, and with different content."""

    first: int
    second: int


class ContestedCount:
    """Counts the contested records of a read from an offset on."""

    def __init__(self, since: int) -> None:
        self._since = since
        self.records = 0
        self.first: ContestedPair | None = None

    def add(self, pairs: Iterable[ContestedPair]) -> None:
        """Count these pairs, which follow those of the last call."""
        for pair in pairs:
            if pair.second >= self._since:
                self.records += 1
                self.first = self.first or pair


class _Records(NamedTuple):
    """Consecutive records, reduced to the fields that the comparison needs."""

    offset: Ints
    tagged_writer: NDArray[np.void]
    counter: Ints
    kind: NDArray[np.uint8]
    verdict: NDArray[np.uint8]
    header: list[bytes]
    body: list[bytes]

    def kept(self) -> _Records:
        """The latest of these records that fit into the bounds. Keeps nothing else alive."""
        start = _oldest(self.bytes_before(), len(self.offset))
        return _Records(
            self.offset[start:].copy(),
            self.tagged_writer[start:].copy(),
            self.counter[start:].copy(),
            self.kind[start:].copy(),
            self.verdict[start:].copy(),
            self.header[start:],
            self.body[start:],
        )

    def bytes_before(self) -> Ints:
        """For each place the bytes of all records before it; last, the bytes of all records."""
        sizes = map(int.__add__, map(len, self.header), map(len, self.body))
        return np.cumsum([0, *sizes])


class ContestedRecords:
    """Finds the contested records of one partition."""

    def __init__(self) -> None:
        self._recent: deque[tuple[_Records, int]] = deque()
        """The records of each of the last calls, and their bytes. They are joined when a duplicate comes."""
        self._count = self._bytes = 0

    def judge(
        self,
        messages: list[Message],
        offsets: Ints,
        headers: list[bytes | None],
        frame: Frame,
        verdict: NDArray[np.uint8],
    ) -> list[ContestedPair]:
        """Turn DUPLICATE into CONTESTED where the content differs. The records follow those of the last call."""
        compares = bool((verdict == DUPLICATE).any())
        start = 0 if compares else max(0, len(messages) - RECENT_RECORDS_MAX)
        came = _Records(
            offsets[start:],
            frame.tagged_writer[start:],
            frame.counter[start:],
            frame.kind[start:],
            verdict[start:],
            [header or b"" for header in headers[start:]],
            [message.value() or b"" for message in messages[start:]],
        )
        pairs = _compare(_joined([*(records for records, _ in self._recent), came]), self._count) if compares else []
        if pairs:
            verdict[np.isin(offsets, [pair.second for pair in pairs])] = CONTESTED
        self._keep(came.kept())
        return pairs

    def _keep(self, came: _Records) -> None:
        """Keep these records. Forget those of earlier calls with which no further record is compared."""
        size = sum(map(len, came.header)) + sum(map(len, came.body))
        self._recent.append((came, size))
        self._count += len(came.offset)
        self._bytes += size
        while True:
            oldest, size = self._recent[0]
            if self._count - len(oldest.offset) < RECENT_RECORDS_MAX and self._bytes - size < RECENT_BODY_BYTES_MAX:
                return
            self._recent.popleft()
            self._count -= len(oldest.offset)
            self._bytes -= size


def _joined(parts: list[_Records]) -> _Records:
    return _Records(
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.tagged_writer for part in parts]),
        np.concatenate([part.counter for part in parts]),
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.verdict for part in parts]),
        [header for part in parts for header in part.header],
        [body for part in parts for body in part.body],
    )


def _compare(known: _Records, first: int) -> list[ContestedPair]:
    """Find the contested records from the place `first` on, and give them their verdict."""
    bytes_before = known.bytes_before()
    duplicates = first + np.flatnonzero(known.verdict[first:] == DUPLICATE)
    concerned = np.flatnonzero(np.isin(known.counter, known.counter[duplicates]))
    places: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    pairs = []
    for at in concerned.tolist():
        taken = places[known.tagged_writer[at].tobytes(), int(known.counter[at])]
        if at >= first and known.verdict[at] == DUPLICATE:
            oldest = _oldest(bytes_before, at)
            compared = [place for place in taken if place >= oldest]
            if _is_contested(known, at, compared):
                known.verdict[at] = CONTESTED
                pairs.append(ContestedPair(int(known.offset[compared[0]]), int(known.offset[at])))
        if known.verdict[at] in (ACCEPTED, CONTESTED):
            taken.append(at)
    return pairs


def _is_contested(known: _Records, at: int, compared: list[int]) -> bool:
    """Whether the content differs from that of all earlier records that were taken under the counter.

    An owner may put a VOID in the place of an output of its own: that is no forgery.
    """
    writer = known.tagged_writer[at].tobytes()[TAG_BYTES:]
    if time_of_writer(writer) is None and Kind.VOID in {int(known.kind[place]) for place in (*compared, at)}:
        return False
    content = known.header[at], known.body[at]
    return bool(compared) and all((known.header[place], known.body[place]) != content for place in compared)


def _oldest(bytes_before: Ints, at: int) -> int:
    """Place of the oldest record that is compared with the record at the place `at`."""
    return max(0, at - RECENT_RECORDS_MAX, int(np.searchsorted(bytes_before, bytes_before[at] - RECENT_BODY_BYTES_MAX)))
