"""The fixtures that give servers to tests. With pytest-xdist all workers use one stack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.servers import Servers

pytestmark = [pytest.mark.stack]


@pytest.mark.parametrize("_", range(4))
def test_the_servers_answer_and_are_the_same_for_all(servers: Servers, database: str, tmp_path: Path, _: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    admin.create_topics([NewTopic(database, 1)])[database].result()
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.set(database, os.getpid(), nx=True)


def test_databases_are_not_the_same_twice(database: str) -> None:
    assert database.isidentifier()


def test_a_stack_that_is_not_shared_may_be_killed_and_started_again(servers: Servers) -> None:
    if servers.stack is None:
        pytest.skip("the servers are shared")
    servers.kill("redis")
    servers.restart("redis")
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.ping()
