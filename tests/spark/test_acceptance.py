"""Bulk acceptance equals ten lines of plain Python, however the log is cut into calls."""

from __future__ import annotations

import operator
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from konverse.schemas.limits import WRITER_HOLE_RECORDS_MAX
from konverse.schemas.wire.records import Kind
from konverse.spark.log.acceptance import ACCEPTED, DUPLICATE, GAP, Acceptance

WRITERS = [bytes([n]) * 20 for n in range(3)]
CONVERSATIONS = [bytes([n]) * 16 for n in range(3)]

Record = tuple[int, int, bool]
"""Writer, counter, and whether it vouches for the records before it."""

COUNTERS = [2**63 - 1, -(2**63), WRITER_HOLE_RECORDS_MAX, WRITER_HOLE_RECORDS_MAX + 1]
logs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 12) | st.sampled_from(COUNTERS), st.booleans()), max_size=60
)
likely_logs = st.lists(st.integers(0, 2), max_size=60).flatmap(
    lambda writers: st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, -1, -3, 2]), st.integers(0, 3).map(bool).map(operator.not_)),
        min_size=len(writers),
        max_size=len(writers),
    ).map(lambda drawn: _with_counters(writers, *map(list, zip(*drawn, strict=True))) if drawn else [])
)
sequenced = st.tuples(
    st.integers(0, 2), st.integers(0, 1), st.sampled_from([Kind.MESSAGE] * 6 + [Kind.END, Kind.ERROR])
)


def _with_counters(writers: list[int], jumps: list[int], vouching: list[bool]) -> list[Record]:
    following: dict[int, int] = defaultdict(int)
    log = []
    for writer, jump, vouches in zip(writers, jumps, vouching, strict=True):
        log.append((writer, following[writer] + jump, vouches))
        following[writer] += not jump
    return log


def reference(log: list[Record]) -> list[int]:
    """The rule as in protocol.md."""
    following: dict[int, int] = defaultdict(int)
    verdicts = []
    for writer, counter, vouches in log:
        lost = counter - following[writer]
        if lost == 0 or (vouches and 0 < lost <= WRITER_HOLE_RECORDS_MAX):
            following[writer] = counter + 1
            verdicts.append(ACCEPTED)
        else:
            verdicts.append(DUPLICATE if counter < following[writer] else GAP)
    return verdicts


def judged(log: list[Record], cuts: list[int], *, cut: bool = False) -> list[int]:
    """The verdicts of one Acceptance that is called once for each piece."""
    acceptance = Acceptance(cut=cut)
    verdicts: list[int] = []
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        piece = log[start:end]
        names = np.array([WRITERS[writer] for writer, _, _ in piece], "V20")
        counters = np.array([counter for _, counter, _ in piece], np.int64)
        vouching = np.array([vouches for _, _, vouches in piece], bool)
        verdicts += acceptance.judge(names, counters, vouching).tolist()
    return verdicts


def pieces(data: st.DataObject, length: int) -> list[int]:
    """Positions at which a log of `length` is cut."""
    return sorted(data.draw(st.lists(st.integers(0, length), max_size=5)))


@settings(deadline=None)  # the first example initializes Arrow and numpy
@given(logs | likely_logs, st.data())
def test_counters_are_accepted_once_and_in_order(log: list[Record], data: st.DataObject) -> None:
    assert judged(log, pieces(data, len(log))) == reference(log)


@given(likely_logs, st.integers(0, 60), st.data())
def test_a_truncated_log_is_judged_from_the_first_remaining_counter_of_each_writer(
    log: list[Record], start: int, data: st.DataObject
) -> None:
    rest = log[start:]
    first = {writer: counter for writer, counter, _ in reversed(rest)}
    shifted = [(writer, counter - max(first[writer], 0), vouches) for writer, counter, vouches in rest]
    assert judged(rest, pieces(data, len(rest)), cut=True) == reference(shifted)


@given(st.lists(sequenced, max_size=60), st.data())
def test_accepted_records_are_numbered_in_their_direction(
    log: list[tuple[int, int, Kind]], data: st.DataObject
) -> None:
    expected = []
    received: dict[tuple[int, int], int] = defaultdict(int)
    for conversation, role, kind in log:
        expected.append(received[conversation, role])
        received[conversation, role] = received[conversation, role] + 1 if kind is Kind.MESSAGE else 0

    acceptance = Acceptance()
    numbers: list[int] = []
    cuts = pieces(data, len(log))
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        piece = log[start:end]
        numbers += acceptance.number(
            np.array([CONVERSATIONS[conversation] for conversation, _, _ in piece], "V16"),
            np.array([role for _, role, _ in piece], np.uint8),
            np.array([kind for _, _, kind in piece], np.uint8),
            np.full(len(piece), -1, np.int64),
        ).tolist()
    assert numbers == expected
    assert {(c, r) for r in (0, 1) for c in acceptance.received[r]} == {
        (CONVERSATIONS[c], r) for (c, r), number in received.items() if number
    }


def test_a_direction_of_a_cut_log_starts_at_the_senders_number() -> None:
    names = np.array([CONVERSATIONS[0]] * 3, "V16")
    kinds = np.full(3, Kind.MESSAGE, np.uint8)
    numbers = Acceptance(cut=True).number(names, np.zeros(3, np.uint8), kinds, np.array([7, -1, 9], np.int64))
    assert numbers.tolist() == [7, 8, 9]


def test_the_same_writer_of_two_incarnations_counts_twice() -> None:
    names = np.array([b"one!" + bytes(16), b"two!" + bytes(16), b"one!" + bytes(16)], "V20")
    assert Acceptance().judge(names, np.array([0, 0, 1], np.int64), np.zeros(3, bool)).tolist() == [ACCEPTED] * 3
