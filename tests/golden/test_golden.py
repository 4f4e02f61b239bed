"""Journals of every release give the same hashes: by the product's fold, from snapshots, and by the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

from konverse.bridge.verifier.check import compare, judge
from konverse.dialog.fold.fold import Fold
from konverse.dialog.fold.snapshot import restore
from konverse.dialog.owner.events import Recover
from konverse.dialog.owner.recovery import FoundSnapshot, SnapshotSearch
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.identifiers import owner_writer
from tests.architecture.tree import pyproject
from tests.golden import record
from tests.golden.by_hand import by_hand
from tests.golden.case import FOLDER, Case, Outcome, counts_of, outcome_of, read, write
from tests.kit.simulator.forgers import honest
from tests.kit.simulator.losses import wrong

BYTES_MAX: Final = 307_200
"""Size limit of a release's file."""

FILES: Final = sorted(FOLDER.glob("*.avro"))


def folded(case: Case, fold: Fold) -> Iterator[Outcome]:
    """The fold's outcomes at each recorded offset still ahead of it."""
    for outcome in case.outcomes:
        if outcome.offset > fold.head.offset:
            fold.feed_journal([r for r in case.journal if fold.head.offset < r.offset <= outcome.offset])
            assert fold.advance() is None
            yield outcome_of(fold, outcome.snapshots_to)


def newest_snapshot(case: Case, end: int) -> FoundSnapshot:
    """The snapshot that a recovering owner finds when the snapshot topic ends there."""
    search = SnapshotSearch(case.identity, Recover(0, 0, 0, 0, end))
    while span := search.next_read():
        start, to = span
        search.read([*enumerate(case.snapshots)][start:to], to)
    assert search.found is not None, "there is no intact snapshot"
    return search.found


@cache
def of_release(path: Path) -> list[Case]:
    """The cases of a file."""
    return [*read(path)]


CASES: Final = [pytest.param(case, id=f"{path.stem}: {case.name}") for path in FILES for case in of_release(path)]


@pytest.mark.parametrize("case", CASES)
def test_a_journal_comes_to_the_hash_that_was_recorded(case: Case) -> None:
    assert [*folded(case, case.fold())] == case.outcomes


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_snapshot_restores_its_state_and_the_journal_continues_from_it(case: Case) -> None:
    for at, outcome in enumerate(case.outcomes):
        found = newest_snapshot(case, outcome.snapshots_to)
        fold = Fold(case.identity)
        restore(fold.state, found.data)
        fold.head.restore(found.end)
        assert outcome_of(fold, outcome.snapshots_to) == outcome
        case.feed_data(fold)
        assert [*folded(case, fold)] == case.outcomes[at + 1 :]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_verifier_comes_to_the_counts_that_were_recorded_and_refutes_nothing(path: Path) -> None:
    for _, partitions in groupby(of_release(path), key=lambda case: case.world):
        world = [*partitions]
        owners = {owner_writer(case.identity.incarnation, case.identity.partition) for case in world}
        verdicts = [judge(case.place(), case.journal_records(), case.data_records(), owners) for case in world]
        findings = [finding for verdict in verdicts for finding in verdict.findings] + [*compare(verdicts)]
        folds = [verdict.fold for verdict in verdicts]
        assert honest(wrong(findings, folds), forged=any(fold.tally["forged"] for fold in folds)) == []
        for case, verdict in zip(world, verdicts, strict=True):
            journal, last = verdict.journal, case.outcomes[-1]
            counts = counts_of(verdict)
            assert counts == dict.fromkeys(counts, 0) | case.counts, f"{case.name}: what was not counted then is 0"
            assert (journal.epoch, journal.owner, journal.number, journal.link) == last[1:5], case.name
            assert (journal.claimed_at, journal.now_ms) == (last.claim_offset, last.now_ms), case.name


def test_the_version_of_the_distribution_has_its_journals() -> None:
    version = pyproject()["project"]["version"]
    assert record.file_of(version).exists(), f"run: python -m tests.golden.record --release {version}"


NOT_RECORDED: Final = {
    "let go",  # only in a mailbox of 50,000 messages
    "installed from pieces",  # only for a state of more than 960,000 bytes
}
"""Kinds of events that no recorded journal has. The simulator has them all."""


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_journals_of_a_release_are_small_and_hold_something_of_every_kind(path: Path) -> None:
    assert path.stat().st_size <= BYTES_MAX
    cases = of_release(path)
    counted = {kind for case in cases for kind, number in case.counts.items() if number}
    assert counted == {*cases[0].counts} - NOT_RECORDED
    (hand,) = (case for case in cases if case.world == "by hand")
    fold = hand.fold()
    assert len([*folded(hand, fold)]) == len(hand.outcomes)
    state = fold.state
    assert all(
        (state.writers, state.groups, state.beginning, state.terms, state.streams, state.tombstones, state.mailbox)
    )
    assert any(endpoint.queue for endpoint in state.live())
    assert any(endpoint.error for endpoint in state.live())
    assert all(any(endpoint.role == role for endpoint in state.live()) for role in (0, 1))
    assert any(stream.runs and stream.acked for stream in state.streams.values())
    assert any(writer.closed_at is not None for writer in state.writers.values())
    assert state.free


# ------------------------------------------------------------------------------------------------- the check itself


def test_a_golden_record_is_read_back(tmp_path: Path) -> None:
    (case,) = record.completed([by_hand()])
    write(tmp_path / "X.avro", [case])
    assert [*read(tmp_path / "X.avro")] == [case]


def test_a_golden_record_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["record", "--release", "X"])
    monkeypatch.setattr(record, "worlds", list)
    assert record.main() == 0
    written = (tmp_path / "X.avro").read_bytes()
    assert record.main() == 1
    assert "never changes" in capsys.readouterr().err
    assert (tmp_path / "X.avro").read_bytes() == written
    with pytest.raises(FileExistsError):
        write(tmp_path / "X.avro", [])


def test_the_same_release_is_recorded_to_the_same_bytes(tmp_path: Path) -> None:
    cases = record.completed([by_hand()]) + [case for world in record.worlds({"high numbers"}) for case in world]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "X.avro", cases)
    assert (tmp_path / "a" / "X.avro").read_bytes() == (tmp_path / "b" / "X.avro").read_bytes()


def test_a_body_that_was_changed_comes_to_another_hash() -> None:
    (case,) = record.completed([by_hand()])
    at = next(at for at, sent in enumerate(case.data) if sent.body == b"3")
    data = [*case.data]
    data[at] = data[at]._replace(body=b"4")
    changed = case._replace(data=data)
    assert [*folded(changed, changed.fold())] != case.outcomes


def test_a_commit_that_was_changed_halts_or_comes_to_another_hash() -> None:
    (case,) = record.completed([by_hand()])
    datas = [record.data for record in case.journal]
    for at, kept in enumerate(case.journal):
        if kept.data[0] != 2 or kept.data in datas[:at]:  # only COMMITs in one piece that count
            continue
        journal = [*case.journal]
        journal[at] = kept._replace(data=kept.data[:-2] + bytes([kept.data[-2] ^ 1]) + kept.data[-1:])
        changed = case._replace(journal=journal)
        with suppress(PartitionHalted):
            assert [*folded(changed, changed.fold())] != case.outcomes, kept.offset
