"""A worker process of `konverse run`: reads an application's queues until it is stopped or the queues are drained.

Started as `python -m konverse.bridge.worker.process '<job>' <descriptor>`. Its standard input is its lifeline: when the
parent closes it or dies, the process stops. SIGTERM stops it too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Final

from confluent_kafka import KafkaException

from konverse.bridge.broker import Broker
from konverse.bridge.reader.activation import Activation
from konverse.bridge.reader.drain_check import Mark
from konverse.bridge.reader.handlers import Crew
from konverse.bridge.reader.reader import Reader
from konverse.bridge.router.registry import RouterRegistry
from konverse.bridge.runtime.exit_codes import BUG, exit_code
from konverse.bridge.runtime.logs import log_to_stderr
from konverse.bridge.runtime.presence import Presence
from konverse.bridge.runtime.shutdown import SHUTDOWN_FILTER
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.counting import counted
from konverse.schemas.errors import BadInput, KonverseError, PartitionHalted, QueueDisabled, TopicMismatch

from .app import App, connection, load

log: Final = logging.getLogger("konverse.run")

IDLE_S: Final = 1.0
"""When draining: a queue without a message for this long is checked for anything left."""

OFF_S: Final = 0.5
"""Interval at which a queue with STATUS OFF is tried again."""

LATE_S: Final = 5.0
"""A process that outlives its grace period by this much ends itself: the parent that should kill it may be dead."""

DRAINED: Final = 100
STOPPED: Final = 101
RESTART: Final = 102
"""A failure that may pass: start the process again."""
PERMANENT_FAILURE: Final = 110
"""A failure that a restart cannot fix. The code is this number plus the exit code of `konverse run`."""

_LASTING: Final = (BadInput, PartitionHalted, TopicMismatch)


@dataclass(frozen=True, slots=True)
class Job:
    """The task of one worker process."""

    app: str
    """`module:name`."""
    queue: str | None
    """The only queue to read, with one thread; None: all queues, with `max_readers` threads each."""
    until_drained: bool
    grace_s: float
    """Time that running handlers get to finish when the process is stopped."""
    as_json: bool
    """The log is JSON lines."""

    @property
    def title(self) -> str:
        """The queues that the process reads, in a log line."""
        return f"the queues of {self.app}" if self.queue is None else f"queue {self.queue!r}"


class WorkerProcess:
    """The readers of one process, and the threads that call the handlers."""

    def __init__(
        self,
        broker: Broker,
        app: RouterRegistry,
        *,
        queue: str | None = None,
        until_drained: bool,
        presence: Presence | None = None,
    ) -> None:
        """With `queue`, one thread reads this queue alone; else `max_readers` threads read each queue."""
        self.name = "this process"
        self._broker = broker
        self._app = [activation for activation in app.answering(broker) if activation.max_readers]
        self._queue = queue
        self._until_drained = until_drained
        self._presence = presence or Presence(None)
        self._stopping = False
        self._readers: list[Reader] = []
        self._off: set[str] = set()
        """Queues whose STATUS was OFF when they were last read."""

    def run(self) -> None:
        """Work until `stop`, or until all queues are drained. Raises the errors of iterating over a reader."""
        works: SimpleQueue[tuple[Activation, Reader]] = SimpleQueue()
        for activation in self._app:
            if self._queue not in (None, activation.queue):
                continue
            self._readers.append(self._reader_of(activation))
            works.put((activation, self._readers[-1]))
        Crew().work(lambda: self._work(*works.get()), len(self._readers), self.stop, self)

    def stop(self) -> None:
        """Let running handlers finish and commit, then give the partitions back. A signal handler may call it."""
        self._stopping = True
        for reader in self._readers:
            reader.stop()

    def at_work(self) -> list[str]:
        """Queues that are still being read, as words for a log line."""
        return [f"queue {reader.queue.name!r}" for reader in self._readers if not reader.closed]

    def abandon(self) -> None:
        """Do nothing: readers whose threads hang are closed with their broker."""

    def _reader_of(self, activation: Activation) -> Reader:
        return self._broker.reader(
            activation.queue,
            batch=activation.batch,
            max_messages=activation.max_messages,
            timeout=IDLE_S if self._until_drained else None,
        )

    def _work(self, activation: Activation, reader: Reader) -> None:
        """Call the handler for each transaction. Closing the reader then commits and gives its partitions back."""
        threads = 1 if self._queue else activation.max_readers
        log.info("reading queue %r with %s", activation.queue, counted(threads, "thread"))
        alone = self._queue is not None
        handler = self._watched(activation.handler)
        drained = closing(self._broker.operations.draining([one.queue for one in self._app]))
        with activation.at_work(self._broker, alone=alone), reader, drained as draining:
            seen: tuple[frozenset[int], Mark] | None = None
            while not self._stopping:
                try:
                    reader.run(handler, threads=threads)
                except QueueDisabled as error:
                    self._wait_for(activation.queue, error)
                    if self._until_drained:
                        return
                    continue
                self._off.discard(activation.queue)
                if not self._until_drained:
                    continue
                before, ours = seen, reader.partitions
                mark = draining.examine(reader.queue, ours)
                seen = None if mark is None else (ours, mark)
                if seen is not None and seen == before:
                    log.info("queue %r is drained", activation.queue)
                    return

    def _watched(self, handler: Callable[[Transaction], object]) -> Callable[[Transaction], object]:
        def call(transaction: Transaction) -> object:
            with self._presence:
                return handler(transaction)

        return call

    def _wait_for(self, queue: str, error: QueueDisabled) -> None:
        """Pause this queue, whose STATUS is OFF; other queues are still read."""
        if queue not in self._off:
            self._off.add(queue)
            log.warning("%s", error)
        time.sleep(OFF_S)


def main() -> None:
    """Do the job on the command line. The exit code tells the supervisor what to do next."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        try:
            app = load(job.app)
        finally:
            log_to_stderr(as_json=job.as_json)
        code = _do(app, job, Presence(int(sys.argv[2])) if len(sys.argv) > 2 else None)
    except _LASTING as error:
        log.error("%s", error)  # noqa: TRY400  # the text is enough
        code = PERMANENT_FAILURE + exit_code(error)
    except (KonverseError, KafkaException) as error:
        log.error("the process of %s ends: %s", job.title, error)  # noqa: TRY400
        code = RESTART
    except SystemExit as error:
        log.error(  # noqa: TRY400  # the text is enough
            "a handler of %s ended this process by raising SystemExit (%s); to roll back its transaction alone, raise "
            "another exception",
            job.title,
            error,
        )
        code = RESTART
    except BaseException as error:
        log.critical("the process of %s ends with an unexpected exception", job.title, exc_info=error)
        code = BUG
    sys.exit(code)


def _do(app: App | Broker, job: Job, presence: Presence | None) -> int:
    with connection(app) as broker:
        broker.operations.session_timeout_check.skip()
        working = WorkerProcess(broker, app, queue=job.queue, until_drained=job.until_drained, presence=presence)
        stopped = False

        def stop(*_: object) -> None:
            nonlocal stopped
            stopped = True
            SHUTDOWN_FILTER.begin()
            working.stop()

        def follow_lifeline() -> None:
            while os.read(0, 1):
                pass
            stop()
            time.sleep(job.grace_s + LATE_S)
            os._exit(BUG)

        signal.signal(signal.SIGTERM, stop)
        in_background("konverse-lifeline", follow_lifeline)
        working.run()
    return STOPPED if stopped else DRAINED


def command(job: Job, file: int) -> list[str]:
    """The command line of a process for this job. `file` is the descriptor of `runtime.presence`."""
    # -P: modules in the working folder, from which the application is imported, must not hide Python's own.
    return [sys.executable, "-P", "-m", "konverse.bridge.worker.process", json.dumps(asdict(job)), str(file)]


if __name__ == "__main__":
    main()
