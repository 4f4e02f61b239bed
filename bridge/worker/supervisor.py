"""`konverse run`: starts the worker processes of an application, restarts those that die, and stops them."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

from konverse.bridge.broker import Broker
from konverse.bridge.reader.activation import Activation
from konverse.bridge.runtime.exit_codes import CUT_OFF, FAILED
from konverse.bridge.runtime.presence import PresenceReader
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import listed

from .app import App, connection
from .process import DRAINED, PERMANENT_FAILURE, Job, command

log: Final = logging.getLogger("konverse.run")

LOOK_EVERY_S: Final = 0.05

BACK_OFF_S: Final = 0.5
BACK_OFF_S_MAX: Final = 30.0
HEALTHY_AFTER_S: Final = 60.0
"""A process that lived longer than this was healthy: its death counts as the first in a row.

A death inside a handler is the first in a row at any age, because the next owners find and suspend the message that
caused it.
"""

_NOT_RESTARTED: Final = frozenset({PERMANENT_FAILURE + 2, PERMANENT_FAILURE + 7})
"""Codes after which a restart would fail the same way. Any other code may come from a handler that ends its process."""

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


def back_off_s(deaths: int) -> float:
    """Seconds to wait before a restart after the n-th death in a row (1 is the first)."""
    return min(BACK_OFF_S_MAX, BACK_OFF_S * (1 << min(deaths - 1, 16)))


def jobs(app: App | Broker, job: Job, *, processes: bool) -> list[Job]:
    """The jobs of all processes, copied from `job`. Connects once, and raises errors that would stop all of them."""
    with connection(app) as broker:
        answering = app.answering(broker)
        for activation in answering:
            activation.check(broker.catalog.get(Queue, activation.queue), processes=processes)
        broker.operations.session_timeout_check.run()
    active = [one for one in answering if one.max_readers]
    if processes:
        return [replace(job, queue=queue) for queue in _each_reader(active)]
    return [job] if active else []


def _each_reader(activations: list[Activation]) -> Iterator[str]:
    for activation in activations:
        yield from [activation.queue] * activation.max_readers


class Child:
    """One worker process and its restarts."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._deaths = 0
        self._start_at = 0.0
        self._started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: PresenceReader | None = None
        """Tells whether the process is inside a handler."""
        self.code: int | None = None
        """Final exit code; None while a process runs or is to be restarted."""

    @property
    def title(self) -> str:
        """The queues that the process reads, in a log line."""
        return self._job.title

    @property
    def alive(self) -> bool:
        """Whether a process runs."""
        return self._process is not None and self._process.poll() is None

    def poll(self) -> None:
        """Start the process if it is due, and note its end."""
        if self.code is not None:
            return
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self._start()
        elif (code := self._process.poll()) is not None:
            self._ended(self._process, code)

    def _start(self) -> None:
        self._started_at = time.monotonic()
        # Its own process session: Ctrl-C reaches only the supervisor, which lets the worker finish.
        try:
            self._seen = PresenceReader()
            file = self._seen.file
            self._process = subprocess.Popen(  # noqa: S603  # ourselves
                command(self._job, file), stdin=subprocess.PIPE, start_new_session=True, pass_fds=(file,)
            )
        except OSError as error:  # the machine has no room for a process now
            self._died_in_a_handler()
            self._deaths += 1
            self._start_at = self._started_at + back_off_s(self._deaths)
            log.error("a reader process of %s cannot be started, retrying: %s", self.title, error)  # noqa: TRY400

    def _ended(self, process: subprocess.Popen[bytes], code: int) -> None:
        self._close(process)
        self._process = None
        attributed = self._died_in_a_handler()
        if (code == DRAINED and self._job.until_drained) or code in _NOT_RESTARTED:
            self.code = code
            return
        now = time.monotonic()
        self._deaths = 1 if attributed or now - self._started_at > HEALTHY_AFTER_S else self._deaths + 1
        wait_s = back_off_s(self._deaths)
        self._start_at = now + wait_s
        log.error(
            "reader process %d of %s ended %s%s; it is restarted in %.1f s, and its uncommitted messages are received "
            "again",
            process.pid,
            self.title,
            f"by signal {_signal_name(-code)}" if code < 0 else f"with code {code}",
            " in a handler" if attributed else "",
            wait_s,
        )

    def _died_in_a_handler(self) -> bool:
        """Whether the last process died inside a handler. Call once per process: the file is closed."""
        seen, self._seen = self._seen, None
        if seen is None:
            return False
        with closing(seen):
            return seen.in_a_handler()

    @property
    def in_a_handler(self) -> bool:
        """Whether the process is inside a handler; True also where that is not known."""
        return self._seen is None or self._seen.in_a_handler()

    def stop(self) -> None:
        """Ask the process to finish its running handlers and end."""
        if self._process is not None:
            self._close(self._process)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._died_in_a_handler()

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()


def _signal_name(number: int) -> str:
    """The name of a signal; its number for real-time signals, which have no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)


class Supervisor:
    """The processes of one `konverse run`."""

    def __init__(self, jobs: list[Job], grace_s: float, *, ends_process: bool = False) -> None:
        """`ends_process`: this process ends after `run`, so later signals are ignored."""
        self._children = [Child(job) for job in jobs]
        self._grace_s = grace_s
        self._signals = 0
        self._ends_process = ends_process

    def run(self) -> int:
        """Run until all queues are drained, a worker fails for good, or a signal arrives; returns the exit code.

        On SIGTERM and SIGINT, running handlers have `grace_s` seconds to finish and commit. Then, or at a second
        signal, the processes are killed, and their uncommitted messages are redelivered.
        """
        with self._listening():
            try:
                failed = self._work()
                cut_off = self._stop()
            finally:
                for child in self._children:
                    child.kill()
        return failed - PERMANENT_FAILURE if failed else cut_off

    def _work(self) -> int:
        """Watch until all are drained, one fails for good, or a signal arrives. Returns the failure's code, else 0."""
        while not self._signals:
            for child in self._children:
                child.poll()
            codes = [child.code for child in self._children]
            failed = max((code for code in codes if code is not None and code >= PERMANENT_FAILURE), default=0)
            if failed or None not in codes:
                return failed
            time.sleep(LOOK_EVERY_S)
        log.info("stopping: running handlers have %.0f s to finish; a second signal kills them", self._grace_s)
        return 0

    def _stop(self) -> int:
        """Let all processes finish. Returns an exit code: not 0 when the grace period ended before some of them did."""
        for child in self._children:
            child.stop()
        deadline = time.monotonic() + self._grace_s
        while alive := [child for child in self._children if child.alive]:
            if time.monotonic() > deadline or self._signals > 1:
                busy = [child for child in alive if child.in_a_handler]
                if busy:
                    log.error(
                        "killed running handlers of %s; their uncommitted messages are received again",
                        listed(dict.fromkeys(child.title for child in busy)),
                    )
                    return CUT_OFF
                log.error(
                    "killed the readers of %s before they gave their partitions back; Kafka may not answer. No handler "
                    "was running",
                    listed(dict.fromkeys(child.title for child in alive)),
                )
                return FAILED
            time.sleep(LOOK_EVERY_S)
        return 0

    @contextmanager
    def _listening(self) -> Iterator[None]:
        def heard(*_: object) -> None:
            self._signals += 1

        before = {number: signal.signal(number, heard) for number in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self._ends_process else handler)
