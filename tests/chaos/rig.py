"""A local stack whose processes reach Kafka and Redis through proxies. For Kafka, each process has its own proxy.

The broker has a listener for each process, advertised at the port of its proxy. So everything that a client learns
about the cluster leads it back through that proxy. The stack's own address bypasses all proxies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from konverse.deploy import LocalStack, StackSettings
from konverse.deploy.host.ports import HOST, free_port

from .proxy import Proxy

SESSION_TIMEOUT_MS: Final = "3000"
"""The group replaces a member after this silence."""


@dataclass(frozen=True)
class Rig:
    """Running servers, and the proxies in front of them."""

    stack: LocalStack
    proxies: dict[str, Proxy]
    """Name of a process → its proxy in front of the broker."""
    redis: Proxy

    def bootstrap(self, name: str) -> str:
        """Kafka's address for that process."""
        return f"{HOST}:{self.proxies[name].port}"

    @property
    def redis_url(self) -> str:
        """Redis's address, through its proxy."""
        return f"redis://{HOST}:{self.redis.port}/0"


@contextmanager
def rig(
    names: Sequence[str], directory: Path | None = None, broker_settings: Mapping[str, str] | None = None
) -> Iterator[Rig]:
    """Start servers with a proxy for each name; they end with the block. The stack keeps its files in `directory`.

    Raises a `StackError` when the servers cannot run here.
    """
    taken: set[int] = set()

    def port() -> int:
        taken.add(chosen := free_port(taken))
        return chosen

    kafka, controller = port(), port()
    ports = {name: (port(), port()) for name in names}
    settings = StackSettings(
        directory=directory,
        kafka_port=kafka,
        redis_aof=True,
        broker_settings={**_listeners(kafka, controller, [*ports.values()]), **(broker_settings or {})},
    )
    with LocalStack.start(settings) as stack, ExitStack() as exits:
        proxies = {name: exits.enter_context(Proxy(ours, theirs)) for name, (theirs, ours) in ports.items()}
        server = int(stack.redis_url.rpartition(":")[2].partition("/")[0])
        redis = exits.enter_context(Proxy(port(), server, framed=False))
        yield Rig(stack, proxies, redis)


def _listeners(kafka: int, controller: int, ports: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Settings of a broker that listens at further ports and advertises the ports of their proxies."""
    names = [f"PROXY{number}" for number in range(len(ports))]
    plain = f"PLAINTEXT://{HOST}:{kafka}"
    listening = [f"{name}://{HOST}:{theirs}" for name, (theirs, _) in zip(names, ports, strict=True)]
    advertised = [f"{name}://{HOST}:{ours}" for name, (_, ours) in zip(names, ports, strict=True)]
    return {
        "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": ",".join([plain, *listening, f"CONTROLLER://{HOST}:{controller}"]),
        "advertised.listeners": ",".join([plain, *advertised]),
        "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in ("PLAINTEXT", "CONTROLLER", *names)),
    }
