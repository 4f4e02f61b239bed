"""Status of the servers of a stack."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from konverse.deploy.servers.state import ServerState


@dataclass(frozen=True)
class ServerStatus:
    """Status of one server at the moment of asking."""

    name: str
    running: bool
    address: str
    pid: int | None
    uptime_s: float | None
    memory_bytes: int | None
    log: Path

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "log": str(self.log)}


def status_of(server: ServerState, log: Path) -> ServerStatus:
    """Look at a server's process; the pid is shown only while the process is this server."""
    process = server.process
    running = process is not None and process.alive()
    return ServerStatus(
        name=server.name,
        running=running,
        address=server.address,
        pid=process.pid if process is not None and running else None,
        uptime_s=round(max(0.0, time.time() - server.since_s), 1) if running else None,
        memory_bytes=process.memory_bytes() if process is not None and running else None,
        log=log,
    )
