"""Plans a new stack: its servers, and the ports on which they listen."""

from __future__ import annotations

import re
from typing import Final

from konverse.deploy.host.folders import StackHome
from konverse.deploy.host.ports import free_port, is_free, new_id, require_free
from konverse.deploy.servers.state import ServerState, StackState, load
from konverse.schemas.errors import InvalidSettings

from .settings import StackSettings

_CLUSTER_ID: Final = re.compile(r"^cluster\.id=(\S+)", re.MULTILINE)


def plan(settings: StackSettings, home: StackHome) -> StackState:
    """Choose names and ports for a stack whose servers do not run yet; a stack that left its data gets its ports again.

    Raises `PortTaken` for a port that was asked for, `InvalidSettings` if the data in `home` belong to another stack.
    """
    taken: set[int] = set()

    before = load(home.kept)

    def choose(wanted: int | None, option: str, name: str = "") -> int:
        had = before.port(name) if before is not None else None
        if wanted is not None:
            port = require_free(wanted, option)
        else:
            port = had if had is not None and had not in taken and is_free(had) else free_port(taken)
        taken.add(port)
        return port

    servers: list[ServerState] = []
    first = settings.kafka_port
    names = ["kafka"] if settings.brokers == 1 else [f"kafka-{number}" for number in range(1, settings.brokers + 1)]
    ports = [choose(None if first is None else first + i, "--kafka-port", name) for i, name in enumerate(names)]
    if settings.redis:
        redis_port = choose(settings.redis_port, "--redis-port", "redis")
        servers.append(ServerState("redis", "redis", redis_port))
    for node_id, (name, port) in enumerate(zip(names, ports, strict=True), start=1):
        servers.append(ServerState(name, "kafka", port, node_id, choose(None, "")))
    return StackState(
        name=settings.name,
        cluster_id=_kept_cluster_id(home, {server.name for server in servers}) or new_id(),
        servers=tuple(servers),
        redis_aof=settings.redis_aof,
        broker_settings=dict(settings.broker_settings),
        start_deadline_s=settings.start_deadline_s,
    )


def _kept_cluster_id(home: StackHome, names: set[str]) -> str | None:
    """Return the id of the cluster to which the data of an earlier stack in this folder belong; None without data."""
    found = None
    for meta in home.root.glob("data/*/meta.properties"):
        if meta.parent.name not in names:
            raise InvalidSettings(
                f"{home.root} keeps the data of a stack with other brokers ({meta.parent.name}). "
                "Start it with the same --brokers, or remove the data with: konverse stack down"
            )
        match = _CLUSTER_ID.search(meta.read_text())
        found = match[1] if match else found
    return found
