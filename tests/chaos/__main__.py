"""`make chaos`: real Kafka, Redis, workers and senders, and faults until the time is up; then the topics are judged.

    python -m tests.chaos [--profile smoke|long] [--seconds S] [--seed N]

Exit code 0 when nothing was lost, doubled or reordered, 1 when something was, 4 when too few faults had an effect for
the run to mean anything.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import konverse
from konverse.deploy.stack import LocalStack
from konverse.schemas.catalog import Queue
from tests.chaos.nemeses import NEMESES, Arena
from tests.kit.oracle import Proof, prove_exactly_once
from tests.kit.shop import open_shop
from tests.kit.workers import Job, Worker, read_diary

PROFILES = {"smoke": 120.0, "long": 780.0}
DATABASE = "chaos"
PARTITIONS = 4
DRAIN_S = 90.0
FAULTS_A_MINUTE_MIN = 6


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--profile", choices=PROFILES, default="smoke")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    seconds = options.seconds or PROFILES[options.profile]
    console = Console()
    console.print(f"seed {options.seed}: faults for {seconds:.0f} s, then drain and judge")
    folder = Path(tempfile.mkdtemp(prefix="konverse-chaos-"))
    try:
        with LocalStack.start() as stack:
            arena, proof = _run(stack, folder, random.Random(options.seed), seconds, console)
    except AssertionError as error:
        console.print(f"[bold red]violated[/bold red]: {error}\ndiaries are in {folder}; seed {options.seed}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    _report(console, arena, proof)
    enough = sum(arena.effective.values()) >= FAULTS_A_MINUTE_MIN * seconds / 60
    return 0 if enough else 4


def _run(
    stack: LocalStack, folder: Path, choices: random.Random, seconds: float, console: Console
) -> tuple[Arena, Proof]:
    settings = {"redis": stack.redis_url}
    job = partial(Job, stack.bootstrap, DATABASE, settings=settings)
    with konverse.connect(f"kafka://{stack.bootstrap}", database=DATABASE) as broker:
        open_shop(broker, partitions=PARTITIONS, home_partitions=2)
        queues = [broker.catalog.get(Queue, name) for name in ("Orders", "Shop")]
    work, sends = str(folder / "work.jsonl"), str(folder / "sends.jsonl")
    answer = partial(job, work, batch=choices.choice((1, 10, 100)), idle_s=None)
    arena = Arena(
        stack,
        choices,
        [Worker(answer()) for _ in range(3)],
        [Worker(job(sends, work="send", count=1_000_000, dialogs=20)) for _ in range(2)],
        lambda: Worker(answer()),
        lambda: Worker(job(sends, work="send", count=1_000_000, dialogs=20)),
    )
    try:
        _make_trouble(arena, seconds, console)
        for sender in arena.senders:
            sender.process.kill()
        sent = _acknowledged(Path(sends))
        console.print(f"{sum(map(len, sent.values())):,} messages were acknowledged; draining")
        return arena, _drained(stack, queues, sent)
    finally:
        for worker in (*arena.workers, *arena.senders):
            worker.send_signal(signal.SIGKILL)
            worker.process.wait(10)


def _make_trouble(arena: Arena, seconds: float, console: Console) -> None:
    names = list(NEMESES)
    weights = [weight for _, weight in NEMESES.values()]
    with Progress(console=console) as progress:
        task = progress.add_task("faults", total=seconds)
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds:
            progress.update(task, completed=spent)
            time.sleep(arena.random.uniform(0.5, 4.0))
            name = arena.random.choices(names, weights)[0]
            progress.console.print(f"{spent:6.1f} s  {name.replace('_', ' ')}")
            NEMESES[name][0](arena)
        progress.update(task, completed=seconds)


def _acknowledged(diary: Path) -> dict[bytes, list[bytes]]:
    sent: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for event in read_diary(diary):
        if event["event"] == "acknowledged":
            sent[bytes.fromhex(event["conversation"])].append(event["body"].encode())
    return dict(sent)


def _drained(stack: LocalStack, queues: list[Queue], sent: dict[bytes, list[bytes]]) -> Proof:
    """Judge until the proof holds; what still does not hold when the patience ends is a violation."""
    orders, shop = queues
    deadline = time.monotonic() + DRAIN_S
    while True:
        try:
            return prove_exactly_once(stack.bootstrap, orders, shop, sent)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(2)


def _report(console: Console, arena: Arena, proof: Proof) -> None:
    table = Table(title="Nothing lost, doubled or reordered", title_justify="left", show_header=False)
    for name, value in proof.__dict__.items():
        table.add_row(name, f"{value:,}")
    for name, count in sorted(arena.effective.items()):
        table.add_row(name, f"{count:,} times")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
