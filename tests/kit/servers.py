"""Real servers for tests: from the environment, else from Docker, else local processes.

KONVERSE_TEST_KAFKA ("127.0.0.1:9092") and KONVERSE_TEST_REDIS ("redis://127.0.0.1:6379/0") name running servers.
Without them a Docker engine runs both in containers, if it answers and has or can pull the images. Otherwise the local
stack of konverse.deploy runs both as plain processes.

Workers of pytest-xdist share one local stack. The first worker that needs it starts it on behalf of pytest's main
process. The stack ends with that process, even when workers die.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NoReturn

import pytest

from konverse.deploy import LocalStack, StackSettings
from konverse.deploy.host.folders import cache_folder
from konverse.deploy.host.locks import locked
from konverse.deploy.java.jars import kafka_jars
from konverse.deploy.java.java import find_java
from konverse.deploy.servers.class_archive import archive_file
from konverse.deploy.servers.kafka import KafkaProgram
from konverse.deploy.servers.redis import find_redis
from konverse.schemas.errors import StackError
from tests.kit import containers

KAFKA_VARIABLE: Final = "KONVERSE_TEST_KAFKA"
REDIS_VARIABLE: Final = "KONVERSE_TEST_REDIS"
BROKERS_VARIABLE: Final = "KONVERSE_TEST_BROKERS"
"""Brokers of the local stack: 1, or 3 for a cluster with two replicas of each partition."""
_LOCK_DEADLINE_S: Final = 300.0

Provider = Literal["environment", "docker", "local"]

_PATIENT: Final = {
    "broker.session.timeout.ms": "600000",
    "broker.heartbeat.interval.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "metadata.max.idle.interval.ms": "10000",
}
"""Settings for a broker that all tests share and no test kills. On a busy machine the broker's heartbeat may reach the
controller seconds late, and a fenced broker may never coordinate its consumer groups again (NotCoordinatorException). A
reader's heartbeat may be late by more than the 2 s that the stack sets; then the group would give the reader's
partitions to another reader. Fewer heartbeats of the broker and fewer empty metadata records save CPU."""

THREE_BROKERS: Final = StackSettings(brokers=3, redis=False, broker_settings={"broker.session.timeout.ms": "4000"})
"""A cluster for tests that kill brokers. The stack's own timeout of 1 s would fence brokers on a busy machine."""


@dataclass(frozen=True)
class Servers:
    """Addresses of the servers of this test run."""

    bootstrap: str
    redis_url: str
    kafka_from: Provider
    redis_from: Provider
    stack: LocalStack | None = None
    """The local stack, when only this process uses it. Only then may its servers be killed."""

    def kill(self, server: str) -> None:
        """Kill a server with SIGKILL. The test must start it again; the fixture `own_stack` avoids that."""
        self._own().kill(server)

    def restart(self, server: str) -> None:
        """Start a killed server again and wait until it answers."""
        self._own().restart(server)

    def _own(self) -> LocalStack:
        if self.stack is None:
            raise AssertionError("These servers are shared. Ask for the fixture own_stack to kill servers.")
        return self.stack


@contextmanager
def provide(shared: Path | None) -> Iterator[Servers]:
    """Yield the servers of a test run. `shared` is a folder common to all pytest-xdist workers, None without them."""
    bootstrap, redis_url = os.environ.get(KAFKA_VARIABLE, ""), os.environ.get(REDIS_VARIABLE, "")
    kafka_from: Provider = "environment"
    redis_from: Provider = "environment"
    own: LocalStack | None = None
    brokers = int(os.environ.get(BROKERS_VARIABLE, "1"))
    with ExitStack() as exits:
        if not bootstrap and brokers == 1 and containers.has_kafka():
            bootstrap, kafka_from = exits.enter_context(containers.kafka()), "docker"
        if not redis_url and containers.has_redis():
            redis_url, redis_from = exits.enter_context(containers.redis()), "docker"
        if not bootstrap or not redis_url:
            brokers = 0 if bootstrap else brokers
            settings = StackSettings(brokers=brokers, redis=not redis_url, broker_settings=_PATIENT)
            stack = exits.enter_context(_local(settings, shared))
            own = stack if shared is None else None
            bootstrap, kafka_from = (bootstrap, kafka_from) if bootstrap else (stack.bootstrap, "local")
            redis_url, redis_from = (redis_url, redis_from) if redis_url else (stack.redis_url, "local")
        yield Servers(bootstrap, redis_url, kafka_from, redis_from, own)


@contextmanager
def _local(settings: StackSettings, shared: Path | None) -> Iterator[LocalStack]:
    if shared is None:
        with LocalStack.start(settings) as stack:
            yield stack
        return
    settings = replace(settings, directory=shared / "stack")
    with locked(shared / "stack.lock", deadline_s=_LOCK_DEADLINE_S):
        # A worker's parent is pytest's main process. The stack ends with it, so no worker stops it.
        found = LocalStack.find(settings) or LocalStack.start(settings, owner_pid=os.getppid())
    yield found


def revive(stack: LocalStack) -> None:
    """Let stopped servers go on, and start dead ones again."""
    for pid in stack.pids.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    for server in stack.status():
        if not server.running:
            stack.restart(server.name)


def missing(reason: StackError | str) -> NoReturn:
    """Skip the test because no server is available; in CI (CI=true) fail it."""
    if os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(f"No servers: {reason}", pytrace=False)
    pytest.skip(f"No servers: {reason}")


def prepare() -> None:
    """Download Kafka and make the class archive, before any test has a time limit.

    Errors are ignored here; the first test that needs servers reports them.
    """
    if os.environ.get(KAFKA_VARIABLE) or containers.has_kafka():
        return
    try:
        with locked(cache_folder() / ".first-start.lock", deadline_s=_LOCK_DEADLINE_S):
            java = find_java()
            program = KafkaProgram(java, kafka_jars(java), cache_folder())
            if not archive_file(program).exists():
                LocalStack.start(StackSettings(redis=False)).stop()
    except StackError:
        return


def needs_local_servers() -> None:
    """Skip (in CI: fail) unless this machine can run the local stack itself."""
    try:
        kafka_jars(find_java())
        find_redis()
    except StackError as error:
        missing(error)
