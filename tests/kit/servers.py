"""Real servers for tests: those of the environment, else Docker's, else local processes.

KONVERSE_TEST_KAFKA ("127.0.0.1:9092") and KONVERSE_TEST_REDIS ("redis://127.0.0.1:6379/0") name servers that run
already. Without them a Docker engine is asked, if one answers and has the images or can get them; otherwise the local
stack of konverse.deploy runs both as plain processes.

Workers of pytest-xdist share one local stack: the first that needs it starts it on behalf of pytest's main process, and
it ends when that process does, whatever becomes of the workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

import pytest

from konverse.deploy.host.folders import cache_folder
from konverse.deploy.host.locks import locked
from konverse.deploy.java.jars import kafka_jars
from konverse.deploy.java.java import find_java
from konverse.deploy.servers.class_archive import archive_file
from konverse.deploy.servers.kafka import KafkaProgram
from konverse.deploy.servers.redis import find_redis
from konverse.deploy.stack.settings import StackSettings
from konverse.deploy.stack.stack import LocalStack
from konverse.schemas.errors import StackError
from tests.kit import containers

KAFKA_VARIABLE: Final = "KONVERSE_TEST_KAFKA"
REDIS_VARIABLE: Final = "KONVERSE_TEST_REDIS"
_LOCK_DEADLINE_S: Final = 300.0

Provider = Literal["environment", "docker", "local"]


@dataclass(frozen=True)
class Servers:
    """Where the servers of this session are."""

    bootstrap: str
    redis_url: str
    kafka_from: Provider
    redis_from: Provider
    stack: LocalStack | None = None
    """The local stack, if it belongs to this process alone: then its servers may be killed."""

    def kill(self, server: str) -> None:
        """End a server with kill -9; a test that does so must start it again. Better: the fixture `own_stack`."""
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
    """Yield servers for a session; `shared` is a folder that all workers of pytest-xdist see, None without them."""
    bootstrap, redis_url = os.environ.get(KAFKA_VARIABLE, ""), os.environ.get(REDIS_VARIABLE, "")
    kafka_from: Provider = "environment"
    redis_from: Provider = "environment"
    own: LocalStack | None = None
    with ExitStack() as exits:
        if not bootstrap and containers.has_kafka():
            bootstrap, kafka_from = exits.enter_context(containers.kafka()), "docker"
        if not redis_url and containers.has_redis():
            redis_url, redis_from = exits.enter_context(containers.redis()), "docker"
        if not bootstrap or not redis_url:
            stack = exits.enter_context(
                _local(StackSettings(brokers=0 if bootstrap else 1, redis=not redis_url), shared)
            )
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
    settings = StackSettings(brokers=settings.brokers, redis=settings.redis, directory=shared / "stack")
    with locked(shared / "stack.lock", deadline_s=_LOCK_DEADLINE_S):
        # A worker's parent is pytest's main process. Nobody stops the stack: it ends with that process.
        found = LocalStack.find(settings) or LocalStack.start(settings, owner_pid=os.getppid())
    yield found


def missing(reason: StackError | str) -> NoReturn:
    """Skip the test for want of a server; in CI (CI=true) fail it."""
    if os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(f"No servers: {reason}", pytrace=False)
    pytest.skip(f"No servers: {reason}")


def prepare() -> None:
    """Do what only a first start takes time for, before any test has a time limit.

    That is the download and the class archive. What fails here is told by the first test that asks for servers.
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
