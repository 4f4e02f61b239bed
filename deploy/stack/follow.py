"""Reads logs from their end, and as they grow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.2
_LINE_BYTES_ABOUT: Final = 512


def last_part(logs: Mapping[str, Path], lines: int) -> Iterator[str]:
    """Yield the last lines of each log; with several logs, each line begins with the name of its server."""
    for server, log in logs.items():
        for line in _Tail(log).last(lines):
            yield _labelled(server, line, len(logs))


def follow(logs: Mapping[str, Path], lines: int) -> Iterator[str]:
    """Yield the last lines of each log and then, without end, each line that is added."""
    tails = {server: _Tail(log) for server, log in logs.items()}
    for server, tail in tails.items():
        for line in tail.last(lines):
            yield _labelled(server, line, len(logs))
    while True:
        for server, tail in tails.items():
            for line in tail.added():
                yield _labelled(server, line, len(logs))
        time.sleep(_POLL_S)


class _Tail:
    """One log, and the offset up to which it was read."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at_byte = 0
        self._rest = b""

    def last(self, lines: int) -> list[str]:
        size_bytes = self._log.stat().st_size if self._log.exists() else 0
        window_bytes = max(1, lines) * _LINE_BYTES_ABOUT
        while True:
            self._at_byte, self._rest = max(0, size_bytes - window_bytes), b""
            cut = self._at_byte > 0
            found = self.added()[1 if cut else 0 :]
            if len(found) >= lines or not cut:
                return found[len(found) - lines :] if lines < len(found) else found
            window_bytes *= 4

    def added(self) -> list[str]:
        try:
            with self._log.open("rb") as stream:
                if stream.seek(0, 2) < self._at_byte:  # a new stack has replaced the log
                    self._at_byte, self._rest = 0, b""
                stream.seek(self._at_byte)
                chunk = stream.read()
        except FileNotFoundError:
            return []
        self._at_byte += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


def _labelled(server: str, line: str, logs: int) -> str:
    return line if logs == 1 else f"{server} | {line}"
