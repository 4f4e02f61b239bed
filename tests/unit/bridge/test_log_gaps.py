"""Offsets at which a log holds no record, and whether another program's transaction explains them."""

from __future__ import annotations

import pytest

from konverse.bridge.verifier.log_gaps import Gap, describe_gaps, noting_gaps, unexplained
from konverse.bridge.verifier.records import Record


def records(log: str) -> list[Record]:
    """Records of a log: o ours, s a stranger's, a aborted, anything else: no record at this offset."""
    return [Record(at, kind.encode(), b"", 0) for at, kind in enumerate(log) if kind in "osa"]


def gaps_of(log: str) -> list[Gap]:
    """The gaps as a consumer meets them, which does not see aborted records."""
    gaps: list[Gap] = []
    seen = [record for record in records(log) if record.header != b"a"]
    assert [*noting_gaps(seen, 0, len(log), gaps)] == seen
    return gaps


def unexplained_in(log: str) -> list[Gap]:
    return unexplained(gaps_of(log), records(log), lambda record: record.header == b"o")


def test_a_log_without_gaps_has_none() -> None:
    assert gaps_of("oooso") == []
    assert gaps_of("") == []


def test_gaps_are_noted_at_the_beginning_between_and_at_the_end() -> None:
    assert gaps_of(".oo..o.") == [Gap(0, 1), Gap(3, 5), Gap(6, 7)]
    assert gaps_of("...") == [Gap(0, 3)]
    assert gaps_of("oaa.o") == [Gap(1, 4)], "aborted records are hidden"


@pytest.mark.parametrize(
    "log",
    [
        "os.o",  # a transaction of one record, and its mark
        "sss.",  # the mark of a larger one ends the log
        "sooso..o",  # two transactions at a time
        "oaa.o",  # an aborted one
        "aoa.o",  # the same, with a record of ours in it
        "aa..o",  # two aborted ones
        "a.s.o",  # an aborted one, and another one
    ],
)
def test_marks_of_transactions_explain_gaps(log: str) -> None:
    assert unexplained_in(log) == []


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("o.o", [Gap(1, 2)]),
        (".o", [Gap(0, 1)]),
        ("o.", [Gap(1, 2)]),
        ("...", [Gap(0, 3)]),
        ("s..o", [Gap(1, 3)]),  # one mark at most
        (".so", [Gap(0, 1)]),  # a mark follows its transaction
        ("a...o", [Gap(0, 4)]),  # an aborted record, its mark, and two more
        ("o.s.o.o", [Gap(1, 2), Gap(5, 6)]),
        ("s.o.o", [Gap(3, 4)]),  # the mark is spent
    ],
)
def test_other_gaps_are_found(log: str, found: list[Gap]) -> None:
    assert unexplained_in(log) == found


@pytest.mark.parametrize(
    ("log", "since", "found"),
    [
        ("oso.o", 3, []),  # a transaction that began before, and its mark
        ("oaoo.o", 3, []),  # the same, aborted
        ("s.oo.o", 3, [Gap(4, 5)]),  # its mark came before
        ("ooo.o", 2, [Gap(3, 4)]),
        ("ss.oo.o.o", 4, [Gap(7, 8)]),  # one of two marks came before
    ],
)
def test_transactions_that_began_before_the_first_judged_offset_explain_gaps(
    log: str, since: int, found: list[Gap]
) -> None:
    gaps = [gap for gap in gaps_of(log) if gap.start >= since]
    assert unexplained(gaps, records(log), lambda record: record.header == b"o", 0, since) == found


def test_the_text_names_the_offsets() -> None:
    text = describe_gaps("data log", [Gap(3, 5), Gap(7, 8), Gap(9, 10)])
    assert text.startswith("offsets without a record in the data log: 4, the first of them 3 to 4. ")
