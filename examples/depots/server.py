"""A server of the instance: sends delayed dialogs on, as `konverse server` does, until SIGTERM.

python -m examples.depots.server KAFKA DATABASE
"""

from __future__ import annotations

import signal
import sys

import konverse
from examples.sales.worker import say


def main(kafka: str, database: str) -> None:
    """Serve."""
    with konverse.connect(kafka, database=database) as broker, broker.server() as server:
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        say(ready=True)
        server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
