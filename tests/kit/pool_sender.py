"""A process with a named pool: `python -m tests.kit.pool_sender '<job>'` sends numbered messages until it is ended.

It says in lines of JSON how far Kafka has what it sent.
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
    """Such a process; it is ended at the end of the block."""

    def __init__(self, bootstrap: str, database: str, **options: Any) -> None:
        job = json.dumps({"bootstrap": bootstrap, "database": database, **options})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.pool_sender", job], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        )
        self.acknowledged = -1
        """Number of the last message that Kafka has."""

    def read_on(self, number: int) -> None:
        """Return when Kafka has this message."""
        assert self._process.stdout is not None, "it has a pipe"
        while self.acknowledged < number:
            line = self._process.stdout.readline()
            assert line, "the sender goes on"
            self.acknowledged = json.loads(line)

    def kill(self) -> None:
        """SIGKILL. What it has said until then counts."""
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
    """Send numbers from `first` on."""
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
