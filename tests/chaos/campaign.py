"""A run: processes work under faults until the time is up, then the faults end, and the run is judged.

A run has one or more cells. Each cell has servers, queues, processes, a choice of faults and a verdict of its own.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from konverse.deploy.host.processes import ProcessId
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError
from konverse.schemas.identifiers import journal_topic
from tests.kit.shop import connected, open_shop, queue_of, until

from .archive import Archive
from .checker import BROKEN, Anomaly
from .crew import Crew
from .disk import SmallDisk
from .history import Scribe
from .judging import DRAIN_S, Verdict, drained, judge
from .nemeses import (
    CLOCKS,
    DISK,
    KILLS,
    PARTITIONS,
    PAUSES,
    REDIS,
    REQUESTS,
    SERVERS,
    Arena,
    Nemesis,
    NotNow,
    fill_disk,
)
from .process import Part
from .rig import Rig

PARTITIONS_OF_ORDERS: Final = 4
PARTITIONS_OF_SHOP: Final = 3
KEEP: Final = timedelta(seconds=15)
"""Received records are deleted at this age, when two snapshots do not need them."""

PLACES: Final = ("owner-0", "owner-1", "owner-2", "client-0", "client-1", "client-2", "follower-0")
STANDING_BY: Final = ("owner-0", "owner-1")
"""Owners that also follow the partitions of other owners."""
HANDS: Final = 3
"""Most faults under way at the same time."""

START_S: Final = 60.0
TIME_OUTS: Final = {"socket.timeout.ms": "6000"}
APPEND_S: Final = 3.0
SILENCE_S: Final = 20.0
"""Longer than any fault keeps an owner from writing, and much shorter than the time to drain."""


@dataclass(frozen=True)
class Cell:
    """A part of a run."""

    name: str
    seconds: float
    """Duration of the faults."""
    faults: Mapping[str, Nemesis]
    weights: Mapping[str, int] = field(default_factory=dict)
    """Name of a fault → its copies in the deck; 1 without an entry."""
    gap_s: tuple[float, float] = (0.5, 2.0)
    """Pause between the beginnings of two faults."""


ALL: Final = {**KILLS, **SERVERS, **PARTITIONS, **REDIS, **PAUSES, **REQUESTS, **DISK, **CLOCKS}
MIXED: Final = {
    **dict.fromkeys(ALL, 2), "kill a process": 10, "cut off from Kafka": 7, "stop a process": 5, "hold a Produce": 5,
    "shift a clock": 3, "flush Redis": 3, "mute a Produce": 3, "kill Kafka": 1, "stop Kafka": 1, "fill the disk": 1,
}  # fmt: skip
"""Other faults have little effect while Kafka is away, so faults of Kafka are rare."""

MATRIX_S: Final = 88.0

PROFILES: Final[dict[str, tuple[int, list[Cell]]]] = {
    "smoke": (40, [Cell("everything", 150.0, ALL, MIXED)]),
    "matrix": (250, [
        Cell("kill processes", MATRIX_S, KILLS, {"kill a process": 5}),
        Cell("kill and stop Kafka", MATRIX_S, SERVERS, gap_s=(6.0, 12.0)),
        Cell("partitions", MATRIX_S, PARTITIONS),
        Cell("Redis", MATRIX_S, REDIS, gap_s=(0.5, 1.5)),
        Cell("stop processes", MATRIX_S, PAUSES),
        Cell("requests", MATRIX_S, REQUESTS),
        Cell("disk and clocks", MATRIX_S, {**DISK, **CLOCKS, **KILLS}, dict.fromkeys([*CLOCKS, *KILLS], 4)),
        Cell("everything", MATRIX_S, ALL, MIXED),
    ]),
}  # fmt: skip
"""Name → effective faults that a run must have, and its cells."""


@dataclass(frozen=True)
class Ground:
    """The servers and the environment of a cell."""

    rig: Rig
    disk: SmallDisk | None = None
    """The disk of the servers' files, if it can be filled."""
    python_path: str | None = None
    """PYTHONPATH of another product for the processes."""


@dataclass(frozen=True)
class Fault:
    """A fault that was tried."""

    name: str
    began_s: float
    ended_s: float
    """Seconds since the cell began."""
    effect: str
    """The observed effect; empty when the fault does not count."""


@dataclass
class Outcome:
    """Result of a cell."""

    cell: Cell
    seed: str
    folder: Path
    faults: list[Fault]
    verdict: Verdict
    began_at: float
    """The machine's monotonic clock, as in histories."""
    drain_s: float
    processes: int

    @property
    def effective(self) -> Counter[str]:
        """Number of effective faults by name."""
        return Counter(fault.name for fault in self.faults if fault.effect)


Say = Callable[[str], None]

TRACES: Final = re.compile(r"Traceback \(most recent call last\)|Assertion `.*' failed")


def _complaints(folder: Path) -> Iterator[str]:
    """Unexpected exceptions in processes and their threads."""
    for errors in sorted(folder.glob("*.stderr")):
        text = errors.read_text(errors="replace")
        trace = TRACES.search(text)
        if trace:
            yield f"{errors.stem} raised an exception: {text[trace.start() :][-600:]}"


