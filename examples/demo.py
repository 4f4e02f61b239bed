"""The demonstration: a file of sales is sent, one conversation per customer, and a worker is killed in the middle.

    make demo                      the shipped file
    make demo INPUT=file.csv       any CSV or JSON lines

A shop process sends the orders, two workers answer them, and one worker is killed with kill -9. Then a check reads the
topics: each order must be received once, in order, and answered once. Then Spark reads the same topics. The last line
is the verdict.
Exit code 0 when the verdict holds, 1 when it does not, 2 for bad input, 3 when the servers cannot be started.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import konverse
from examples.sales.check import Verdict, check
from examples.sales.children import ROOT, Child, start, stop, wait_until
from examples.sales.ending import end_with
from examples.sales.orders import SHIPPED, read_orders
from examples.sales.services import ORDERS, SHOP, create
from konverse.deploy import LocalStack
from konverse.deploy.host.progress import reporter_for
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput

RATE: Final = 2_500.0
"""Orders a second: slow enough to watch, and to kill a worker in the middle."""

PATIENCE_S: Final = 90.0


@dataclass
class Kill:
    """The worker that is killed, the time of the kill (seconds since 1970; 0: not yet), and the surviving worker."""

    worker: Child
    survivor: Child
    at: float = 0.0

    @property
    def recovery_s(self) -> float | None:
        """Time from the kill until the survivor owned every partition; None when it never did."""
        for event in self.survivor.events:
            if self.at and event["at"] > self.at and len(event.get("partitions", ())) == PARTITIONS:
                return float(event["at"] - self.at)
        return None


PARTITIONS: Final = 4


def run(kafka: str, redis: str, database: str, path: Path, total: int) -> tuple[Child, Kill, float]:
    """Run the processes, kill a worker in the middle, and show the progress."""
    with ExitStack() as exits:
        workers = [start(f"worker {n}", "examples.sales.worker", kafka, redis, database) for n in (1, 2)]
        for worker in workers:
            exits.callback(stop, worker)
        wait_until(workers, lambda worker: worker.last.get("partitions"), PATIENCE_S)
        shop = start("shop", "examples.sales.shop", kafka, redis, database, str(path), str(RATE), str(PATIENCE_S))
        exits.callback(stop, shop)
        kill = Kill(workers[0], workers[1])
        began = time.monotonic()
        progress = Progress(TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        sent = progress.add_task("orders sent", total=total)
        answered = progress.add_task("receipts received", total=total)
        with Live(progress, refresh_per_second=8):
            while shop.process.poll() is None:
                progress.update(sent, completed=shop.last.get("sent", 0))
                progress.update(answered, completed=shop.last.get("receipts", 0))
                if not kill.at and shop.last.get("receipts", 0) >= total // 2:
                    kill.worker.kill()
                    kill.at = time.time()
                    progress.console.print(f"[red]kill -9[/red] of {kill.worker.name} (pid {kill.worker.pid})")
                time.sleep(0.05)
            assert shop.thread is not None
            shop.thread.join(5)
            progress.update(sent, completed=shop.last.get("sent", 0))
            progress.update(answered, completed=shop.last.get("receipts", 0))
        return shop, kill, time.monotonic() - began


def summary(shop: Child, kill: Kill, verdict: Verdict, seconds: float) -> Table:
    """The result as a table."""
    table = Table(title="What the topics say", title_justify="left", show_header=False)
    recovery = kill.recovery_s
    rows = [
        ("orders sent", f"{shop.last.get('sent', 0):,} in {counted(verdict.conversations, 'conversation')}"),
        ("received once, in order", f"{verdict.received:,}"),
        ("replied once, in order", f"{verdict.replied:,}"),
        ("duplicates dropped", f"{verdict.duplicates:,}"),
        ("recovery after kill -9", f"{recovery:.1f} s" if recovery is not None else "the shop finished first"),
        ("throughput", f"{2 * verdict.received / seconds:,.0f} messages/s in {seconds:.1f} s (sent at {RATE:,.0f}/s)"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def conclude(console: Console, verdict: Verdict) -> None:
    """Print the problems, and the verdict as the last line."""
    for problem in verdict.problems[:10]:
        console.print(problem, style="red", markup=False)
    console.print(
        "[bold green]Verdict: each order once, in order, none missing[/bold green]"
        if verdict.holds
        else "[bold red]Verdict: violated[/bold red]"
    )


def demonstrate(console: Console, path: Path, *, spark: bool) -> bool:
    """Run the demonstration on a stack of its own. Returns whether the verdict holds."""
    total = sum(1 for _ in read_orders(path))
    if total < 2:
        raise BadInput(f"{path} has {counted(total, 'order')}, too few to kill a worker in the middle")
    with LocalStack.start(reporter=reporter_for(sys.stderr)) as stack:
        kafka = f"kafka://{stack.bootstrap}"
        console.print(
            f"Kafka at {stack.bootstrap}, Redis at {stack.redis_url}; {counted(total, 'order')} from {path.name}"
        )
        with konverse.connect(kafka, redis=stack.redis_url, database="sales") as broker:
            create(broker, partitions=PARTITIONS)
            shop, kill, seconds = run(kafka, stack.redis_url, "sales", path, total)
            orders, home = (broker.catalog.get(Queue, name) for name in (ORDERS, SHOP))
            verdict = check(stack.bootstrap, orders, home, total)
        if not kill.at or not kill.worker.killed:
            verdict.problems.append("no worker was killed in the middle")
        console.print(summary(shop, kill, verdict, seconds))
        if spark:
            command = [sys.executable, "-m", "examples.sales.report", stack.bootstrap, "sales"]
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                verdict.problems.append("Spark could not read the topics")
        conclude(console, verdict)
        return verdict.holds


def main(
    input_: Annotated[Path, typer.Option("--input", help="CSV with a header, or JSON lines")] = SHIPPED,
    spark: Annotated[bool, typer.Option(help="Let Spark read the topics at the end")] = True,
) -> None:
    """Send a file of sales through conversations, kill a worker in the middle, and check that nothing was lost."""
    console = Console()
    end_with(console, lambda: demonstrate(console, input_, spark=spark))


if __name__ == "__main__":
    typer.run(main)
