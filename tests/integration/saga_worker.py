"""The saga's conductor and steps, killed once in each transaction: `python -m … KAFKA DATABASE FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import konverse
from examples.patterns import saga

Handler = Callable[[konverse.Transaction], object]


def main() -> None:
    """Work until killed."""
    kafka, database, folder = sys.argv[1:]

    def dying(handler: Handler) -> Handler:
        def handle(transaction: konverse.Transaction) -> None:
            mark = Path(folder, next(iter(transaction)).id.replace("/", "-"))
            handler(transaction)  # its tables are changed, and the commit has not been written
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return handle

    with (
        konverse.connect(f"kafka://{kafka}", database=database) as broker,
        broker.reader("Agency", partitions=(0, 1)) as agency,
        broker.reader("Steps", partitions=(0, 1)) as steps,
        ThreadPoolExecutor(2) as pool,
    ):
        runs = [pool.submit(agency.run, dying(saga.conduct)), pool.submit(steps.run, dying(saga.step))]
        for run in wait(runs, return_when=FIRST_COMPLETED).done:
            run.result()


if __name__ == "__main__":
    main()
