"""The tests' choice of servers (tests/kit/servers.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from konverse.deploy import LocalStack
from konverse.schemas.stack_errors import JavaNotFound
from tests.kit import containers
from tests.kit.servers import Servers, missing, provide

KAFKA, REDIS = "127.0.0.1:9092", "redis://127.0.0.1:6379/0"


class Images:
    """A Docker engine's images: some are present, some can be pulled."""

    def __init__(self, here: str, elsewhere: str) -> None:
        self._here, self._elsewhere = here, elsewhere
        self.images = self

    def get(self, image: str) -> None:
        if image != self._here:
            raise LookupError(image)

    def pull(self, image: str) -> None:
        if image != self._elsewhere:
            raise LookupError(image)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    containers._engine.cache_clear()
    containers._obtainable.cache_clear()


def test_servers_of_the_environment_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KONVERSE_TEST_KAFKA", KAFKA)
    monkeypatch.setenv("KONVERSE_TEST_REDIS", REDIS)
    for shared in (None, tmp_path):
        with provide(shared) as servers:
            assert servers == Servers(KAFKA, REDIS, "environment", "environment")


def test_only_servers_missing_from_the_environment_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Any] = []

    def start(settings: Any) -> LocalStack:
        wanted.append((settings.brokers, settings.redis))
        raise JavaNotFound("enough seen")

    monkeypatch.setattr(LocalStack, "start", start)
    monkeypatch.setattr(containers, "_engine", lambda: None)
    for variable, address in (("KONVERSE_TEST_KAFKA", KAFKA), ("KONVERSE_TEST_REDIS", REDIS)):
        with monkeypatch.context() as environment:
            environment.delenv("KONVERSE_TEST_KAFKA", raising=False)
            environment.delenv("KONVERSE_TEST_REDIS", raising=False)
            environment.setenv(variable, address)
            with pytest.raises(JavaNotFound), provide(None):
                pass
    assert wanted == [(0, True), (1, False)]


def test_without_an_engine_there_are_no_containers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert not containers.has_kafka()
    assert not containers.has_redis()


def test_containers_need_an_image_that_is_here_or_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_engine", lambda: Images(here=containers.KAFKA_IMAGE, elsewhere="other"))
    assert containers.has_kafka()
    assert not containers.has_redis()
    containers._obtainable.cache_clear()
    monkeypatch.setattr(containers, "_engine", lambda: Images(here="other", elsewhere=containers.REDIS_IMAGE))
    assert containers.has_redis()
    assert not containers.has_kafka()


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_server_skips_at_home_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="No servers: no Java"):
        missing(JavaNotFound("no Java"))


def test_shared_servers_cannot_be_killed() -> None:
    with pytest.raises(AssertionError, match="own_stack"):
        Servers(KAFKA, REDIS, "local", "local").kill("kafka")
