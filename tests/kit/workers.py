"""Worker processes of fault tests: `python -m tests.kit.workers '<job>'`, and `Worker`, which runs one.

A worker reads a queue, answers every message with a nonce that only this execution can have made, and records its
actions as JSON lines. A job may name a point at which the process kills itself. For that, methods of the product are
wrapped, in this process only.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import konverse
from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner import driver
from konverse.bridge.owner.driver import OwnerDriver
from konverse.bridge.owner.journal import JournalAppender
from konverse.bridge.owner.outputs import LINGER_MS
from konverse.bridge.owner.snapshots import SnapshotTopic
from konverse.bridge.reader.reader import Reader
from konverse.bridge.redis.view import ViewWriter
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.emitter import Emitter
from konverse.dialog.owner.owner import Owner
from konverse.routing.step import REDIRECT
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.journal import Commit, Part, decode
from tests.kit.regions import REGIONS, service_of
from tests.kit.shop import NOTE, ORDER, ORDER_SERVICE, RECEIPT, begin, until, wait_for_a_share

_ROOT: Final = Path(__file__).parents[2]
_OUTPUTS_BEFORE_DEATH: Final = 3

KILLED: Final = 9
"""Exit code of a worker that its handler has killed."""


@dataclass(frozen=True)
class Job:
    """The task of a worker process."""

    bootstrap: str
    database: str
    log: str
    """Path of the diary; JSON lines are appended."""
    work: str = "answer"
    """One of:

    - `answer`: read a queue and answer
    - `gather`: move each conversation to the group that its message names
    - `send`: send `count` numbered messages on `dialogs` dialogs
    - `route`: a router that decides at random
    - `redirect`: a router that redirects everything to the north
    """
    queue: str = "Orders"
    partitions: list[int] | None = None
    share: int = 0
    """Number of partitions that a reader waits for before it writes `reads`."""
    batch: int = 100
    max_messages: int | None = None
    idle_s: float | None = 3.0
    """The worker ends after this long without a message; None: never."""
    die_at: str = ""
    """A name of `POINTS`, or empty."""
    die_on: int = 1
    """Die at this occurrence of the point; the first is 1."""
    hold_on: str = ""
    """Body of a message whose handler waits until the file `release` exists."""
    release: str = ""
    exit_on: tuple[str, ...] = ()
    """Bodies of messages whose handler kills the process, until the file `release` exists."""
    count: int = 0
    dialogs: int = 4
    returning: bool = False
    """`send` begins returning dialogs."""
    snapshot_every: int = 0
    """Make a snapshot after this many records and commits; 0: as the product does."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of `connect`."""


# --------------------------------------------------------------------------------------------------- inside the process


