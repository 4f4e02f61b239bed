"""`make chaos`: real Kafka, Redis, owners and clients under faults until the time is up. Then everything is judged.

    python -m tests.chaos [--profile smoke|matrix] [--seed N] [--cell NAME] [--without RULE] [--report FILE]

Exit code 0 when every promise held, 1 when one did not, 4 when too few faults had an effect for a meaningful run. The
report is build/chaos/report.html. The histories of a failed run are kept.

With `--without` the processes run a mutant of the product (`tests/simulation/mutants`), and the run should fail.
`--without duplicates_accepted` accepts a record as often as it arrives.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.simulation.mutation import ROOT, build, mutant, mutants

from .campaign import PLACES, PROFILES, Campaign, Cell, Ground, Outcome
from .disk import small_disk
from .report import write
from .rig import rig

REPORT: Final = Path("build/chaos/report.html")

HELD, VIOLATED, TOO_FEW = 0, 1, 4


def main() -> int:
    """Run, judge and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--profile", choices=PROFILES, default="smoke")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--cell", choices=[cell.name for _, cells in PROFILES.values() for cell in cells], metavar="NAME"
    )
    parser.add_argument("--without", choices=[one.name for one in mutants()], metavar="RULE")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    console = Console(highlight=False)
    effective_min, cells = PROFILES[options.profile]
    numbered = [(number, cell) for number, cell in enumerate(cells) if options.cell in (None, cell.name)]
    effective_min = effective_min if options.cell is None else 1
    again = f"make chaos PROFILE={options.profile} SEED={options.seed}"
    console.print(f"{again}: faults for {sum(cell.seconds for _, cell in numbered):.0f} s")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="konverse-chaos-"))
    outcomes = _run(numbered, options.seed, folder, console, _product_without(options.without, folder))
    write(options.report, outcomes, effective_min, again)
    console.print(f"{time.monotonic() - began:.0f} s; the report is {options.report}")
    return _verdict(outcomes, effective_min, folder, console)


def _product_without(rule: str | None, folder: Path) -> str | None:
    """PYTHONPATH of a product without the rule; None for the product itself."""
    if rule is None:
        return None
    build(folder / "product", mutant(rule))
    return os.pathsep.join((str(folder / "product"), str(ROOT)))


def _run(
    cells: Sequence[tuple[int, Cell]], seed: int, folder: Path, console: Console, python_path: str | None
) -> list[Outcome]:
    """Run each cell on servers of its own: after a full disk, a Kafka may never serve consumer groups again."""
    outcomes = []
    with small_disk(folder / "disk") as disk:
        if disk is None:
            console.print("no small disk can be mounted here (that needs root): no disk is filled", style="yellow")
        for number, cell in cells:
            console.rule(cell.name)
            histories = folder / f"{number}"
            histories.mkdir()
            with rig(PLACES, disk.root / f"stack-{number}" if disk else None) as servers:
                campaign = Campaign(Ground(servers, disk, python_path), cell, f"{seed}/{number}", histories)
                outcomes.append(campaign.run(lambda text: console.print(text, markup=False)))
                if outcomes[-1].verdict.anomalies:
                    shutil.copytree(servers.stack.directory / "logs", histories / "logs")
            _tell(outcomes[-1], console)
    return outcomes


def _tell(outcome: Outcome, console: Console) -> None:
    table = Table(title=f"{outcome.cell.name}: drained in {outcome.drain_s:.1f} s", title_justify="left")
    table.add_column("what")
    table.add_column("how often", justify="right")
    for name, figure in outcome.verdict.figures.items():
        table.add_row(name, f"{figure:,}")
    for name, times in sorted(outcome.effective.items()):
        table.add_row(f"fault: {name}", f"{times:,}")
    console.print(table)
    for name, times in Counter(anomaly.name for anomaly in outcome.verdict.anomalies).items():
        first = next(anomaly for anomaly in outcome.verdict.anomalies if anomaly.name == name)
        console.print(f"{name}, {times} times; the first: {first.where}: {first.text}", style="bold red", markup=False)


def _verdict(outcomes: Sequence[Outcome], effective_min: int, folder: Path, console: Console) -> int:
    effective = sum(outcome.effective.total() for outcome in outcomes)
    if any(outcome.verdict.anomalies for outcome in outcomes):
        console.print(f"VIOLATED; the histories are in {folder}", style="bold red")
        return VIOLATED
    shutil.rmtree(folder, ignore_errors=True)
    if effective < effective_min:
        console.print(f"only {effective} faults had an effect, {effective_min} are needed", style="bold yellow")
        return TOO_FEW
    console.print(f"Held: 0 violations under {effective} faults whose effect was seen", style="bold green")
    return HELD


if __name__ == "__main__":
    sys.exit(main())
