"""Kafka and Redis in containers, when a Docker engine answers and has or can pull the images."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Final

from konverse.deploy.servers.kafka import common_settings

KAFKA_IMAGE: Final = os.environ.get("KONVERSE_TEST_KAFKA_IMAGE", "confluentinc/cp-kafka:8.3.0")
"""Confluent's image, because testcontainers starts no other layout. 8.3 is Apache Kafka 4.3."""

REDIS_IMAGE: Final = os.environ.get("KONVERSE_TEST_REDIS_IMAGE", "redis:7.4")
_ANSWER_DEADLINE_S: Final = 1
_PULL_DEADLINE_S: Final = 300


def has_kafka() -> bool:
    """Return whether Kafka can run in a container here."""
    return _obtainable(KAFKA_IMAGE)


def has_redis() -> bool:
    """Return whether Redis can run in a container here."""
    return _obtainable(REDIS_IMAGE)


@contextmanager
def kafka() -> Iterator[str]:
    """Run Kafka in a container; yields its bootstrap address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about each other
        from testcontainers.community.kafka import KafkaContainer

        _without_reaper_if_it_cannot_be_had()
        container = KafkaContainer(KAFKA_IMAGE).with_kraft()
        for key, value in common_settings(brokers=1).items():
            container.with_env("KAFKA_" + key.replace(".", "_").upper(), value)
        container.start()
    try:
        yield container.get_bootstrap_server()
    finally:
        container.stop()


@contextmanager
def redis() -> Iterator[str]:
    """Run Redis in a container; yields its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.community.redis import RedisContainer

        _without_reaper_if_it_cannot_be_had()
        container = RedisContainer(REDIS_IMAGE)
        container.start()
    try:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(container.port)}/0"
    finally:
        container.stop()


@cache
def _engine() -> Any:
    """A client of the Docker engine, or None without one. Returns at once when the engine's local socket is closed."""
    if not _listens(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            docker = import_module("docker")  # it has no types
            docker.from_env(timeout=_ANSWER_DEADLINE_S).ping()
            return docker.from_env(timeout=_PULL_DEADLINE_S)
        except Exception:  # noqa: BLE001 - not installed, not running, not allowed, not understood: all mean no engine
            return None


def _listens(address: str) -> bool:
    """Return whether a local socket accepts connections. Docker's client leaks a socket when none does."""
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@cache
def _obtainable(image: str) -> bool:
    engine = _engine()
    if engine is None:
        return False
    try:
        engine.images.get(image)
    except Exception:  # noqa: BLE001 - not here; try to pull it
        try:
            engine.images.pull(image)
        except Exception:  # noqa: BLE001 - no registry, no such image, no room
            return False
    return True


def _without_reaper_if_it_cannot_be_had() -> None:
    from testcontainers.core.config import testcontainers_config

    if not _obtainable(testcontainers_config.ryuk_image):
        testcontainers_config.ryuk_disabled = True
