"""The handlers of a pattern, in a process that is killed at given points and restarted: `python -m … '<job>'`.

The parent has imported everything and forks, so that the next process is there at once.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace

import konverse
from tests.kit.shop import queue_of
from tests.kit.workers import POINTS, Death, Diary, Job


@dataclass(frozen=True)
class Deaths(Job):
    """A job whose `work` is the module of a pattern."""

    deaths: Sequence[tuple[str, int]] = ()
    """Each process's point of death: a name of `POINTS`, and its occurrence. The last process runs until the end."""


def main() -> None:
    """Start a process for each death, and a last one. Prints `killed` after each death."""
    job = Deaths(**json.loads(sys.argv[1]))
    app: konverse.App = importlib.import_module(job.work).app
    diary = Diary(job.log)
    for die_at, die_on in (*job.deaths, ("", 0)):
        code = _forked(app, replace(job, die_at=die_at, die_on=die_on))
        if code != -signal.SIGKILL:
            sys.exit(f"the process that was to die {die_at or 'never'} has ended with code {code}")
        diary.write("killed", point=die_at)


def _forked(app: konverse.App, job: Job) -> int:
    """Work in a child process that ends with this one. Returns its exit code."""
    lifeline, held = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(held)
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        _work(app, job)
    os.close(lifeline)
    _, status = os.waitpid(process, 0)
    os.close(held)
    return os.waitstatus_to_exitcode(status)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the other end is closed
    os._exit(0)


def _work(app: konverse.App, job: Job) -> None:
    """Read all queues of the application."""
    if job.die_at:
        POINTS[job.die_at](Death(job, Diary(job.log)))
    with ExitStack() as exits:
        broker = exits.enter_context(konverse.connect(f"kafka://{job.bootstrap}", database=job.database))
        pool = exits.enter_context(ThreadPoolExecutor(len(app.activations)))
        runs = []
        for one in app.activations:
            partitions = range(queue_of(broker, one.queue).partitions)  # at once, although a reader has just died
            reader = broker.reader(one.queue, partitions=partitions, max_messages=one.max_messages)
            runs.append(pool.submit(reader.run, one.handler))
        for run in wait(runs, return_when=FIRST_COMPLETED).done:
            run.result()
    sys.exit("no reader goes on")


if __name__ == "__main__":
    main()
