"""The stack of `deploy/compose.yaml`, with a project name and ports of its own."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.compose.engine import Engine
from tests.compose.files import COMPOSE_FILE, HERE
from tests.compose.shell import CheckFailed, Shell, wait_until

SERVERS: Final = Counter({"kafka": 1, "redis": 1, "spark-master": 1, "spark-worker": 2})
"""Service → number of its containers."""
PROFILE: Final = "spark"
PORTS: Final = ("KAFKA_PORT", "REDIS_PORT", "SPARK_PORT", "SPARK_UI_PORT")
STATE: Final = (
    '{{index .Config.Labels "com.docker.compose.service"}} {{.State.Status}} '
    "{{if .State.Health}}{{.State.Health.Status}}{{else}}unchecked{{end}}"
)
BUILD_S: Final = 1800
HEALTHY_S: Final = 300
STOP_S: Final = 120
COMMAND_S: Final = 600


@dataclass(frozen=True)
class Stack:
    """One project of compose."""

    engine: Engine
    project: str
    image: str
    ports: dict[str, int]

    @classmethod
    def named(cls, engine: Engine, project: str, image: str) -> Stack:
        """A stack with that project name, on free ports of this machine."""
        return cls(engine, project, image, free_ports())

    @property
    def shell(self) -> Shell:
        """The engine's shell with the variables of this stack."""
        ports = {name: str(port) for name, port in self.ports.items()}
        environment = {**self.engine.shell.environment, **ports, "KONVERSE_IMAGE": self.image}
        return replace(self.engine.shell, environment=environment)

    def command(self, *words: str | Path) -> list[str | Path]:
        """The words of a compose command on this stack."""
        project = ("--project-name", self.project, "--profile", PROFILE)
        return [*self.engine.compose, "--file", COMPOSE_FILE, *project, *words]

    def compose(self, *words: str | Path, within_s: float = COMMAND_S) -> str:
        """Run compose on this stack."""
        return self.shell.run(self.command(*words), within_s=within_s)

    def build(self) -> None:
        """Build our image, which several services share."""
        self.compose("build", "spark-master", within_s=BUILD_S)

    def up(self) -> None:
        """Start every server and wait until all are healthy. A second call starts missing ones."""
        self.compose("up", "--detach", within_s=HEALTHY_S)
        wait_until(self._is_healthy, within_s=HEALTHY_S, what=f"{', '.join(SERVERS)} are healthy")

    def discard(self, *services: str) -> None:
        """Stop and remove the containers of `services`. Named volumes stay."""
        self.compose("rm", "--stop", "--force", "-v", *services, within_s=STOP_S)

    def run(self, *words: str, within_s: float = COMMAND_S) -> str:
        """Run a command in a new container of our image, with `tests/compose` below its working folder."""
        options = ["--rm", "-T", "--volume", f"{HERE}:/check/tests/compose:ro", "--workdir", "/check"]
        return self.compose("run", *options, "konverse", *words, within_s=within_s)

    def down(self) -> None:
        """Stop and remove containers, networks and volumes, and check that none is left."""
        self.compose("down", "--volumes", "--remove-orphans", within_s=STOP_S)
        left = {kind: self._listed(kind) for kind in ("container", "volume", "network")}
        if self.engine.ours:  # in our own engine, volumes without a name are ours too
            left["volume"] = self.engine.docker("volume", "ls", "--quiet").split()
        if any(left.values()):
            raise CheckFailed(f"compose down has left: {left}")

    def logs(self) -> None:
        """Append the servers' output to our log."""
        self.compose("logs", "--no-color", "--tail", "60")

    def _listed(self, kind: str) -> list[str]:
        everything = ["--all"] if kind == "container" else []
        mine = f"label=com.docker.compose.project={self.project}"
        return self.engine.docker(kind, "ls", "--quiet", *everything, "--filter", mine).split()

    def _is_healthy(self) -> bool:
        states = self._states()
        ended = [(service, state) for service, state in states if state in {"exited", "dead", "unhealthy"}]
        if ended:
            raise CheckFailed(f"a server does not serve: {ended}")
        return Counter(service for service, state in states if state == "healthy") == SERVERS

    def _states(self) -> list[tuple[str, str]]:
        """Each container's service and health, or its status when it is not running."""
        containers = self._listed("container")
        printed = self.engine.docker("inspect", "--format", STATE, *containers) if containers else ""
        found = [line.split() for line in printed.splitlines()]
        return [(service, health if status == "running" else status) for service, status, health in found]


def free_ports() -> dict[str, int]:
    """A free port for each port variable of the compose file."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.socket()) for name in PORTS}
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in sockets.items()}
