"""The servers of a benchmark: those of the environment, else the local stack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from konverse.deploy import LocalStack, StackSettings

KAFKA_VARIABLE: Final = "KONVERSE_TEST_KAFKA"
REDIS_VARIABLE: Final = "KONVERSE_TEST_REDIS"


@contextmanager
def servers(redis: bool) -> Iterator[tuple[str, str]]:
    """Bootstrap servers of Kafka and the URL of Redis, which is empty when it is not needed."""
    bootstrap = os.environ.get(KAFKA_VARIABLE, "")
    redis_url = os.environ.get(REDIS_VARIABLE, "")
    if bootstrap and (redis_url or not redis):
        yield bootstrap, redis_url
        return
    settings = StackSettings(brokers=0 if bootstrap else 1, redis=redis and not redis_url)
    with LocalStack.start(settings) as stack:
        yield bootstrap or stack.bootstrap, redis_url or stack.redis_url
