"""A small run of the routing demonstration, up to its verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(600),
]

ROOT: Final = Path(__file__).resolve().parents[2]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; returns its output."""
    command = [sys.executable, "-m", "examples.spark_demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.nightly  # starts three JVMs; other tests kill drivers and workers
@pytest.mark.usefixtures("local_servers")
def test_orders_are_routed_while_a_worker_and_the_driver_are_killed(tmp_path: Path) -> None:
    chart = tmp_path / "chart.png"
    done = demo("--messages", "3600", "--conversations", "1200", "--chart", str(chart))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 worker" in done.stdout
    assert "kill -9 driver" in done.stdout
    assert "3,600 in 1,200 conversations" in done.stdout
    assert "Verdict: each order once, in order, at the service of its region" in done.stdout
    assert chart.read_bytes()[:4] == b"\x89PNG"


def test_message_counts_without_a_middle_are_refused() -> None:
    done = demo("--messages", "5", "--conversations", "4")
    assert done.returncode == 2
    assert "there is no middle in 5 orders in 4 conversations" in " ".join(done.stdout.split())
