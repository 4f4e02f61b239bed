"""A process of `konverse run`: readers of an application's queues, until they are stopped or the queues are drained.

`python -m konverse.bridge.worker.process '<job>'` is such a process. Its standard input is its lifeline: when the
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
from konverse.bridge.reader.drained import Mark
from konverse.bridge.reader.handlers import Crew
from konverse.bridge.reader.reader import Reader
from konverse.bridge.router.registry import Routing
from konverse.bridge.runtime.exit_codes import BUG, exit_code
from konverse.bridge.runtime.logs import log_to_stderr
from konverse.bridge.runtime.presence import Presence
from konverse.bridge.runtime.shutdown import DEPARTING
from konverse.bridge.runtime.threads import in_background
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.errors import BadInput, KonverseError, PartitionHalted, QueueDisabled, TopicMismatch

from .app import App, connection, load

log: Final = logging.getLogger("konverse.run")

IDLE_S: Final = 1.0
"""Of a queue that is to be drained: when nothing came for so long it is looked whether anything is left."""

OFF_S: Final = 0.5
"""A queue that is OFF is looked at so often."""

LATE_S: Final = 5.0
"""Whoever started this process ends it when its time is over; it does so itself so much later, as he may be dead."""

DRAINED: Final = 100
STOPPED: Final = 101
AGAIN: Final = 102
"""Something has failed that may pass: the process is to be started again."""
IN_VAIN: Final = 110
"""Exit codes from here on: starting it again would not help; what `konverse run` exits with is added."""

_LASTING: Final = (BadInput, PartitionHalted, TopicMismatch)


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does."""

    app: str
    """`module:name`."""
    queue: str | None
    """The one queue that it reads, with one thread; None: all of them, with `max_readers` threads each."""
    until_drained: bool
    grace_s: float
    """Handlers that are at work when it is stopped have so long."""
    as_json: bool
    """The log is JSON lines."""


class Working:
    """Readers of one process, and the threads in which they call handlers."""

    def __init__(
        self,
        broker: Broker,
        app: Routing,
        *,
        queue: str | None = None,
        until_drained: bool,
        presence: Presence | None = None,
    ) -> None:
        """With `queue` that one is read by one thread here, else all are by `max_readers` of them."""
        self.name = "this process"
        self._broker = broker
        self._app = [activation for activation in app.answering(broker) if activation.max_readers]
        self._queue = queue
        self._until_drained = until_drained
        self._presence = presence or Presence(None)
        self._stopping = False
        self._readers: list[Reader] = []
        self._off: set[str] = set()
        """Queues that were found to be OFF."""

    def run(self) -> None:
        """Work until `stop`, or until all queues are drained. Raises what iterating over a reader raises."""
        works: SimpleQueue[tuple[Activation, Reader]] = SimpleQueue()
        for activation in self._app:
            if self._queue not in (None, activation.queue):
                continue
            self._readers.append(self._reader_of(activation))
            works.put((activation, self._readers[-1]))
        Crew().work(lambda: self._work(*works.get()), len(self._readers), self.stop, self)

    def stop(self) -> None:
        """Let handlers that are at work finish and commit, and give the partitions back. For signal handlers, too."""
        self._stopping = True
        for reader in self._readers:
            reader.stop()

    def at_work(self) -> list[str]:
        """Queues that are read still, in words."""
        return [f"queue {reader.queue.name!r}" for reader in self._readers if not reader.closed]

    def leave(self) -> None:
        """Nobody waits for them any more: they are closed with their broker."""

    def _reader_of(self, activation: Activation) -> Reader:
        return self._broker.reader(
            activation.queue,
            batch=activation.batch,
            max_messages=activation.max_messages,
            timeout=IDLE_S if self._until_drained else None,
        )

    def _work(self, activation: Activation, reader: Reader) -> None:
        """Call the handler; the reader is closed behind it, which commits and gives its partitions back."""
        threads = 1 if self._queue else activation.max_readers
        log.info("reads queue %r with %d thread%s", activation.queue, threads, "" if threads == 1 else "s")
        alone = self._queue is not None
        handler = self._watched(activation.handler)
        drained = closing(self._broker.draining([one.queue for one in self._app]))
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
                mark = draining.look(reader.queue, ours)
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
        """The queue is OFF: nothing is to be done in it for now, and the others go on."""
        if queue not in self._off:
            self._off.add(queue)
            log.warning("%s", error)
        time.sleep(OFF_S)


def main() -> None:
    """Do the job that the command line holds; the exit code tells whoever started this what to do."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        try:
            app = load(job.app)
        finally:
            log_to_stderr(as_json=job.as_json)
        code = _do(app, job, Presence(int(sys.argv[2])) if len(sys.argv) > 2 else None)
    except _LASTING as error:
        log.error("%s", error)  # noqa: TRY400  # it says it all
        code = IN_VAIN + exit_code(error)
    except (KonverseError, KafkaException) as error:
        log.error("this process ends: %s", error)  # noqa: TRY400
        code = AGAIN
    except SystemExit as error:
        log.error(  # noqa: TRY400  # it says it all
            "a handler has ended this process (SystemExit: %s); an exception of another kind rolls back its own "
            "transaction alone",
            error,
        )
        code = AGAIN
    except BaseException as error:
        log.critical("this process ends", exc_info=error)
        code = BUG
    sys.exit(code)


def _do(app: App | Broker, job: Job, presence: Presence | None) -> int:
    with connection(app) as broker:
        working = Working(broker, app, queue=job.queue, until_drained=job.until_drained, presence=presence)
        stopped = False

        def stop(*_: object) -> None:
            nonlocal stopped
            stopped = True
            DEPARTING.begin()
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
    """The command line of a process that does this. `file` shows whether it is in a handler (`runtime.presence`)."""
    # -P: what lies in the working folder, where the application is looked for, does not hide a module of Python's own.
    return [sys.executable, "-P", "-m", "konverse.bridge.worker.process", json.dumps(asdict(job)), str(file)]


if __name__ == "__main__":
    main()
