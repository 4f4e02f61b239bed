"""The handlers of a pattern, killed once in each transaction: `python -m … MODULE KAFKA DATABASE FOLDER`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

import konverse
from konverse.schemas.catalog import Queue

Handler = Callable[[konverse.Transaction], object]


def main() -> None:
    """Work until killed."""
    module, kafka, database, folder = sys.argv[1:]
    app: konverse.App = importlib.import_module(module).app

    def dying(handler: Handler) -> Handler:
        def handle(transaction: konverse.Transaction) -> None:
            mark = Path(folder, next(iter(transaction)).id.replace("/", "-"))
            handler(transaction)  # its tables are changed, and the commit has not been written
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return handle

    with ExitStack() as exits:
        broker = exits.enter_context(konverse.connect(f"kafka://{kafka}", database=database))
        pool = exits.enter_context(ThreadPoolExecutor(len(app.activations)))
        runs = []
        for one in app.activations:
            partitions = range(broker.catalog.get(Queue, one.queue).partitions)  # at once, whoever has just died
            reader = broker.reader(one.queue, partitions=partitions, max_messages=one.max_messages)
            runs.append(pool.submit(reader.run, dying(one.handler)))
        for run in wait(runs, return_when=FIRST_COMPLETED).done:
            run.result()


if __name__ == "__main__":
    main()