class Campaign:
    """One cell on running servers."""

    def __init__(self, ground: Ground, cell: Cell, seed: str, folder: Path) -> None:
        self._rig, self._disk, self._python_path = ground.rig, ground.disk, ground.python_path
        self._cell = cell
        self._seed = seed
        self._folder = folder
        self._random = random.Random(seed)
        self._scribe = Scribe(folder / "nemeses.jsonl", "nemeses")
        self._faults: list[Fault] = []
        self._database = f"chaos {cell.name}"
        self._began_at = 0.0

    def run(self, say: Say) -> Outcome:
        """Make faults, let things calm down, judge."""
        direct = self._rig.stack.bootstrap
        with connected(direct, self._database) as broker:
            sizes = {"partitions": PARTITIONS_OF_ORDERS, "home_partitions": PARTITIONS_OF_SHOP}
            open_shop(broker, **sizes, keep=KEEP, home_keep=KEEP)
            queues = [queue_of(broker, "Orders"), queue_of(broker, "Shop")]
        with Archive(direct, queues) as archive:
            arena = self._arena(*queues)
            crew = arena.crew
            try:
                crew.fill()
                self._calm(arena)
                self._began_at = time.monotonic()
                self._make_trouble(arena, say)
                self._calm(arena)
                say("quiet; waiting until nothing is left to be done")
                crew.hush()
                drain_s = drained(direct, queues, self._folder, archive=archive)
                if drain_s > DRAIN_S:
                    crew.ask_what_they_do()
                failed = crew.finish()
            finally:
                crew.end()
                self._scribe.close()
            with connected(direct, self._database, silence_timeout_s=SILENCE_S) as broker:
                verdict = judge(broker, queues, self._folder, self._rig.stack.redis_url, archive)
        complaints = [*failed, *_complaints(self._folder)]
        verdict.anomalies += [Anomaly(BROKEN, self._cell.name, text) for text in complaints]
        return Outcome(
            self._cell, self._seed, self._folder, self._faults, verdict, self._began_at, drain_s, crew.started
        )

    def _arena(self, orders: Queue, shop: Queue) -> Arena:
        settings = {
            "redis": self._rig.redis_url,
            "append_timeout_s": APPEND_S,
            "silence_timeout_s": SILENCE_S,
            "client": TIME_OUTS,
        }
        parts = {
            place: Part(
                place,
                place.partition("-")[0],
                str(self._folder),
                self._rig.bootstrap(place),
                self._database,
                seed=self._random.randrange(1 << 32),
                batch=self._random.choice((1, 10, 100)),
                settings=settings,
                standby=place in STANDING_BY,
            )
            for place in PLACES
        }
        topics = {
            "owner": [journal_topic(orders.topic), journal_topic(orders.topic), shop.topic],
            "client": [orders.topic, orders.topic, journal_topic(shop.topic)],
        }
        return Arena(self._rig, Crew(parts, self._python_path), self._disk, self._random, self._folder, topics)

    # ----------------------------------------------------------------------------------------------------- faults

    def _make_trouble(self, arena: Arena, say: Say) -> None:
        cell, hands = self._cell, threading.Semaphore(HANDS)
        deck = self._dealt()
        with ThreadPoolExecutor(HANDS, thread_name_prefix="nemesis") as pool:
            doing: list[Future[None]] = []
            while time.monotonic() - self._began_at < cell.seconds:
                hands.acquire()
                choices = random.Random(f"{self._seed} {len(doing)}")  # independent of the other faults
                doing.append(pool.submit(self._try, next(deck), replace(arena, random=choices), say, hands))
                self._fill_vacancies(arena)
                time.sleep(arena.between(cell.gap_s))
        for done in doing:
            done.result()

    def _dealt(self) -> Iterator[str]:
        """Names of faults from one shuffled deck after another, so that none is left out."""
        names = [
            name
            for name, nemesis in self._cell.faults.items()
            for _ in range(self._cell.weights.get(name, 1))
            if self._disk is not None or nemesis is not fill_disk
        ]
        while True:
            yield from self._random.sample(names, len(names))

    def _try(self, name: str, arena: Arena, say: Say, hands: threading.Semaphore) -> None:
        began, effect = time.monotonic(), ""
        self._scribe.invoke("nemesis", name=name)
        try:
            effect = self._cell.faults[name](arena)
        except NotNow:
            return
        except (AssertionError, KonverseError, OSError) as error:  # the fault could not be completed
            self._scribe.info("nemesis", name=name, error=str(error))
        finally:
            hands.release()
        ended = time.monotonic()
        self._faults.append(Fault(name, began - self._began_at, ended - self._began_at, effect))
        if effect:
            self._scribe.ok("nemesis", name=name, effect=effect)
            say(f"{began - self._began_at:6.1f} s  {name}: {effect}")

    def _fill_vacancies(self, arena: Arena) -> None:
        """Start new processes in vacant places. A process ends itself when Kafka is away for too long."""
        for place in arena.crew.parts:
            with suppress(NotNow), arena.taken(place):
                if not arena.crew.members[place].alive:
                    arena.crew.start(place)

    def _calm(self, arena: Arena) -> None:
        """Restart missing servers and processes, and wait until all processes are at work."""
        stack = arena.rig.stack
        for name, pid in stack.pids.items():
            if ProcessId.of(pid) is None:
                stack.restart(name)

        def at_work() -> bool:
            self._fill_vacancies(arena)
            return all(member.lines("start") for member in arena.crew.members.values() if member.alive)

        until(at_work, "all processes are at work", START_S)
