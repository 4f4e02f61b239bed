"""Which records of a partition's log are accepted, by their counters (protocol.md section 3, `ingest`; I4 and I5).

    counter == next   accepted, next += 1
    counter <  next   duplicate
    counter >  next   gap; accepted, if the record shows that those before it are lost (M291)

Two rules hold. The log is judged from its start, in order, each record once. The verdicts depend on the records alone,
not on how they are cut into calls, so a task that runs again comes to the same verdicts.

Pure: arrays in, arrays out. Only counters of writers are judged. Verdicts that need the states of endpoints (a message
that is bounced because it has no endpoint, or comes after an END) are left to the fold of `konverse.dialog`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from konverse.schemas.limits import WRITER_HOLE_RECORDS_MAX
from konverse.schemas.wire.records import NO_SEQUENCE, Kind

ACCEPTED: Final = 0
DUPLICATE: Final = 1
GAP: Final = 2

SEQUENCED: Final = (Kind.MESSAGE, Kind.END, Kind.ERROR)
"""Kinds that an application receives: they take a sequence number in their direction."""

IS_SEQUENCED: Final = np.isin(np.arange(256), SEQUENCED)
"""SEQUENCED as a mask, indexed by the number of a kind."""

_ADOPTED_MAX: Final = 1 << 62
"""Where the log is cut, a first number of this size or more is not adopted: no honest writer comes near it."""

Ints = NDArray[np.int64]


class Acceptance:
    """The counters of one partition, from the log start to the last record judged.

    `cut`: the log no longer starts at its first record (retention, or truncation by section 7.5). The numbers of a
    writer or a direction then begin with those of its first record that is left.
    """

    def __init__(self, *, cut: bool = False) -> None:
        self.cut = cut
        self.next: dict[bytes, int] = {}
        """Next counter by incarnation tag and writer (20 bytes)."""
        self.received: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        """Next sequence number by conversation, one table per role of the sender, until the direction ends."""
        self.decided: dict[bytes, int] = {}
        """Highest decided batch by `batch_rows.Track` (33 bytes), -1 for none; in the order in which they were met."""
        self.vetoed: dict[bytes, int] = {}
        """Offset of the DECISION that dropped an attempt's rows, by track, batch and attempt (57 bytes)."""
        self.waits_from: int | None = None
        """Lowest offset of a row that waits for the decision about its batch; None when no row waits."""

    def copy(self) -> Acceptance:
        """An independent copy at the same place."""
        out = Acceptance(cut=self.cut)
        out.next = dict(self.next)
        out.received = (dict(self.received[0]), dict(self.received[1]))
        out.decided = dict(self.decided)
        out.vetoed = dict(self.vetoed)
        out.waits_from = self.waits_from
        return out

    def judge(self, tagged_writers: NDArray[np.void], counters: Ints, vouching: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """ACCEPTED, DUPLICATE or GAP for each record; the records follow those of the last call.

        A record that is `vouching` (flag ACKED) shows that the records in the gap before it are lost (M291).
        """
        if not len(counters):
            return np.zeros(0, np.uint8)
        codes, names = grouped(tagged_writers)
        order, firsts, sizes = _runs(codes)
        sorted_counters = counters[order]
        expected = self._expected(names, sorted_counters[firsts])
        as_expected = sorted_counters == np.repeat(expected - firsts, sizes) + np.arange(len(counters))
        clean = np.logical_and.reduceat(as_expected, firsts)
        self.next.update(zip(names, (expected + sizes).tolist(), strict=True))
        verdicts = np.zeros(len(counters), np.uint8)
        for group in np.flatnonzero(~clean).tolist():
            rows = order[firsts[group] : firsts[group] + sizes[group]]
            verdicts[rows], self.next[names[group]] = _one_by_one(
                int(expected[group]), counters[rows].tolist(), vouching[rows].tolist()
            )
        return verdicts

    def number(
        self, conversations: NDArray[np.void], roles: NDArray[np.uint8], kinds: NDArray[np.uint8], numbers: Ints
    ) -> Ints:
        """Sequence numbers of accepted records of SEQUENCED kinds; `numbers` are the senders' own, or -1."""
        if not len(kinds):
            return np.zeros(0, np.int64)
        codes, names = grouped(conversations)
        order, firsts, sizes = _runs(codes * 2 + roles)
        first_rows = order[firsts]
        group_roles = roles[first_rows].tolist()
        group_names = [names[code] for code in codes[first_rows].tolist()]
        base = self._base(group_names, group_roles, numbers[first_rows])
        ends = kinds[order] != Kind.MESSAGE
        ranks = np.repeat(base - firsts, sizes) + np.arange(len(kinds))
        after = base + sizes
        closed = np.logical_or.reduceat(ends, firsts)
        for group in np.flatnonzero(closed).tolist():
            run = slice(firsts[group], firsts[group] + sizes[group])
            ranks[run], after[group] = _restarting(int(base[group]), ends[run].tolist())
        self._remember(group_names, group_roles, after.tolist())
        out = np.empty(len(kinds), np.int64)
        out[order] = ranks
        return out

    def _expected(self, names: list[bytes], first_counters: Ints) -> Ints:
        known = self.next
        if not self.cut:
            return np.array([known.get(name, 0) for name in names], np.int64)
        firsts = [counter if 0 <= counter < _ADOPTED_MAX else 0 for counter in first_counters.tolist()]
        return np.array([known.get(name, first) for name, first in zip(names, firsts, strict=True)], np.int64)

    def _base(self, names: list[bytes], roles: list[int], first_numbers: Ints) -> Ints:
        tables = self.received
        if not self.cut:
            return np.array([tables[role].get(name, 0) for name, role in zip(names, roles, strict=True)], np.int64)
        firsts = [number if NO_SEQUENCE < number < _ADOPTED_MAX else 0 for number in first_numbers.tolist()]
        rows = zip(names, roles, firsts, strict=True)
        return np.array([tables[role].get(name, first) for name, role, first in rows], np.int64)

    def _remember(self, names: list[bytes], roles: list[int], after: list[int]) -> None:
        tables = self.received
        for name, role, number in zip(names, roles, after, strict=True):
            if number:
                tables[role][name] = number
            else:
                tables[role].pop(name, None)


def _one_by_one(expected: int, counters: list[int], vouching: list[bool]) -> tuple[list[int], int]:
    """Verdicts on one writer's counters, and the counter that is expected next."""
    verdicts = []
    for counter, vouches in zip(counters, vouching, strict=True):
        lost = counter - expected
        if lost == 0 or (vouches and 0 < lost <= WRITER_HOLE_RECORDS_MAX):
            expected = counter + 1
            verdicts.append(ACCEPTED)
        else:
            verdicts.append(DUPLICATE if counter < expected else GAP)
    return verdicts, expected


def _restarting(number: int, ends: list[bool]) -> tuple[list[int], int]:
    """Numbers of one direction, in which an END restarts the count, and the number that comes next."""
    numbers = []
    for is_end in ends:
        numbers.append(number)
        number = 0 if is_end else number + 1
    return numbers, number


def grouped(values: NDArray[np.void]) -> tuple[NDArray[np.int32], list[bytes]]:
    """Codes 0, 1, 2 … in order of first appearance, and the value for each code."""
    width = values.dtype.itemsize
    buffers = [None, pa.py_buffer(values.view(np.uint8))]
    encoded = pa.Array.from_buffers(pa.binary(width), len(values), buffers).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _runs(codes: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Rows sorted by code and then by place, and the start and length of each code's run."""
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes  # 16 bits are sorted in one pass
    order = np.argsort(small, kind="stable")
    in_order = codes[order]
    firsts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    return order, firsts, np.diff(firsts, append=len(codes))
