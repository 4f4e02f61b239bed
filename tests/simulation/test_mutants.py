"""Every rule of the protocol is needed: without it, the simulator fails within 1,000 seeds.

The verifier alone also refutes each mutant, except those that leave no error in a log. These tests hunt a sample.
`make mutants` and `python -m tests.simulation.mutation --judge verifier` hunt all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.kit.simulator.failure import Judge
from tests.simulation.mutant import Change, Mutant, MutantDoesNotFit, without_comment
from tests.simulation.mutation import (
    ROOT,
    SEEDS_MAX,
    TIMEOUT_S,
    UNSEEN,
    build,
    hunt,
    killed_by,
    main,
    mutant,
    mutants,
    unseen,
)

SAMPLE: Final = (
    "acknowledged_when_handed_over", "begun_has_no_first", "closing_not_answered", "ends_of_targets_name_no_place",
    "first_in_a_transaction_overtakes", "gaps_accepted", "half_a_transaction", "homes_and_targets_decided_as_one",
    "judged_by_an_old_time", "no_snapshot_after_a_loss", "redirected_without_origin", "unread_survives_the_end",
)  # fmt: skip
"""Mutants that die soon, from every part of the protocol."""
SAMPLE_VERIFIED: Final = (
    "acknowledgements_not_replayed", "answers_not_kept", "any_epoch_claims", "attempts_used_again",
    "end_without_its_opener", "ends_of_targets_name_no_place", "no_care_after_a_crash", "no_stub",
    "outputs_not_numbered_on", "recovered_outputs_not_emitted", "rows_accepted_on_arrival", "snapshot_without_outputs",
    "voices_left_behind", "winners_in_any_order",
)  # fmt: skip
"""Mutants that the verifier must refute."""

hunts = pytest.mark.timeout(TIMEOUT_S + 20)
"""After a change of the swarm a mutant may survive a hundred more seeds. That takes time, and is no failure."""


@hunts
@pytest.mark.parametrize("name", SAMPLE)
def test_a_product_without_the_rule_is_found_out(name: str, tmp_path: Path) -> None:
    found = mutant(name)
    build(tmp_path, found)
    fate = hunt(tmp_path, kinds=found.kinds, first=killed_by().get(name, 0))  # the seed that killed it last time
    assert fate.seed is not None, f"{name} lived through {SEEDS_MAX} seeds"


@hunts
@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLE_VERIFIED)
def test_the_verifier_refutes_the_logs_of_a_product_without_the_rule(name: str, tmp_path: Path) -> None:
    assert name not in unseen()
    found = mutant(name)
    build(tmp_path, found)
    fate = hunt(tmp_path, judge=Judge.VERIFIER, kinds=found.kinds)
    assert fate.seed is not None, f"the verifier found nothing in the logs of {name}, {SEEDS_MAX} seeds"


def test_every_listed_mutant_without_a_trace_in_a_log_exists_and_has_one_reason() -> None:
    groups = tomllib.loads(UNSEEN.read_text(encoding="utf-8"))["unseen"]
    names = [name for group in groups for name in group["mutants"]]
    assert sorted(names) == sorted(unseen())
    assert {*names} <= {one.name for one in mutants()}
    assert all(group["reason"] for group in groups)


def test_the_verifier_does_not_hunt_mutants_without_a_trace_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden, found = mutant("alarmed_by_garbage"), mutant("acknowledgements_not_replayed")
    monkeypatch.setattr("tests.simulation.mutation.mutants", lambda: [hidden, found])
    monkeypatch.setattr("sys.argv", ["mutation", "--seeds", "5", "--json", "--judge", "verifier"])
    assert main() == 0
    assert list(json.loads(capsys.readouterr().out)) == [found.name]


def test_every_mutant_fits_and_has_all_its_names(tmp_path: Path) -> None:
    """An undefined name would end every run, so the hunt would prove nothing about the rule."""
    build(tmp_path, None)
    known, product = mutants(), tmp_path / "konverse"
    before = {name: (product / name).read_bytes() for one in known for name in {change.file for change in one.changes}}
    for one in known:
        files = {change.file for change in one.changes}
        one.apply(product)
        for name in files:
            (tmp_path / "mutated" / one.name / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mutated" / one.name / name).write_bytes((product / name).read_bytes())
            (product / name).write_bytes(before[name])
    undefined = ["ruff", "check", "--isolated", "--no-cache", "--select", "F821,F823", str(tmp_path / "mutated")]
    said = subprocess.run([sys.executable, "-m", *undefined], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_mutation_command_reports_killed_and_surviving_mutants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = (ROOT / "dialog" / "fold" / "journal.py").read_text("utf-8").splitlines()[0]
    harmless = Mutant("harmless", "", (), (Change("dialog/fold/journal.py", "", (first,), ("#", first)),))
    deadly = mutant("acknowledgements_not_replayed")
    monkeypatch.setattr("tests.simulation.mutation.mutants", lambda: [deadly, harmless])
    monkeypatch.setattr("sys.argv", ["mutation", "--seeds", "5", "--json"])
    assert main() == 1
    fates = json.loads(capsys.readouterr().out)
    assert fates[deadly.name]["seed"] is not None
    assert fates[harmless.name] == {"seed": None, "seeds": 5, "error": ""}


def test_the_product_itself_lives_in_the_same_copy(tmp_path: Path) -> None:
    build(tmp_path, None)
    assert hunt(tmp_path, 10).seed is None


SOURCE: Final = """\
class First:
    def both(self) -> int:
        return 1