class Diary:
    """A log of events whose lines survive the death of the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, event: str, **details: Any) -> None:
        """Append a line."""
        os.write(
            self._file, (json.dumps({"event": event, "pid": os.getpid(), "at": time.time(), **details}) + "\n").encode()
        )


class Death:
    """Sends SIGKILL to its own process at the n-th occurrence of its point."""

    def __init__(self, job: Job, diary: Diary) -> None:
        self._job = job
        self._diary = diary
        self._reached = itertools.count(1)

    def near(self) -> None:
        """Count an occurrence of the point, from any thread."""
        if next(self._reached) == self._job.die_on:
            self._diary.write("dies", point=self._job.die_at)
            os.kill(os.getpid(), signal.SIGKILL)


def _wrap(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    wrapped = make(original)
    setattr(owner, name, wrapped)
    for effect, method in driver._EFFECTS.items():
        if method is original:
            driver._EFFECTS[effect] = wrapped


def _before(owner: type, name: str, death: Death, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Die before the method runs, if `when(*arguments)`."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if when(*arguments, **options):
                death.near()
            return original(*arguments, **options)

        return wrapped

    _wrap(owner, name, make)


def _after(owner: type, name: str, death: Death, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Die after the method has returned, if `when(result, *arguments)`."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            if when(result, *arguments, **options):
                death.near()
            return result

        return wrapped

    _wrap(owner, name, make)


def _consumes(data: bytes | None) -> bool:
    record = decode(data or b"")
    return isinstance(record, Part) or (isinstance(record, Commit) and bool(record.operations.receive_endpoints))


class _CountingProducer:
    """Dies after handing over the third output. With `delivered`, all outputs so far reach the log first."""

    def __init__(self, inner: Any, death: Death, *, delivered: bool) -> None:
        self._inner = inner
        self._death = death
        self._delivered = delivered
        self._left = _OUTPUTS_BEFORE_DEATH

    def produce(self, *arguments: Any) -> None:
        self._inner.produce(*arguments)
        self._left -= 1
        if self._left == 0:
            if self._delivered:
                self._inner.flush()
            self._death.near()

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _within_emission(death: Death, *, delivered: bool) -> None:
    original = Kafka.data_producer

    def wrapped(kafka: Kafka, *, linger_ms: int) -> Any:
        producer = original(kafka, linger_ms=linger_ms)
        return _CountingProducer(producer, death, delivered=delivered) if linger_ms == LINGER_MS else producer

    Kafka.data_producer = wrapped  # type: ignore[assignment, method-assign]


POINTS: Final[dict[str, Callable[[Death], None]]] = {
    "after the CLAIM is in the journal": lambda death: _before(
        JournalAppender, "_reported", death, lambda *call: not _consumes(call[-1].value())
    ),
    "after ingest": lambda death: _after(OwnerDriver, "ingest", death, lambda count, *_: count > 0),
    "after the handler, before the commit": lambda death: _after(Reader, "_done", death),
    "before the COMMIT is produced": lambda death: _before(
        OwnerDriver, "_append", death, lambda *call: _consumes(call[-1].records[0])
    ),
    "after the COMMIT is handed to the producer": lambda death: _after(
        OwnerDriver, "_append", death, lambda *call: _consumes(call[-1].records[0])
    ),
    "after the COMMIT is in the journal, before its acknowledgement is handled": lambda death: _before(
        JournalAppender, "_reported", death, lambda *call: _consumes(call[-1].value())
    ),
    "after the acknowledgement, before the view is written": lambda death: _before(
        ViewWriter, "show", death, lambda *call: call[2].journal_offset > call[2].claim_offset
    ),
    "when a snapshot is handed over": lambda death: _after(SnapshotTopic, "append", death),
    "before emission": lambda death: _before(OwnerDriver, "_emit", death),
    "within emission, what was handed over not delivered": lambda death: _within_emission(death, delivered=False),
    "within emission, what was handed over delivered": lambda death: _within_emission(death, delivered=True),
    "after emission, before the acknowledgements are journaled": lambda death: _after(Emitter, "drained", death),
    "after the acknowledgements are journaled": lambda death: _before(
        Owner, "_committed", death, lambda self, *_: bool(self._in_flight and self._in_flight.commit.output_acks)
    ),
}
"""Points at which a worker can die. Each wraps a method of the product."""


def _answer(broker: Broker, job: Job, diary: Diary) -> None:
    partitions = None if job.partitions is None else tuple(job.partitions)
    reader = broker.reader(
        job.queue, batch=job.batch, max_messages=job.max_messages, timeout=job.idle_s, partitions=partitions
    )
    wait_for_a_share(reader, job.share)
    diary.write("reads")
    owned: frozenset[int] = frozenset()
    with reader:
        for transaction in reader:
            if reader.partitions != owned:
                owned = reader.partitions
                diary.write("owns", partitions=sorted(owned))
            with transaction:
                for message in transaction:
                    if message.type in (END_DIALOG, ERROR):
                        transaction.end(message.dialog)
                        continue
                    if message.body.decode() in job.exit_on and not Path(job.release).exists():
                        os._exit(KILLED)
                    nonce = uuid.uuid4().hex
                    diary.write(
                        "handled",
                        conversation=str(message.dialog.id),
                        sequence=message.sequence,
                        id=message.id,
                        nonce=nonce,
                    )
                    transaction.send(message.dialog, RECEIPT, nonce.encode())
                    if job.hold_on and message.body == job.hold_on.encode():
                        diary.write("holds")
                        until(Path(job.release).exists, "release of the handler", 120)


def _gather(broker: Broker, job: Job, diary: Diary) -> None:
    partitions = None if job.partitions is None else tuple(job.partitions)
    with broker.reader(job.queue, max_messages=job.max_messages, timeout=job.idle_s, partitions=partitions) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.move(message.dialog, uuid.UUID(message.body.decode()))
                    diary.write("moves", conversation=str(message.dialog.id))


def _route(broker: Broker, job: Job, diary: Diary) -> None:
    if job.work == "redirect":
        router = broker.router(ORDER_SERVICE, mode=REDIRECT)(lambda _: service_of("north"))
    else:
        router = broker.router(ORDER_SERVICE)(lambda _: service_of(random.choice(REGIONS)))
    partitions = None if job.partitions is None else tuple(job.partitions)
    queue = router.activation(broker).queue
    with broker.reader(
        queue, batch=job.batch, max_messages=job.max_messages, timeout=job.idle_s, partitions=partitions
    ) as reader:
        diary.write("reads")
        wait_for_a_share(reader)
        reader.run(router.route)
    diary.write("routed", failed=router.routed.failed)


def _send(broker: Broker, job: Job, diary: Diary) -> None:
    dialogs = [begin(broker, returning=job.returning) for _ in range(job.dialogs)]
    last: list[tuple[Dialog, Callable[[], bool]]] = []
    for number in range(job.count):
        dialog = dialogs[number % len(dialogs)]
        dialog.send(ORDER if number % 7 else NOTE, b"order %d" % number)
        if number < len(dialogs):
            diary.write("sends", conversation=dialog.id.hex, dialog=number)
        last.append((dialog, dialog._sender.session.acknowledged(dialog._staged)))
        if number % 500 == 499:
            dialog.flush()
        if number % 10 == 9:
            there = [acknowledged() for _, acknowledged in last]
            for earlier, _ in itertools.compress(last, there):
                diary.write("acknowledged", conversation=earlier.id.hex)
            last = [pair for pair, arrived in zip(last, there, strict=True) if not arrived]
    broker.flush()
    diary.write("flushed")


def snapshots_every(records: int) -> None:
    """Let the owners of this process make a snapshot after this many records and commits."""
    for name, value in (("SNAPSHOT_EVERY_RECORDS", records), ("RECORDS_PER_ENDPOINT", 0)):
        setattr(snapshotting, name, value)


def main() -> None:
    """Do the job on the command line."""
    job = Job(**json.loads(sys.argv[1]))
    diary = Diary(job.log)
    if job.snapshot_every:
        snapshots_every(job.snapshot_every)
    if job.die_at:
        POINTS[job.die_at](Death(job, diary))
    with konverse.connect(f"kafka://{job.bootstrap}", database=job.database, **job.settings) as broker:
        works = {"answer": _answer, "gather": _gather, "route": _route, "redirect": _route, "send": _send}
        works[job.work](broker, job, diary)
    diary.write("done")


# -------------------------------------------------------------------------------------------------- outside of it


class Worker:
    """A running worker process. Leaving the block kills it."""

    def __init__(self, job: Job, module: str = "tests.kit.workers") -> None:
        self.job = job
        self._log = Path(job.log)
        self._errors = self._log.with_suffix(f".{uuid.uuid4().hex[:6]}.stderr")
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(asdict(job))], cwd=_ROOT, stderr=errors
            )

    @property
    def events(self) -> list[dict[str, Any]]:
        """Events that this worker has logged so far."""
        return [event for event in read_diary(self._log) if event["pid"] == self.process.pid]

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its events of that name."""
        return [entry for entry in self.events if entry["event"] == event]

    def wait_for(self, event: str, count: int = 1, deadline_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until the worker has logged the event `count` times, and return these events."""

        def reached() -> list[dict[str, Any]] | None:
            found = self.said(event)
            assert len(found) >= count or self.process.poll() is None, f"the worker ended early:\n{self.errors}"
            return found if len(found) >= count else None

        return until(reached, f"{count} times {event!r} of a worker", deadline_s) or []

    def wait(self, deadline_s: float = 90.0) -> int:
        """Wait for the process to end and return its exit code."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end within {deadline_s} s:\n{self.errors}") from None

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    @property
    def errors(self) -> str:
        """The last part of its standard error."""
        return self._errors.read_text(errors="replace")[-4_000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        if error is not None:
            error.add_note(f"stderr of worker {self.process.pid}:\n{self.errors}")


def read_diary(path: Path) -> list[dict[str, Any]]:
    """Diary entries of all workers of a test, without an unfinished last line."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


if __name__ == "__main__":
    main()
