"""Properties of the test run that tests rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

GROUP: Final = """
import os, pathlib, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_of_a_group(number):
    pathlib.Path(f"{number}.worker").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_tests_of_one_group_run_in_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(GROUP, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses=2", "--dist=loadgroup", "--rootdir=."]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    workers = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.worker")]
    assert len(workers) == 6
    assert len(set(workers)) == 1
