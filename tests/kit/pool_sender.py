"""A process with a named pool: `python -m tests.kit.pool_sender '<job>'` sends numbered messages until it is killed.

It prints the number of the last flushed message as a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.kit.pools import pool_of
from tests.kit.shop import ORDER, connected

_ROOT: Final = Path(__file__).parents[2]
FLUSH_EVERY: Final = 20


class PoolSender:
    """A running pool_sender. Leaving the block kills it."""

    def __init__(self, bootstrap: str, database: str, **options: Any) -> None:
        job = json.dumps({"bootstrap": bootstrap, "database": database, **options})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.pool_sender", job], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        )
        self.acknowledged = -1
        """Number of the last message that Kafka has acknowledged."""

    def read_on(self, number: int) -> None:
        """Wait until Kafka has acknowledged message `number`."""
        assert self._process.stdout is not None, "it has a pipe"
        while self.acknowledged < number:
            line = self._process.stdout.readline()
            assert line, "the sender goes on"
            self.acknowledged = json.loads(line)

    def kill(self) -> None:
        """Send SIGKILL. Complete lines that the process wrote before count."""
        self._process.kill()
        assert self._process.stdout is not None, "it has a pipe"
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.acknowledged = json.loads(line)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main(bootstrap: str, database: str, first: int, keys: int, redis: str | None = None, read: bool = False) -> None:  # noqa: PLR0917  # a job
    """Send numbered messages, beginning with `first`."""
    settings = {"redis": redis} if redis else {}
    with (
        connected(bootstrap, database, **settings) as broker,
        pool_of(broker, name="orders", max_messages=50, read=read) as pool,
    ):
        number = first
        while True:
            pool.send(ORDER, b"%d %d" % (number % keys, number), f"key {number % keys}")
            if number % FLUSH_EVERY == FLUSH_EVERY - 1:
                pool.flush()
                print(json.dumps(number), flush=True)
                time.sleep(0.005)
            number += 1


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
