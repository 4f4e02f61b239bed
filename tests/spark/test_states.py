"""A stream's state of a partition is saved beside it, and found again by its next driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from konverse.spark.log import states
from konverse.spark.log.acceptance import Acceptance
from konverse.spark.log.states import ACCEPTANCES, States

pytestmark = pytest.mark.usefixtures("cold")


def test_the_newest_state_of_a_partition_and_one_older_state_are_kept(tmp_path: Path) -> None:
    kept = States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES)
    for first in range(0, 50, 10):
        kept.keep(0, first, first + 10, Acceptance())
    kept.keep(1, 0, 10, Acceptance())
    assert sorted(file.name for file in tmp_path.glob("*/*")) == ["0.40", "0.50", "1.10"]
    states._WARM.clear()
    found = [kept.newest(0, 0, at) for at in (39, 40, 49, 50)]
    assert [one and one[0] for one in found] == [None, 40, 40, 50]
    assert kept.newest(0, 45, 49) is None, "what lies between was deleted"


def test_a_state_that_is_large_compared_to_the_records_read_is_not_written(tmp_path: Path) -> None:
    kept, many = States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES), Acceptance()
    many.next = {number.to_bytes(20, "big"): number for number in range(1_000)}
    kept.keep(0, 0, 100, many)
    assert not [*tmp_path.glob("*/*")]
    kept.keep(0, 100, 250, many)
    assert [file.name for file in tmp_path.glob("*/*")] == ["0.250"]
    states._WARM.clear()
    found = kept.newest(0, 0, 300)
    assert found is not None
    assert (found[0], found[1].next, found[1].received) == (250, many.next, ({}, {}))


def test_a_state_up_to_which_truncation_may_delete_is_written_or_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = Acceptance()
    many.next = {number.to_bytes(20, "big"): number for number in range(1_000)}
    States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES).keep(0, 0, 100, many, lasting=True)
    assert [file.name for file in tmp_path.glob("*/*")] == ["0.100"]
    nowhere = States(str(tmp_path / "topic-reader-any" / "0.100"), "topic", "reader", "any", ACCEPTANCES)
    nowhere.keep(0, 0, 100_000, many)
    assert not caplog.text, "it costs time alone"
    nowhere.keep(0, 0, 100, many, lasting=True)
    assert (
        "state topic/any/0.100 was not stored, although truncation may delete the records before it: there"
        in caplog.text
    )


def test_a_state_saved_for_one_incarnation_is_not_found_for_another(tmp_path: Path) -> None:
    known = Acceptance()
    known.next = {b"1" * 20: 7}
    States(str(tmp_path), "topic", "reader", "aa", ACCEPTANCES).keep(0, 0, 10, known)
    for cold in (False, True):
        if cold:
            states._WARM.clear()
        assert States(str(tmp_path), "topic", "reader", "any", ACCEPTANCES).newest(0, 0, 10) is None
        found = States(str(tmp_path), "topic", "reader", "aa", ACCEPTANCES).newest(0, 0, 10)
        assert found is not None
        assert found[1].next == known.next
