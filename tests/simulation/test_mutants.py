"""Each rule of the protocol is there for a reason: without it, the simulator fails within 300 seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutation import SEEDS_MAX, PatchFailed, build, hunt, mutants


@pytest.mark.parametrize("patch", mutants(), ids=lambda patch: patch.stem)
def test_a_product_without_the_rule_is_found_out(patch: Path, tmp_path: Path) -> None:
    build(tmp_path, patch)
    fate = hunt(tmp_path)
    assert fate.seed is not None, f"{patch.stem} lived through {SEEDS_MAX} seeds"


def test_the_product_itself_lives_in_the_same_copy(tmp_path: Path) -> None:
    build(tmp_path, None)
    assert hunt(tmp_path, 10).seed is None


def test_a_patch_that_does_not_apply_is_named(tmp_path: Path) -> None:
    patch = tmp_path / "stale.patch"
    patch.write_text("--- a/dialog/head.py\n+++ b/dialog/head.py\n@@ -1,1 +1,1 @@\n-no such line\n+nor this\n", "utf-8")
    with pytest.raises(PatchFailed, match=r"stale\.patch does not apply"):
        build(tmp_path / "copy", patch)
