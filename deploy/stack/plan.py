"""Plans a new stack: its servers, and the ports on which they listen. An existing stack keeps all of these."""

from __future__ import annotations

import re
from typing import Final

from konverse.deploy.host.folders import StackHome
from konverse.deploy.host.ports import free_port, is_free, new_id, require_free
from konverse.deploy.servers.state import ServerState, StackState, load
from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidSettings

from .settings import StackSettings

_CLUSTER_ID: Final = re.compile(r"^cluster\.id=(\S+)", re.MULTILINE)


def plan(settings: StackSettings, home: StackHome) -> StackState:
    """Choose names and ports for a stack whose servers do not run yet.

    A stack that kept its data gets its old ports for clients, if they are free. Raises `PortTaken` for a port that was
    asked for, `InvalidSettings` if the data in `home` belong to another stack.
    """
    first, brokers = settings.kafka_port, settings.brokers_or_default
    asked: list[int | None] = [None if first is None else first + i for i in range(brokers)]
    taken = {port for port in (*asked, settings.redis_port) if port is not None}
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
    names = ["kafka"] if brokers == 1 else [f"kafka-{number}" for number in range(1, brokers + 1)]
    ports = [choose(port, "--kafka-port", name) for port, name in zip(asked, names, strict=True)]
    if settings.redis is not False:
        redis_port = choose(settings.redis_port, "--redis-port", "redis")
        servers.append(ServerState("redis", "redis", redis_port))
    for node_id, (name, port) in enumerate(zip(names, ports, strict=True), start=1):
        servers.append(ServerState(name, "kafka", port, node_id, choose(None, "")))
    return StackState(
        name=settings.name,
        cluster_id=_kept_cluster_id(home, {server.name for server in servers}) or new_id(),
        servers=tuple(servers),
        redis_aof=bool(settings.redis_aof),
        broker_settings=dict(settings.broker_settings),
        start_deadline_s=settings.start_deadline_s,
    )


def refuse_others(settings: StackSettings, state: StackState) -> None:
    """Raise `InvalidSettings` if the settings ask for something that an existing stack does not have."""
    brokers = sum(server.kind == "kafka" for server in state.servers)
    kafka_port, redis_port = state.bootstrap_port, state.port("redis")
    redis = "no Redis" if redis_port is None else f"Redis on port {redis_port}"
    aof = "a Redis that keeps its data" if state.redis_aof else "a Redis that does not keep its data"
    kafka = "no Kafka" if kafka_port is None else f"Kafka on port {kafka_port}"
    asked = (
        ("--brokers", settings.brokers, brokers, counted(brokers, "broker")),
        ("--redis" if settings.redis else "--no-redis", settings.redis, redis_port is not None, redis),
        ("--redis-aof", settings.redis_aof, state.redis_aof, redis if redis_port is None else aof),
        ("--kafka-port", settings.kafka_port, kafka_port, kafka),
        ("--redis-port", settings.redis_port, redis_port, redis),
        ("broker_settings", dict(settings.broker_settings) or None, state.broker_settings or {}, "other settings"),
    )
    for option, wanted, has, what in asked:
        if wanted not in (None, has):
            raise InvalidSettings(
                f"The stack {state.name!r} is there already and has {what}. It keeps its servers, ports and settings. "
                f"Leave {option} out, or end the stack first with: konverse stack down"
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
