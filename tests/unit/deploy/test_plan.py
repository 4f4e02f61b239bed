from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konverse.deploy import StackSettings
from konverse.deploy.host.folders import StackHome, stack_folder
from konverse.deploy.host.ports import FIRST, LAST, is_free, new_id
from konverse.deploy.servers.kafka import common_settings
from konverse.deploy.servers.state import ServerState, StackState
from konverse.deploy.stack.plan import plan, refuse_others
from konverse.schemas.errors import InvalidName, InvalidSettings
from konverse.schemas.stack_errors import PortTaken


def test_one_broker_and_redis_are_the_default(tmp_path: Path) -> None:
    state = plan(StackSettings(), StackHome(tmp_path))
    assert [server.name for server in state.servers] == ["redis", "kafka"]
    assert len({server.port for server in state.servers} | {state.servers[1].controller_port}) == 3


def test_three_brokers_have_three_names_and_take_the_ports_from_the_one_given(tmp_path: Path) -> None:
    # below the ports of outgoing connections, which change during this search
    free = next(port for port in range(FIRST, LAST, 7) if all(map(is_free, range(port, port + 3))))
    state = plan(StackSettings(brokers=3, redis=False, kafka_port=free), StackHome(tmp_path))
    found = [(server.name, server.node_id, server.port) for server in state.servers]
    assert found == [("kafka-1", 1, free), ("kafka-2", 2, free + 1), ("kafka-3", 3, free + 2)]


@pytest.mark.parametrize("option", ["kafka_port", "redis_port"])
def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: dict[str, Any] = {option: server.getsockname()[1]}
        with pytest.raises(PortTaken, match=option.replace("_", "-")):
            plan(StackSettings(**taken), StackHome(tmp_path))


def test_a_port_that_was_asked_for_is_not_given_to_the_server_that_had_it_before(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    before = plan(StackSettings(), home)
    had = before.port("kafka")
    before.save(home.kept)
    assert plan(StackSettings(), home).port("kafka") == had
    assert had is not None
    after = plan(StackSettings(redis_port=had), home)
    assert after.port("redis") == had
    assert after.port("kafka") not in {had, None}


def test_kept_data_keep_their_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data" / "kafka"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=J6kWTcTjRKqXrhPLVJ8Fqw\nnode.id=1\n")
    assert plan(StackSettings(), StackHome(tmp_path)).cluster_id == "J6kWTcTjRKqXrhPLVJ8Fqw"
    with pytest.raises(InvalidSettings, match="data of a stack with other brokers"):
        plan(StackSettings(brokers=3), StackHome(tmp_path))


KEEPS = {
    "brokers": 3,
    "redis": True,
    "redis_aof": True,
    "kafka_port": 22000,
    "redis_port": 22010,
    "broker_settings": {"num.io.threads": "2"},
}


@pytest.fixture
def existing(tmp_path: Path) -> StackState:
    servers = [ServerState(f"kafka-{number}", "kafka", 21999 + number, number) for number in (1, 2, 3)]
    servers.append(ServerState("redis", "redis", 22010))
    return StackState("demo", "an-id", tuple(servers), redis_aof=True, broker_settings={"num.io.threads": "2"})


@pytest.mark.parametrize("asked", [{}, *({name: value} for name, value in KEEPS.items()), KEEPS], ids=str)
def test_an_existing_stack_takes_options_that_agree_with_it(existing: StackState, asked: dict[str, Any]) -> None:
    refuse_others(StackSettings(**asked), existing)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"brokers": 1}, "has 3 brokers.* Leave --brokers out"),
        ({"redis": False}, "has Redis on port 22010.* Leave --no-redis out"),
        ({"redis_aof": False}, "has a Redis that keeps its data.* Leave --redis-aof out"),
        ({"kafka_port": 22001}, "has Kafka on port 22000.* Leave --kafka-port out"),
        ({"redis_port": 22000}, "has Redis on port 22010.* Leave --redis-port out"),
        ({"broker_settings": {"num.io.threads": "4"}}, "has other settings.* Leave broker_settings out"),
    ],
    ids=str,
)
def test_an_existing_stack_refuses_options_that_it_does_not_have(
    existing: StackState, asked: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidSettings, match=text):
        refuse_others(StackSettings(**asked), existing)


@pytest.mark.parametrize(
    ("asked", "text"),
    [({"redis": True}, "Leave --redis out"), ({"redis_port": 1}, "--redis-port"), ({"redis_aof": True}, "--redis-aof")],
    ids=str,
)
def test_a_stack_without_redis_refuses_options_of_redis(existing: StackState, asked: dict[str, Any], text: str) -> None:
    alone = replace(existing, servers=existing.servers[:3], redis_aof=False)
    with pytest.raises(InvalidSettings, match=f"has no Redis.*{text}"):
        refuse_others(StackSettings(**asked), alone)


@pytest.mark.parametrize("name", ["", ".", "../up", "a/b", "x" * 65, "-x", "a b"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot name a stack"):
        StackSettings(name=name)


@pytest.mark.parametrize("given", [{"brokers": 2}, {"brokers": -1}, {"brokers": 0, "redis": False}])
def test_a_shape_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        StackSettings(**given)


def test_a_stack_stands_in_the_folder_of_its_name_or_in_the_one_given(tmp_path: Path) -> None:
    assert StackSettings(name="demo").home().root == stack_folder("demo")
    assert StackSettings(directory=tmp_path / "here").home().root == tmp_path / "here"


def test_an_id_is_as_kafka_makes_them() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert {len(each) for each in ids} == {22}
    assert not any(each.startswith("-") for each in ids)


def test_a_cluster_of_three_replicates_and_can_miss_one() -> None:
    assert common_settings(3)["default.replication.factor"] == "3"
    assert common_settings(3)["min.insync.replicas"] == "2"
    assert common_settings(1)["transaction.state.log.min.isr"] == "1"
