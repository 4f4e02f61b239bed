from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from konverse.deploy.host.processes import ProcessId
from konverse.deploy.servers.state import ServerState, StackState, load
from konverse.deploy.stack.status import status_of
from konverse.schemas.errors import InvalidSettings, StackError

REDIS = ServerState("redis", "redis", 20001)
FIRST = ServerState("kafka-1", "kafka", 20002, node_id=1, controller_port=20003)
SECOND = ServerState("kafka-2", "kafka", 20004, node_id=2, controller_port=20005)
STATE = StackState("default", "J6kWTcTjRKqXrhPLVJ8Fqw", (REDIS, FIRST, SECOND), broker_settings={"a": "b"})


def this_process() -> ProcessId:
    process = ProcessId.of(os.getpid())
    assert process is not None
    return process


def test_a_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    state = STATE.started("kafka-2", this_process())
    state.save(tmp_path / "stack.json")
    assert load(tmp_path / "stack.json") == state
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_no_state_is_none(tmp_path: Path) -> None:
    assert load(tmp_path / "stack.json") is None
    (tmp_path / "file").touch()
    assert load(tmp_path / "file" / "stack.json") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "servers": [{"name": 1}]}'])
def test_a_damaged_state_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"stack\.json is not the state of a stack"):
        load(tmp_path / "stack.json")


def test_addresses_are_those_that_clients_take() -> None:
    assert STATE.bootstrap == "127.0.0.1:20002,127.0.0.1:20004"
    assert STATE.redis_url == "redis://127.0.0.1:20001/0"
    assert replace(STATE, servers=()).bootstrap == ""
    assert replace(STATE, servers=()).redis_url == ""


def test_an_unknown_server_is_an_error_that_names_the_known() -> None:
    with pytest.raises(InvalidSettings, match=r"no server 'kafka'\. It has: redis, kafka-1, kafka-2"):
        STATE.server("kafka")


def test_a_process_that_was_started_later_with_the_same_pid_is_not_the_server(tmp_path: Path) -> None:
    earlier = ProcessId(os.getpid(), "another start")
    server = STATE.started("redis", earlier).server("redis")
    assert not server.alive()
    status = status_of(server, tmp_path)
    assert (status.running, status.pid, status.uptime_s, status.memory_bytes) == (False, None, None, None)


def test_the_status_of_a_running_server_has_its_pid_its_uptime_and_its_memory(tmp_path: Path) -> None:
    status = status_of(STATE.started("redis", this_process()).server("redis"), tmp_path)
    assert (status.running, status.pid) == (True, os.getpid())
    assert status.uptime_s is not None
    assert status.uptime_s >= 0
    assert status.memory_bytes is not None
    assert status.memory_bytes > 1_000_000
