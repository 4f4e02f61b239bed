"""Routes: orders for a service that does not exist yet, databases that come to life, and a server that is killed.

    make demo-routes                       the shipped file
    make demo-routes RATE=1000             another number of orders a second
    make demo-routes INPUT=file.csv        another file

A shop sends the orders of a file in dialogs with a depot that no database has. The dialogs are delayed in the link
queue of the instance. Then database `north` comes to life and creates the depot: a server sends the dialogs on, and is
killed with kill -9 in the middle of it; another server continues. Database `south` creates a second depot, and new
dialogs spread over both. Meanwhile a picture shows what routing decides and how many messages wait. At the end the
judge of `konverse verify` reads the logs of all databases, and a separate check compares what shop and depots received
with the file. Exit code 0 when the verdict holds, 1 when it does not, 2 for bad input, 3 when servers cannot be
started.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import konverse
from examples.depots.services import DEPOT, create_shop
from examples.depots.shop import BASKET
from examples.sales.children import Child, start, stop, wait_until
from examples.sales.ending import end_with
from examples.sales.orders import SHIPPED, read_orders
from konverse.deploy import LocalStack
from konverse.deploy.host.progress import reporter_for
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, StackError

SHOP: Final = "shop"
NORTH: Final = "north"
SOUTH: Final = "south"
PARTITIONS: Final = 4
PATIENCE_S: Final = 120.0
LOOK_S: Final = 0.1
DECIDE_S: Final = 1.0
"""Interval between two looks at the routes and at the link queue."""
BASKETS_MIN: Final = 30


@dataclass
class Counts:
    """What the processes have reported."""

    sent: int = 0
    received: dict[str, int] = field(default_factory=dict)
    """Database of a depot -> orders that it has received."""
    receipts: int = 0
    waiting: int = 0
    """Messages in the link queue at the last look."""
    reason: str = ""
    """What routing decided at the last look."""


class Picture:
    """The display, for the time of a `with` block. Without a terminal it prints a line for each look."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self._counts = Counts()
        self._bars = Progress(
            TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        names = ("shop: orders sent", "depots: orders received", "shop: receipts")
        self._tasks = [self._bars.add_task(name, total=total) for name in names]
        self._live = Live(self, refresh_per_second=8, console=console)

    def update(self, counts: Counts) -> None:
        """Show these counts."""
        self._counts = counts
        values = (counts.sent, sum(counts.received.values()), counts.receipts)
        for task, completed in zip(self._tasks, values, strict=True):
            self._bars.update(task, completed=completed)

    def looked(self, counts: Counts) -> None:
        """Print a line about a look at the routes, where nothing else is shown."""
        if not self.console.is_terminal:
            depots = ", ".join(f"{database} {number}" for database, number in counts.received.items()) or "no depot"
            self.console.print(
                f"{counts.sent} sent, {counts.waiting} wait, {depots}; {counts.reason}", markup=False, soft_wrap=True
            )

    def __rich__(self) -> Group:
        """The present picture."""
        counts = self._counts
        flow = Table.grid(padding=(0, 2))
        flow.add_row(SHOP, "──▶", f"[bold]{DEPOT}[/bold]", Text(counts.reason, style="cyan"))
        flow.add_row("", "", "link queue", f"{counts.waiting:,} messages wait" if counts.waiting else "empty")
        for database, number in counts.received.items():
            flow.add_row("", "", f"database {database}", f"{number:,} orders")
        return Group(self._bars, Panel(flow, title="routes", title_align="left"))

    def __enter__(self) -> Self:
        self._live.start(refresh=self.console.is_terminal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class Play:
    """Starts and kills the processes, and shows what they do."""

    def __init__(self, console: Console, broker: konverse.Broker, path: Path, rate: float) -> None:
        self._broker = broker
        self._place = broker.settings.kafka
        self._file = (str(path), str(rate))
        self.total = sum(1 for _ in read_orders(path))
        self.shop: Child
        self.depots: dict[str, Child] = {}
        self.servers: list[Child] = []
        self.counts = Counts()
        self.waiting_at_kill = 0
        self._look_at = 0.0
        self._picture = Picture(console, self.total)

    def run(self) -> float:
        """Run until each order has its receipt, and return the seconds it took. Raises StackError."""
        began = time.monotonic()
        with ExitStack() as exits:
            exits.callback(self._stop)
            self._serve()
            self.shop = start("the shop", "examples.depots.shop", self._place, SHOP, *self._file)
            exits.enter_context(self._picture)
            self._until(lambda: self.counts.sent * 3 >= self.total and self.counts.waiting > 0)
            self._open(NORTH)
            wait_until([self.depots[NORTH]], lambda one: one.last.get("received"), PATIENCE_S)
            self._kill_server()
            self._serve()
            self._open(SOUTH)
            self.shop.process.send_signal(signal.SIGUSR1)
            self._until(self._is_over)
        return time.monotonic() - began

    def _is_over(self) -> bool:
        shop, counts = self.shop.last, self.counts
        return bool(shop.get("finished")) and counts.receipts >= self.total and shop["ended"] >= shop["dialogs"]

    def _serve(self) -> None:
        name = f"server {len(self.servers) + 1}"
        self.servers.append(start(name, "examples.depots.server", self._place, SHOP))
        wait_until(self.servers[-1:], lambda one: one.last.get("ready"), PATIENCE_S)

    def _open(self, database: str) -> None:
        self._picture.console.print(f"database {database} comes to life, with the service {DEPOT}")
        self.depots[database] = start(
            f"depot {database}", "examples.depots.depot", self._place, database, str(PARTITIONS)
        )
        wait_until([self.depots[database]], lambda one: one.last.get("ready"), PATIENCE_S)

    def _kill_server(self) -> None:
        server = self.servers[-1]
        server.kill()
        self._look(at_once=True)
        self.waiting_at_kill = self.counts.waiting
        self._picture.console.print(
            f"[red]kill -9[/red] of {server.name} (pid {server.pid}); {counted(self.counts.waiting, 'message')} of "
            "delayed dialogs wait"
        )

    def _until(self, condition: Callable[[], bool]) -> None:
        """Show what happens until the condition holds. Raises StackError when nothing happens for too long."""
        changed, before = time.monotonic(), (-1, -1, -1)
        while True:
            self._look()
            counts = self.counts
            if condition():
                return
            progress = (counts.sent, sum(counts.received.values()), counts.receipts)
            if progress != before:
                before, changed = progress, time.monotonic()
            dead = next((one for one in self._living() if one.process.poll() is not None), None)
            if dead is not None or time.monotonic() - changed > PATIENCE_S:
                what = f"{dead.name} has ended" if dead is not None else "nothing has arrived for too long"
                raise StackError(f"{what}, at {progress[1]:,} of {self.total:,} orders")
            time.sleep(LOOK_S)

    def _look(self, *, at_once: bool = False) -> None:
        """Read the reports of the processes, and now and then the routes and the link queue."""
        counts = self.counts
        counts.sent, counts.receipts = self.shop.last.get("sent", 0), self.shop.last.get("receipts", 0)
        counts.received = {database: depot.last.get("received", 0) for database, depot in self.depots.items()}
        if at_once or time.monotonic() >= self._look_at:
            counts.reason = self._broker.admin.explain_route(DEPOT).reason
            counts.waiting = sum(1 for _ in self._broker.views.transmission_queue())
            self._look_at = time.monotonic() + DECIDE_S
            self._picture.looked(counts)
        self._picture.update(counts)

    def _living(self) -> list[Child]:
        return [self.shop, *self.depots.values(), *self.servers[-1:]]

    def _stop(self) -> None:
        for child in self._living():
            stop(child)


def check(play: Play, path: Path) -> list[str]:
    """What differs from the file: each order must be received once, in order, and have one receipt."""
    problems: list[str] = []
    baskets = [numbers for depot in play.depots.values() for numbers in depot.last["numbers"].values()]
    expected = sorted(order.number for order in read_orders(path))
    received = sorted(chain.from_iterable(baskets))
    if received != expected:
        missing, doubled = _difference(expected, received)
        problems.append(f"{missing} orders are missing, {doubled} came more than once")
    if receipts := _difference(expected, sorted(play.shop.last["numbers"])):
        missing, doubled = receipts
        if missing or doubled:
            problems.append(f"{missing} receipts are missing, {doubled} came more than once")
    problems += [f"orders came out of order: {numbers}" for numbers in baskets if numbers != sorted(numbers)]
    problems += [
        f"a dialog has orders of two baskets: {numbers}"
        for numbers in baskets
        if numbers[0] // BASKET != numbers[-1] // BASKET
    ]
    return problems


def _difference(expected: list[int], found: list[int]) -> tuple[int, int]:
    counts = Counter(found)
    return sum(number not in counts for number in expected), sum(count - 1 for count in counts.values())


def summary(play: Play, findings: int, seconds: float) -> Table:
    """The result as a table."""
    table = Table(title="What happened", title_justify="left", show_header=False)
    for database, depot in play.depots.items():
        table.add_row(
            f"received in database {database}",
            f"{depot.last['received']:,} orders in {depot.last['dialogs']:,} dialogs",
        )
    table.add_row("receipts", f"{play.shop.last['receipts']:,}")
    table.add_row("messages that waited when the server was killed", f"{play.waiting_at_kill:,}")
    table.add_row("findings of the verifier, over all databases", f"{findings:,}")
    table.add_row("throughput", f"{play.total / seconds:,.0f} orders/s in {seconds:.1f} s, kill included")
    return table


def demonstrate(console: Console, path: Path, rate: float) -> bool:
    """Run the demonstration on a stack of its own. Returns whether the verdict holds."""
    baskets = -(-sum(1 for _ in read_orders(path)) // BASKET)
    if baskets < BASKETS_MIN:
        raise BadInput(f"{path} has {counted(baskets, 'basket')} of {BASKET} orders, too few to kill in the middle")
    reporter = reporter_for(sys.stderr)
    with LocalStack.start(reporter=reporter) as stack:
        console.print(f"Kafka at {stack.bootstrap}; {counted(baskets, 'dialog')} with orders from {path.name}")
        with konverse.connect(f"kafka://{stack.bootstrap}", database=SHOP) as broker:
            create_shop(broker, partitions=PARTITIONS)
            play = Play(console, broker, path, rate)
            seconds = play.run()
            problems = check(play, path)
            queues = {queue.topic: queue for queue in broker.operations.instance_queues()}
            for database in broker.catalog.databases():
                queues |= {queue.topic: queue for queue in broker.catalog.known_in(database, Queue)}
            with reporter.step("Verifying the logs of all databases"):
                findings = broker.operations.verification([*queues.values()]).run()[1]
            waiting = sum(1 for _ in broker.views.transmission_queue())
    problems += [finding.text for finding in findings]
    if waiting:
        problems.append(f"{counted(waiting, 'message')} wait although each dialog has ended")
    problems += [
        f"database {name} has received nothing" for name, one in play.depots.items() if not one.last["numbers"]
    ]
    if not play.waiting_at_kill:
        problems.append("nothing waited when the server was killed")
    console.print(summary(play, len(findings), seconds))
    for problem in problems[:10]:
        console.print(problem, style="red", markup=False)
    console.print(
        "[bold red]Verdict: violated[/bold red]"
        if problems
        else "[bold green]Verdict: each order once, in order, nothing left waiting[/bold green]"
    )
    return not problems


def main(
    input_: Annotated[Path, typer.Option("--input", help="A file like the shipped one")] = SHIPPED,
    rate: Annotated[float, typer.Option(min=1, help="Orders a second")] = 500.0,
) -> None:
    """Send orders to a service that comes to life later, kill the server that routes them, and check the result."""
    console = Console()
    end_with(console, lambda: demonstrate(console, input_, rate))


if __name__ == "__main__":
    typer.run(main)
