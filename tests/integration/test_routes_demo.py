"""A small run of the demonstration of routes, up to its verdict."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from examples.sales.orders import SHIPPED

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).resolve().parents[2]
ORDERS: Final = 1_500


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; returns its output."""
    command = [sys.executable, "-m", "examples.routes_demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=350)


@pytest.mark.usefixtures("local_servers")
def test_orders_wait_for_a_depot_that_comes_to_life_while_the_server_is_killed(tmp_path: Path) -> None:
    some = tmp_path / "sales.csv"
    with SHIPPED.open() as lines:
        some.write_text("".join(islice(lines, ORDERS + 1)))
    done = demo("--input", str(some), "--rate", "150")
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "kill -9 of server 1" in said
    assert "no database of this instance has a service of that name" in said
    assert "Verdict: each order once, in order, nothing left waiting" in said


def test_a_file_with_too_few_orders_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "sales.csv"
    short.write_text("order,customer\nS1,C1\n")
    done = demo("--input", str(short))
    assert done.returncode == 2
    assert "too few to kill in the middle" in " ".join(done.stdout.split())
