"""Data-dependent routing by Spark: orders go to the service of their region; a worker and the driver are killed.

    make demo-spark                       1,000,000 orders in 20,000 conversations
    make demo-spark MESSAGES=100000 CONVERSATIONS=2000

A shop sends orders to a router. A Spark job in a process of its own receives them and passes them on to four services,
by the region that the first order of a conversation names. In the middle a Python worker of the job is killed with
kill -9, later the driver with Java and all workers, and the job is started again. Then the judge of `konverse verify`
reads the logs, and a separate check tells whether each order arrived once, in order, at the service of its region. A
chart shows rows per second. Exit code 0 when the verdict holds, 1 when it does not, 2 for bad input, 3 when servers
cannot be started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import typer
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import konverse
from examples.routing.chart import Mark, draw
from examples.routing.services import ORDER, ORDERING, ORDERS, REGIONS, ROUTER, SHOP, create, order, queue_of, region_of
from examples.sales.check import Verdict, numbers, once
from examples.sales.ending import end_with
from konverse.deploy import LocalStack
from konverse.deploy.host.progress import reporter_for
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, StackError

DATABASE: Final = "sales"
PARTITIONS: Final = 4
WAVE: Final = 500
"""Number of conversations begun together. Wave follows wave, so that first messages come during the whole run."""

PATIENCE_S: Final = 180.0
"""Time without an arrival after which the demonstration fails."""

LOOK_S: Final = 0.25
ROOT: Final = Path(__file__).resolve().parents[1]


class Job:
    """The Spark job: its driver with Java and Python workers, in one process group."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self._folder = folder
        for old in folder.iterdir():
            old.unlink()
        command = [sys.executable, "-m", "examples.routing.job", kafka, DATABASE, str(folder)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def kill_worker(self) -> int | None:
        """Kill -9 the Python worker that classified last. Returns its process id, or None if there is none yet."""
        for path in sorted(self._folder.iterdir(), key=lambda one: -one.stat().st_mtime):
            try:
                os.kill(int(path.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
            return int(path.name)
        return None

    def kill(self) -> None:
        """Kill -9 the driver, its Java and all workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def done(self) -> dict[str, object]:
        """The counts that the job prints at its end. StackError when it failed."""
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise StackError("the Spark job failed; run `python -m examples.routing.job` to see why")
        counts: dict[str, object] = json.loads(output)
        return counts


class Shop:
    """Sends the orders, and waits at each of two gates until a process has been killed."""

    def __init__(self, broker: konverse.Broker, messages: int, conversations: int) -> None:
        self._broker = broker
        self._each = messages // conversations
        self._conversations = conversations
        self._gates = [threading.Event(), threading.Event()]
        self.total = self._each * conversations
        self.sent = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Send in a thread of its own."""
        self._thread.start()

    def pass_gate(self, number: int) -> None:
        """Open this gate, because a process was killed."""
        self._gates[number].set()

    def _work(self) -> None:
        try:
            for first in range(0, self._conversations, WAVE):
                self._send(range(first, min(first + WAVE, self._conversations)))
            self._broker.flush()
        except Exception as error:  # noqa: BLE001  # raised by `run`
            self.failure = error

    def _send(self, wave: range) -> None:
        begin = self._broker.begin_dialog
        dialogs = [(which, begin(SHOP, ROUTER, ORDERING)) for which in wave]
        for place in range(self._each):
            for which, dialog in dialogs:
                for number, gate in enumerate(self._gates, 1):
                    if self.sent * 3 >= self.total * (number + 0.5):
                        gate.wait()
                dialog.send(ORDER, order(which * self._each + place, self._each))
                self.sent += 1


class Arrivals:
    """Counts the rows in the services' queues, by the ends of their logs."""

    def __init__(self, bootstrap: str, queues: list[Queue]) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "spark-demo"})
        self._places = [TopicPartition(queue.topic, number) for queue in queues for number in range(queue.partitions)]
        self.began = time.monotonic()
        self.seen: list[tuple[float, int]] = [(0.0, 0)]
        """Pairs of seconds since the start and number of rows by then, one for each rise of the count."""

    @property
    def last_s(self) -> float:
        """Seconds from the start until the count last rose."""
        return self.seen[-1][0]

    @property
    def quiet_s(self) -> float:
        """Seconds since the count last rose."""
        return time.monotonic() - self.began - self.last_s

    def look(self) -> int:
        """Count all rows, and record the count if it has risen."""
        ends = [self._consumer.get_watermark_offsets(place, 10.0) for place in self._places]
        count = sum(high for _, high in ends)
        if count > self.seen[-1][1]:
            self.seen.append((time.monotonic() - self.began, count))
        return count

    def rates(self) -> list[float]:
        """Rows in each second."""
        at_end = [0] * (int(self.last_s) + 2)
        for at_s, count in self.seen:
            at_end[int(at_s) + 1] = count
        for second in range(1, len(at_end)):
            at_end[second] = max(at_end[second], at_end[second - 1])
        return [float(later - before) for before, later in pairwise(at_end)]

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


@dataclass
class Run:
    """The course of the demonstration."""

    marks: list[Mark] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    done: dict[str, object] = field(default_factory=dict)
    seconds: float = 0.0


def run(kafka: str, shop: Shop, arrivals: Arrivals, folder: Path, console: Console) -> Run:
    """Have the job route, kill a worker and the driver in the middle, and show the progress."""
    found = Run()
    progress = Progress(TextColumn("{task.description:14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    sent, arrived = (progress.add_task(what, total=shop.total) for what in ("orders sent", "orders routed"))
    with ExitStack() as exits, Live(progress, refresh_per_second=4, console=console):
        job = Job(kafka, folder)
        jobs = [job]
        exits.callback(_kill, jobs)
        shop.start()
        count = 0
        while job.process.poll() is None:
            time.sleep(LOOK_S)
            count = arrivals.look()
            progress.update(sent, completed=shop.sent)
            progress.update(arrived, completed=min(count, shop.total))
            if shop.failure is not None:
                raise shop.failure
            if arrivals.quiet_s > PATIENCE_S:
                raise StackError(f"the Spark job has stopped making progress at {count:,} of {shop.total:,} orders")
            if not found.marks and count * 3 >= shop.total:
                worker = job.kill_worker()
                if worker is not None:
                    found.marks.append(_mark(progress, arrivals, "kill -9 worker", worker))
                    shop.pass_gate(0)
            elif len(found.marks) == 1 and count * 3 >= 2 * shop.total:
                found.marks.append(_mark(progress, arrivals, "kill -9 driver", job.process.pid))
                job.kill()
                shop.pass_gate(1)
                job = Job(kafka, folder)
                jobs.append(job)
        found.done = job.done()
        if count < shop.total:
            raise StackError(f"the Spark job has ended at {count:,} of {shop.total:,} orders")
        found.seconds, found.rates = arrivals.last_s, arrivals.rates()
    return found


def _kill(jobs: list[Job]) -> None:
    for job in jobs:
        job.kill()


def _mark(progress: Progress, arrivals: Arrivals, text: str, pid: int) -> Mark:
    progress.console.print(f"[red]{text}[/red] (pid {pid})")
    return Mark(time.monotonic() - arrivals.began, text)


def check(bootstrap: str, queues: dict[str, Queue], total: int, each: int, step: Callable[[str], None]) -> Verdict:
    """Whether each order arrived once, in order, in one conversation, at the service of its region."""
    verdict = Verdict()
    everywhere: dict[bytes, list[int]] = {}
    for region, queue in queues.items():
        found = numbers(bootstrap, queue, verdict)
        for conversation, got in found.items():
            if {number // each for number in got} != {got[0] // each} or region_of(got[0] // each) != region:
                verdict.problems.append(f"conversation {conversation.hex()} brought others' orders to the {region}")
            if got != sorted(got):
                verdict.problems.append(f"conversation {conversation.hex()} came out of order: {got[:20]}")
        everywhere |= found
        step(region)
    once(verdict, "order", everywhere, total)
    verdict.conversations = len(everywhere)
    verdict.received = sum(map(len, everywhere.values()))
    return verdict


def summary(found: Run, verdict: Verdict, findings: int) -> Table:
    """The result as a table."""
    table = Table(title="What the topics say", title_justify="left", show_header=False)
    rows = [
        ("orders routed once, in order", f"{verdict.received:,} in {counted(verdict.conversations, 'conversation')}"),
        ("duplicates dropped", f"{verdict.duplicates:,}"),
        ("findings of the verifier", f"{findings:,}"),
        ("second driver", f"{found.done.get('forwarded'):,} forwarded, {found.done.get('followed'):,} followed"),
        ("throughput", f"{verdict.received / found.seconds:,.0f} orders/s in {found.seconds:.1f} s, kills included"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def demonstrate(console: Console, messages: int, conversations: int, chart: Path) -> bool:
    """Run the demonstration on a stack of its own. Returns whether the verdict holds."""
    if conversations < len(REGIONS) or messages < 3 * conversations:
        raise BadInput(
            f"there is no middle in {counted(messages, 'order')} in {counted(conversations, 'conversation')}: take at "
            f"least {len(REGIONS)} conversations with 3 orders in each"
        )
    reporter = reporter_for(sys.stderr)
    with ExitStack() as exits:
        stack = exits.enter_context(LocalStack.start(reporter=reporter))
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        kafka = f"kafka://{stack.bootstrap}"
        broker = exits.enter_context(konverse.connect(kafka, database=DATABASE))
        create(broker, partitions=PARTITIONS)
        queues = {region: broker.catalog.get(Queue, queue_of(region)) for region in REGIONS}
        shop = Shop(broker, messages, conversations)
        load = f"{counted(shop.total, 'order')} in {counted(conversations, 'conversation')}"
        console.print(f"Kafka at {stack.bootstrap}; {load}")
        arrivals = Arrivals(stack.bootstrap, [*queues.values()])
        exits.callback(arrivals.close)
        found = run(kafka, shop, arrivals, folder, console)
        draw(chart, found.rates, found.marks)
        with reporter.step("Checking what arrived", len(queues)) as step:
            verdict = check(stack.bootstrap, queues, shop.total, shop.total // conversations, step)
        with reporter.step("Verifying the logs"):
            read = [broker.catalog.get(Queue, ORDERS), *queues.values()]
            findings = broker.operations.verification(read).run()[1]
    verdict.problems += [finding.text for finding in findings]
    if [mark.text for mark in found.marks] != ["kill -9 worker", "kill -9 driver"]:
        verdict.problems.append("the worker and the driver were not both killed in the middle")
    console.print(summary(found, verdict, len(findings)))
    console.print(f"Chart: {chart}", soft_wrap=True)
    for problem in verdict.problems[:10]:
        console.print(problem, style="red", markup=False)
    console.print(
        "[bold green]Verdict: each order once, in order, at the service of its region[/bold green]"
        if verdict.holds
        else "[bold red]Verdict: violated[/bold red]"
    )
    return verdict.holds


def main(
    messages: Annotated[int, typer.Option(min=1, help="Orders to route")] = 1_000_000,
    conversations: Annotated[int, typer.Option(min=1, help="Conversations in which the orders are sent")] = 20_000,
    chart: Annotated[Path, typer.Option(help="Where to put the chart, a PNG")] = Path("build/demo-spark.png"),
) -> None:
    """Route orders by their content with Spark, kill a worker and the driver, and check that nothing was lost."""
    console = Console()
    end_with(console, lambda: demonstrate(console, messages, conversations, chart))


if __name__ == "__main__":
    typer.run(main)
