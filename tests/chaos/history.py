"""The actions and beliefs of a run's processes, as JSON lines that survive the processes.

A line is {t, process, op, type, ...}: `t` is the machine's monotonic clock in seconds, the same for all processes, and
`type` one of

    invoke   the operation is about to begin
    ok       it was done, as far as the process knows
    fail     it was not done, as far as the process knows
    info     its outcome is unknown, or a plain fact

An invoked operation without `ok` and `fail` has an unknown outcome: its process died, or could not learn it.

| op | fields | meaning |
|---|---|---|
| begin | conversation | a session began a dialog |
| send | conversation, n, body | its n-th message on it; `ok`: Kafka has it; `fail`: nothing was written |
| end | conversation | the session ends it |
| flush | | everything that the process sent counts; nothing more comes |
| transaction | id, place, owner, takes, sends, ends | the messages that one handler run received and staged |
| commit | place, owner, number, transactions | a COMMIT; `ok`: it counts; `fail`: it does not |
| lead | place, owner | a claim; `ok`: it counts |
| state | place, owner, sides | the process's own fold of a partition at the end |
| followed | place, owner, sides | the same of a follower |
| confirm | conversation, body | a bounced message is confirmed |
| redirect | conversation, body | a bounced message is redirected to this conversation, if it can still send |
| move | conversation, to | the owner moves a side of a conversation to another partition; `fail`: it stays |
| clock | clock, error_s, reader | the clock is wrong by `error_s`; `ok`: the product's module `reader` has read it |
| nemesis | name, effect | a fault; `ok`: its effect was seen |
| stopped | reason | the process ends itself |

`takes` are [conversation, role, n, body], `sends` [conversation, role, body], `ends` [conversation, role]: `role` is
that of the side that receives, sends or ends, and `body` is a digest in hexadecimal.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from konverse.bridge.verifier.reading import digest

Line = dict[str, Any]


def brief(body: bytes) -> str:
    """A body's name in histories, as in the verifier."""
    return digest(body).hex()


class Scribe:
    """Writes the history of a process. Each line is one write, so it survives kill -9."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._process = process

    def invoke(self, op: str, **fields: Any) -> None:
        """The operation is about to begin."""
        self._write(op, "invoke", fields)

    def ok(self, op: str, **fields: Any) -> None:
        """It was done."""
        self._write(op, "ok", fields)

    def fail(self, op: str, **fields: Any) -> None:
        """It was not done."""
        self._write(op, "fail", fields)

    def info(self, op: str, **fields: Any) -> None:
        """Its outcome is unknown, or a plain fact."""
        self._write(op, "info", fields)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, op: str, kind: str, fields: dict[str, Any]) -> None:
        line = {"t": round(time.monotonic(), 6), "process": self._process, "op": op, "type": kind, **fields}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def read(paths: Iterable[Path]) -> list[Line]:
    """All lines in order of time, without unfinished ones."""
    lines = [json.loads(line) for path in paths for line in path.read_bytes().split(b"\n")[:-1]]
    return sorted(lines, key=lambda line: float(line["t"]))
