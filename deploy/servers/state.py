"""The state of a stack: servers, ports and processes. It is kept in stack.json, which is replaced as a whole."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.ports import HOST
from konverse.deploy.host.processes import ProcessId
from konverse.schemas.errors import InvalidSettings, StackError

FORMAT: Final = 1

Kind = Literal["kafka", "redis"]


@dataclass(frozen=True)
class ServerState:
    """One server of a stack."""

    name: str
    kind: Kind
    port: int
    node_id: int = 0
    controller_port: int = 0
    process: ProcessId | None = None
    since_s: float = 0.0
    """When its process was started, in seconds since 1970."""

    @property
    def address(self) -> str:
        """The address for clients: "127.0.0.1:9092" or "redis://127.0.0.1:6379/0"."""
        return f"{HOST}:{self.port}" if self.kind == "kafka" else f"redis://{HOST}:{self.port}/0"

    def alive(self) -> bool:
        """Return whether its process runs."""
        return self.process is not None and self.process.alive()


@dataclass(frozen=True)
class StackState:
    """The state of a stack: its servers and settings."""

    name: str
    cluster_id: str
    servers: tuple[ServerState, ...]
    redis_aof: bool = False
    broker_settings: dict[str, str] | None = None
    start_deadline_s: float = 90.0
    owner_pid: int | None = None
    """Of an ephemeral stack: the process with which it ends."""

    @property
    def bootstrap(self) -> str:
        """Kafka's addresses, with commas; empty without a broker."""
        return ",".join(server.address for server in self.servers if server.kind == "kafka")

    @property
    def bootstrap_port(self) -> int | None:
        """The port of the first broker; None without one."""
        return next((server.port for server in self.servers if server.kind == "kafka"), None)

    @property
    def redis_url(self) -> str:
        """Redis's address; empty without Redis."""
        return next((server.address for server in self.servers if server.kind == "redis"), "")

    def server(self, name: str) -> ServerState:
        """Return a server by name. Raises `InvalidSettings` with the names that exist."""
        for server in self.servers:
            if server.name == name:
                return server
        names = ", ".join(server.name for server in self.servers)
        raise InvalidSettings(f"The stack {self.name!r} has no server {name!r}. It has: {names}.")

    def started(self, name: str, process: ProcessId) -> StackState:
        """Return the state after a server was started."""
        since_s = time.time()
        servers = (replace(s, process=process, since_s=since_s) if s.name == name else s for s in self.servers)
        return replace(self, servers=tuple(servers))

    def stopped(self) -> StackState:
        """Return the state without processes."""
        return replace(self, servers=tuple(replace(server, process=None) for server in self.servers))

    def port(self, name: str) -> int | None:
        """Return the port of a server; None if there is none of that name."""
        return next((server.port for server in self.servers if server.name == name), None)

    def save(self, path: Path) -> None:
        """Write the state to a file, atomically."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        with filesystem_faults(path):
            try:
                fresh.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)


def load(path: Path) -> StackState | None:
    """Read the state of a stack; None if there is none. Raises `StackError` if the file cannot be parsed."""
    try:
        with filesystem_faults(path):
            text = path.read_text()
    except StackError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise
    try:
        return _parse(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StackError(
            f"{path} is not the state of a stack of this version of konverse ({error}). "
            f"End its servers by hand if any runs, and delete {path.parent}."
        ) from error


def _parse(fields: dict[str, Any]) -> StackState:
    if fields.pop("format") != FORMAT:
        raise ValueError("another format")
    servers = tuple(_parse_server(server) for server in fields.pop("servers"))
    return StackState(servers=servers, **fields)


def _parse_server(fields: dict[str, Any]) -> ServerState:
    process = fields.pop("process")
    return ServerState(process=ProcessId(**process) if process else None, **fields)
