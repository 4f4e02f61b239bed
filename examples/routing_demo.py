"""Data-dependent routing as a service: sales go to the services of their regions; a router and a shop are killed.

    make demo-routing                      the shipped file
    make demo-routing MAX_AGE=3 RATE=500   other seconds between recycles, other orders per second
    make demo-routing INPUT=file.csv       another file with these regions

Two shops send the orders to one router service, one conversation per customer, through pools that recycle their
conversations every few seconds. Two processes run the router: it passes each conversation on to one of three services,
by a routing table, and receipts back. In the middle one router is killed with kill -9, then one shop, which is
restarted and goes on with its conversations. Meanwhile the traffic of the router is shown, as by
`konverse router watch`. At the end the pools recycle all conversations, and none may be left open. Then the judge of
`konverse verify` reads the logs, and a separate check tells whether each order arrived once, in order, at the service
of its region. Exit code 0 when the verdict holds, 1 when it does not, 2 for bad input, 3 when servers cannot be
started.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

import konverse
from examples.regions.services import ORDERS, REGIONS, ROUTER, SERVICES, SHOPS, create
from examples.regions.showing import Showing
from examples.sales.check import Verdict, numbers, once
from examples.sales.children import Child, start, stop, wait_until
from examples.sales.ending import end_with
from examples.sales.orders import SHIPPED, Order, read_orders
from konverse.bridge.router.figures import read_figures
from konverse.deploy import LocalStack
from konverse.deploy.host.progress import reporter_for
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, StackError

DATABASE: Final = "sales"
PARTITIONS: Final = 4
PARTS: Final = 2
PATIENCE_S: Final = 120.0
LOOK_S: Final = 0.1


@dataclass
class Cast:
    """The processes of the demonstration, and those that were killed."""

    routers: list[Child] = field(default_factory=list)
    shops: list[Child] = field(default_factory=list)
    regions: dict[str, Child] = field(default_factory=dict)
    killed: list[Child] = field(default_factory=list)

    @property
    def living(self) -> list[Child]:
        """The shops that were not killed."""
        return [shop for shop in self.shops if shop not in self.killed]

    def dead(self) -> Child | None:
        """A process that has ended by itself, or None."""
        everybody = (*self.routers, *self.shops, *self.regions.values())
        return next((one for one in everybody if one.process.poll() is not None and one not in self.killed), None)


class Play:
    """Starts and kills the processes, and shows their progress."""

    def __init__(self, console: Console, broker: konverse.Broker, path: Path, rate: float, max_age: float) -> None:
        self.cast = Cast()
        self._broker = broker
        self._place = (broker.settings.kafka, broker.settings.redis or "", broker.database)
        self._file = (str(path), str(rate / PARTS), str(max_age))
        self._total = sum(1 for _ in read_orders(path))
        self._showing = Showing(console, lambda: read_figures(broker, ROUTER), self._total)

    def run(self) -> float:
        """Run until the last conversation has ended, and return the seconds it took. Raises StackError."""
        began = time.monotonic()
        with ExitStack() as exits:
            exits.callback(self._stop)
            cast = self.cast
            for service, queue in SERVICES.items():
                cast.regions[service] = start(service, "examples.regions.region", *self._place, queue)
            cast.routers = [start(f"router {n}", "examples.regions.router", *self._place) for n in (1, 2)]
            wait_until([*cast.regions.values(), *cast.routers], lambda one: one.last.get("ready"), PATIENCE_S)
            for number in range(PARTS):
                self._open_shop(number)
            exits.enter_context(self._showing)
            self._watch()
        return time.monotonic() - began

    def _open_shop(self, number: int) -> None:
        part = (f"shop-{number + 1}", f"{number}/{PARTS}")
        self.cast.shops.append(start(part[0], "examples.regions.shop", *self._place, *part, *self._file))

    def _watch(self) -> None:
        """Kill a router at a third of the orders, a shop at two thirds; wait until nothing is missing or open."""
        cast = self.cast
        changed, before = time.monotonic(), (-1, -1)
        while True:
            time.sleep(LOOK_S)
            received, _ = counts = self._show()
            if counts != before:
                before, changed = counts, time.monotonic()
            first = _sum(cast.shops[:1], "sent") * PARTS
            if not cast.killed and first * 3 >= self._total:
                self._kill(cast.routers[0])
            elif len(cast.killed) == 1 and first * 3 >= 2 * self._total:
                self._kill(cast.shops[0])
                self._open_shop(0)
            closed = all(shop.last.get("finished") and not shop.last["open"] for shop in cast.living)
            if received >= self._total and closed and not left_open(self._broker):
                return  # the killed shop's conversations are closed too, by the readers of its queue
            dead = cast.dead()
            if dead is not None or time.monotonic() - changed > PATIENCE_S:
                what = f"{dead.name} has ended" if dead is not None else "nothing has arrived for too long"
                raise StackError(f"{what}, at {received:,} of {self._total:,} orders")

    def _show(self) -> tuple[int, int]:
        """Update the display. Returns the numbers of received orders and of receipts."""
        cast = self.cast
        received, receipts = _sum([*cast.regions.values()], "received"), _sum(cast.shops, "receipts")
        self._showing.update(_sum(cast.living, "sent"), received, receipts)
        return received, receipts

    def _kill(self, child: Child) -> None:
        child.kill()
        self.cast.killed.append(child)
        self._showing.console.print(f"[red]kill -9[/red] of {child.name} (pid {child.pid})")

    def _stop(self) -> None:
        for child in (*self.cast.shops, *self.cast.routers, *self.cast.regions.values()):
            stop(child)


def _sum(children: list[Child], name: str) -> int:
    return sum(child.last.get(name, 0) for child in children)


def left_open(broker: konverse.Broker) -> list[str]:
    """Ids of conversations with a side that has not ended."""
    rows = broker.views.conversation_endpoints(columns=("conversation_id", "state"))
    return [str(row.conversation_id) for row in rows if row.state != "CD"]


def check(bootstrap: str, queues: dict[str, Queue], shops: Queue, path: Path) -> Verdict:
    """Whether each order arrived once, in order, at the service of its region, and each receipt came back once."""
    verdict = Verdict()
    orders = list(read_orders(path))
    services = {order.number: REGIONS[json.loads(order.body)["region"]] for order in orders}
    everywhere: dict[bytes, list[int]] = {}
    for service, queue in queues.items():
        found = numbers(bootstrap, queue, verdict)
        for conversation, got in found.items():
            if any(services[number] != service for number in got):
                verdict.problems.append(f"conversation {conversation.hex()} brought others' orders to {service}")
            if any(later <= earlier for earlier, later in pairwise(got)):
                verdict.problems.append(f"conversation {conversation.hex()} came out of order: {got[:20]}")
        everywhere |= found
    receipts = numbers(bootstrap, shops, verdict)
    once(verdict, "order", everywhere, len(orders))
    once(verdict, "receipt", receipts, len(orders))
    verdict.conversations = len(everywhere)
    verdict.received = sum(map(len, everywhere.values()))
    verdict.replied = sum(map(len, receipts.values()))
    return verdict


def summary(cast: Cast, verdict: Verdict, findings: int, still_open: int, seconds: float) -> Table:
    """The result as a table."""
    table = Table(title="What the topics say", title_justify="left", show_header=False)
    second = cast.shops[-1]
    rows = [
        ("orders routed once, in order", f"{verdict.received:,} in {counted(verdict.conversations, 'conversation')}"),
        ("receipts back once", f"{verdict.replied:,}"),
        ("conversations recycled", f"{_sum(cast.shops, 'recycled'):,}"),
        (
            "orders known to be under way",
            f"{second.last.get('went_on', 0):,} when {second.name} went on",
        ),
        ("duplicates dropped", f"{verdict.duplicates:,}"),
        ("conversations left open", f"{still_open:,}"),
        ("findings of the verifier", f"{findings:,}"),
        ("throughput", f"{verdict.received / seconds:,.0f} orders/s in {seconds:.1f} s, kills included"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _checked(path: Path) -> list[Order]:
    """The orders of a file. Raises BadInput for an order whose region no service has, and for too few orders."""
    orders = list(read_orders(path))
    for order in orders:
        if json.loads(order.body).get("region") not in REGIONS:
            raise BadInput(f"{path}: order {order.number} has no region of {', '.join(REGIONS)}; {SHIPPED} has them")
    if len(orders) < 3 * PARTS:
        raise BadInput(f"{path} has {counted(len(orders), 'order')}, too few to kill processes in the middle")
    return orders


def demonstrate(console: Console, path: Path, rate: float, max_age: float) -> bool:
    """Run the demonstration on a stack of its own. Returns whether the verdict holds."""
    orders = _checked(path)
    reporter = reporter_for(sys.stderr)
    with LocalStack.start(reporter=reporter) as stack:
        kafka = f"kafka://{stack.bootstrap}"
        console.print(
            f"Kafka at {stack.bootstrap}, Redis at {stack.redis_url}; {counted(len(orders), 'order')} from {path.name}"
        )
        with konverse.connect(kafka, redis=stack.redis_url, database=DATABASE) as broker:
            create(broker, partitions=PARTITIONS)
            play = Play(console, broker, path, rate, max_age)
            seconds = play.run()
            queues = {name: broker.catalog.get(Queue, name) for name in (*SERVICES.values(), ORDERS, SHOPS)}
            with reporter.step("Checking what arrived"):
                served = {service: queues[queue] for service, queue in SERVICES.items()}
                verdict = check(stack.bootstrap, served, queues[SHOPS], path)
            with reporter.step("Verifying the logs"):
                findings = broker.operations.verification([*queues.values()]).run()[1]
            still_open = left_open(broker)
    verdict.problems += [finding.text for finding in findings]
    verdict.problems += [f"conversation {conversation} is open" for conversation in still_open]
    if [child.killed for child in play.cast.killed] != [True, True]:
        verdict.problems.append("the router and the shop were not both killed in the middle")
    console.print(summary(play.cast, verdict, len(findings), len(still_open), seconds))
    for problem in verdict.problems[:10]:
        console.print(problem, style="red", markup=False)
    console.print(
        "[bold green]Verdict: each order once, in order, at the service of its region, nothing left open[/bold green]"
        if verdict.holds
        else "[bold red]Verdict: violated[/bold red]"
    )
    return verdict.holds


def main(
    input_: Annotated[Path, typer.Option("--input", help="A file like the shipped one, with regions")] = SHIPPED,
    rate: Annotated[float, typer.Option(min=1, help="Orders a second, of both shops together")] = 500.0,
    max_age: Annotated[float, typer.Option(min=0.5, help="Seconds after which a conversation is recycled")] = 4.0,
) -> None:
    """Route a file of sales by region, kill a router and a shop, and check that nothing was lost or left open."""
    console = Console()
    end_with(console, lambda: demonstrate(console, input_, rate, max_age))


if __name__ == "__main__":
    typer.run(main)
