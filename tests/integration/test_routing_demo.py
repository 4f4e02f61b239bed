"""A small run of the routing service demonstration, up to its verdict."""

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
ORDERS: Final = 400


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; returns its output."""
    command = [sys.executable, "-m", "examples.routing_demo", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=350)


@pytest.mark.usefixtures("local_servers")
def test_sales_are_routed_while_a_router_and_a_shop_are_killed(tmp_path: Path) -> None:
    some = tmp_path / "sales.csv"
    with SHIPPED.open() as lines:
        some.write_text("".join(islice(lines, ORDERS + 1)))
    done = demo("--input", str(some), "--rate", "100", "--max-age", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of router 1" in done.stdout
    assert "kill -9 of shop-1" in done.stdout
    assert "//sales/Router: 2 processes, " in done.stdout, "what flows, as `konverse router watch` says it"
    said = " ".join(done.stdout.split())
    assert "Verdict: each order once, in order, at the service of its region, nothing left open" in said


def test_an_order_without_a_region_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "sales.csv"
    wrong.write_text("order,customer,region\nS1,C1,Atlantis\n")
    done = demo("--input", str(wrong))
    assert done.returncode == 2
    assert "order 0 has no region of West, South" in " ".join(done.stdout.split())
