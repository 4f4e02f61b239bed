"""Each rule of the protocol is there for a reason: without it, the simulator fails within 1,000 seeds.

So does the verifier when it alone judges, save for the mutants that leave nothing wrong in a log. A sample of the
mutants dies here; `make mutants`, and `python -m tests.simulation.mutation --judge verifier`, hunt all of them.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.kit.simulator.failure import Judge
from tests.simulation.mutation import (
    PATCHES,
    ROOT,
    SEEDS_MAX,
    TIMEOUT_S,
    UNSEEN,
    PatchFailed,
    apply,
    build,
    having,
    hunt,
    main,
    mutants,
    unseen,
)

SAMPLE: Final = (
    "acknowledged_when_handed_over", "an_open_try_is_forgotten", "any_offset_counts", "begun_has_no_first",
    "bounce_goes_to_the_owner", "closing_not_answered", "ends_of_targets_name_no_place",
    "first_in_a_transaction_overtakes", "gaps_accepted", "half_a_transaction", "homes_and_targets_decided_as_one",
    "index_of_the_forgotten_is_suspected", "judged_by_an_old_time", "no_snapshot_behind_a_loss",
    "redirected_without_origin", "session_does_not_go_back", "snapshot_without_judgements",
    "tombstone_of_a_closed_opener", "unread_survives_the_end",
)  # fmt: skip
"""Some that die soon, of every part of the protocol."""
SAMPLE_VERIFIED: Final = (
    "acknowledgements_not_replayed", "answers_not_kept", "any_epoch_claims", "attempts_used_again",
    "end_without_its_opener", "ends_of_targets_name_no_place", "no_care_after_a_crash", "no_stub",
    "outputs_not_numbered_on", "recovered_outputs_not_emitted", "rows_accepted_on_arrival", "snapshot_without_outputs",
    "voices_left_behind", "winners_in_any_order",
)  # fmt: skip
"""The same of those that the verifier has to find."""

hunts = pytest.mark.timeout(TIMEOUT_S + 20)
"""When runs draw something new, one may live for a hundred seeds more: that takes time, and is no failure."""


@hunts
@pytest.mark.parametrize("name", SAMPLE)
def test_a_product_without_the_rule_is_found_out(name: str, tmp_path: Path) -> None:
    patch = PATCHES / f"{name}.patch"
    build(tmp_path, patch)
    fate = hunt(tmp_path, kinds=having(patch))
    assert fate.seed is not None, f"{name} lived through {SEEDS_MAX} seeds"


@hunts
@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLE_VERIFIED)
def test_the_verifier_refutes_what_a_product_without_the_rule_leaves_behind(name: str, tmp_path: Path) -> None:
    assert name not in unseen()
    patch = PATCHES / f"{name}.patch"
    build(tmp_path, patch)
    fate = hunt(tmp_path, judge=Judge.VERIFIER, kinds=having(patch))
    assert fate.seed is not None, f"the verifier found nothing in the logs of {name}, {SEEDS_MAX} seeds"


def test_what_leaves_nothing_in_a_log_is_a_mutant_and_has_one_reason() -> None:
    groups = tomllib.loads(UNSEEN.read_text(encoding="utf-8"))["unseen"]
    names = [name for group in groups for name in group["mutants"]]
    assert sorted(names) == sorted(unseen())
    assert {*names} <= {patch.stem for patch in mutants()}
    assert all(group["reason"] for group in groups)


def test_what_leaves_nothing_in_a_log_is_not_hunted_by_the_verifier(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden, found = PATCHES / "alarmed_by_garbage.patch", PATCHES / "acknowledgements_not_replayed.patch"
    monkeypatch.setattr("tests.simulation.mutation.mutants", lambda: [hidden, found])
    monkeypatch.setattr("sys.argv", ["mutation", "--seeds", "5", "--json", "--judge", "verifier"])
    assert main() == 0
    assert list(json.loads(capsys.readouterr().out)) == [found.stem]


def test_every_patch_applies(tmp_path: Path) -> None:
    build(tmp_path, None)
    for patch in mutants():
        apply(tmp_path / "konverse", patch, "--check")


def test_hunters_say_who_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = tmp_path / "harmless.patch"
    first = (ROOT / "dialog" / "head.py").read_text("utf-8").splitlines()[0]
    harmless.write_text(f"--- a/dialog/head.py\n+++ b/dialog/head.py\n@@ -1,1 +1,2 @@\n+#\n {first}\n", "utf-8")
    deadly = PATCHES / "acknowledgements_not_replayed.patch"
    monkeypatch.setattr("tests.simulation.mutation.mutants", lambda: [deadly, harmless])
    monkeypatch.setattr("sys.argv", ["mutation", "--seeds", "5", "--json"])
    assert main() == 1
    fates = json.loads(capsys.readouterr().out)
    assert fates[deadly.stem]["seed"] is not None
    assert fates[harmless.stem] == {"seed": None, "seeds": 5, "error": ""}


def test_the_product_itself_lives_in_the_same_copy(tmp_path: Path) -> None:
    build(tmp_path, None)
    assert hunt(tmp_path, 10).seed is None


def test_a_patch_that_does_not_apply_is_named(tmp_path: Path) -> None:
    patch = tmp_path / "stale.patch"
    patch.write_text("--- a/dialog/head.py\n+++ b/dialog/head.py\n@@ -1,1 +1,1 @@\n-no such line\n+nor this\n", "utf-8")
    with pytest.raises(PatchFailed, match=r"stale\.patch does not apply"):
        build(tmp_path / "copy", patch)