class Second:
    @property
    def both(self) -> int:
        if self:
            return 1
        return 2
"""


@pytest.mark.parametrize(
    ("within", "replace", "by", "expected"),
    [
        ("First.both", "return 1", "return 0", SOURCE.replace("1", "0", 1)),
        ("Second.both", "return 1", "", SOURCE.replace("            return 1\n", "")),
        (
            "Second.both",
            "    return 1\nreturn 2",
            "    pass\nreturn 3",
            SOURCE.replace("return 1\n        return 2", "pass\n        return 3"),
        ),
        ("Second", "@property", "@cached_property", SOURCE.replace("@", "@cached_")),
        ("", "class First:", "class Other:", SOURCE.replace("First", "Other")),
    ],
)
def test_the_lines_of_a_function_are_replaced_at_any_indentation(
    within: str, replace: str, by: str, expected: str
) -> None:
    change = Change("some.py", within, tuple(replace.split("\n")), tuple(by.split("\n")) if by else ())
    assert change.applied(SOURCE) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a = 1  # for a reason", "a = 1"),
        ("    # a reason alone", ""),
        ("   ", ""),
        ("a = '#'  # '", "a = '#'"),
        ('a = "\\"#"  # b', 'a = "\\"#"'),
        ('a = """ # """  # b', 'a = """ # """'),
        ("a = f'{b}#'", "a = f'{b}#'"),
    ],
)
def test_comments_are_no_code(written: str, expected: str) -> None:
    assert without_comment(written) == expected


def test_a_mutant_applies_regardless_of_comments() -> None:
    source = "def told():\n    if a:  # one\n        # two\n\n        return 1  # three\n    return 2\n"
    change = Change("some.py", "told", ("if a:  # other", "    return 1"), ("pass",))
    assert change.applied(source) == "def told():\n    pass\n    return 2\n"


@pytest.mark.parametrize(
    ("within", "replace", "times"), [("", "return 1", 2), ("First", "return 2", 0), ("Third", "return 1", 0)]
)
def test_lines_that_do_not_occur_exactly_once_are_named_in_the_error(within: str, replace: str, times: int) -> None:
    with pytest.raises(MutantDoesNotFit, match=rf"^some.py, .*stand there {times} times: {replace}$"):
        Change("some.py", within, (replace,), ()).applied(SOURCE)


def test_a_mutant_that_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    build(tmp_path, None)
    head = tmp_path / "konverse" / "dialog" / "fold" / "journal.py"
    before = head.read_text("utf-8")
    first = before.splitlines()[0]
    fits = Change("dialog/fold/journal.py", "", (first,), ("#", first))
    stale = Mutant("stale", "", (), (fits, Change("dialog/fold/journal.py", "", ("no such line",), ())))
    with pytest.raises(MutantDoesNotFit, match=r"^stale does not fit: dialog/fold/journal\.py, the module: "):
        stale.apply(tmp_path / "konverse")
    assert head.read_text("utf-8") == before
