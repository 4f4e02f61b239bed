"""The router: passes each conversation on to the service of its region, and receipts back.

    python -m examples.regions.router KAFKA REDIS DATABASE

Start as many as you like. If one is killed, the others continue where it stopped: the mapping is in the conversations.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import konverse
from examples.regions.services import ORDERING, ROUTER, TABLE
from examples.sales.worker import say
from konverse.routing.classifiers import json_path


def main(kafka: str, redis: str, database: str) -> None:
    """Route until SIGTERM."""
    with konverse.connect(kafka, redis=redis, database=database) as broker:
        by_region = broker.classifier(json_path("$.region", table=TABLE))
        router = broker.router(ROUTER, contracts=[ORDERING])(by_region)
        signal.signal(signal.SIGTERM, lambda *_: router.stop())
        threading.Thread(target=report, daemon=True).start()
        router.run()


def report() -> None:
    """Report every second. Stop this process when the process that reads the reports was killed."""
    try:
        while True:
            say(ready=True)
            time.sleep(1)
    except BrokenPipeError:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
