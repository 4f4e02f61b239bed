"""`konverse stack` with real servers: it starts, finds and shows them, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from konverse.deploy.host.ports import free_port
from tests.integration.stack_command import StackCommand, files_in, processes_naming
from tests.kit import until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.usefixtures("local_servers"),
    pytest.mark.xdist_group("stack command"),
]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[StackCommand]:
    command = StackCommand(tmp_path)
    yield command
    command.call("down")
    assert processes_naming(tmp_path) == []
    assert files_in(tmp_path) == []


class Up(NamedTuple):
    """A stack that is up."""

    command: StackCommand
    kafka_port: int
    redis_port: int
    described: dict[str, Any]
    """What its first `up` has printed as JSON."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A stack on ports that were asked for. Each test leaves it up; the last step of this fixture takes it down."""
    folder = tmp_path_factory.mktemp("up")
    command = StackCommand(folder)
    taken: set[int] = set()
    for _ in range(2):
        taken.add(free_port(taken))
    kafka_port, redis_port = taken
    options = ("--kafka-port", str(kafka_port), "--redis-port", str(redis_port), "--redis-aof")
    try:
        yield Up(command, kafka_port, redis_port, command.json("up", *options))
        assert command.run("down")[:2] == (0, "The stack 'default' is down.\n")
    finally:
        command.call("down")
    assert processes_naming(folder) == []
    assert files_in(folder) == []


def test_a_stack_goes_up_on_the_ports_that_were_asked_for_and_is_found_and_shown(up: Up) -> None:
    first = up.described
    assert first["found"] is False
    assert first["bootstrap"] == f"127.0.0.1:{up.kafka_port}"
    assert first["redis_url"] == f"redis://127.0.0.1:{up.redis_port}/0"
    assert AdminClient({"bootstrap.servers": first["bootstrap"]}).list_topics(timeout=5).brokers
    with redis.Redis.from_url(first["redis_url"]) as client:
        assert client.ping()

    second = up.command.json("up")
    assert second["found"] is True
    assert (second["bootstrap"], second["redis_url"]) == (first["bootstrap"], first["redis_url"])

    shown = up.command.json("status")
    assert _pids(shown) == _pids(second)
    assert all(server["running"] and server["memory_bytes"] > 1_000_000 for server in shown["servers"])
    code, out, _ = up.command.run("status")
    assert code == 0
    assert first["bootstrap"] in out
    assert first["redis_url"] in out


def test_without_a_stack_down_is_fine_and_status_and_logs_say_so(stack: StackCommand) -> None:
    assert stack.call("down")[:2] == (0, "Nothing was running.\n")
    code, out, _ = stack.call("status")
    assert (code, out) == (5, "There is no stack 'default'. Start one with: konverse stack up\n")
    code, _, err = stack.call("logs", "--name", "nope")
    assert (code, err) == (5, "konverse: There is no stack 'nope'. Start one with: konverse stack up --name nope\n")


def test_dead_servers_are_shown_and_the_next_up_starts_them_again(up: Up) -> None:
    first = up.command.json("up")
    os.kill(_pids(first)["kafka"], signal.SIGKILL)
    until(lambda: up.command.run("status")[0] == 4)
    code, out, _ = up.command.run("status", "--json")
    states = {server["name"]: server["running"] for server in json.loads(out)["servers"]}
    assert (code, states) == (4, {"kafka": False, "redis": True})

    again = up.command.json("up")
    assert again["found"] is False
    assert again["bootstrap"] == first["bootstrap"]
    assert _pids(again)["redis"] == _pids(first)["redis"]
    assert _pids(again)["kafka"] != _pids(first)["kafka"]


def test_kept_data_are_there_again(up: Up) -> None:
    first = up.command.json("up")
    admin = AdminClient({"bootstrap.servers": first["bootstrap"], "log_level": 0})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result()
    with redis.Redis.from_url(first["redis_url"]) as client:
        client.set("kept", "yes")
    stopped = "The stack 'default' is stopped, its data are kept. Start it again with: konverse stack up\n"
    assert up.command.run("down", "--keep-data")[:2] == (0, stopped)
    assert up.command.run("status")[:2] == (5, stopped)

    again = up.command.json("up", "--redis-aof")
    assert "kept" in AdminClient({"bootstrap.servers": again["bootstrap"]}).list_topics(timeout=5).topics
    with redis.Redis.from_url(again["redis_url"]) as client:
        assert client.get("kept") == b"yes"
    assert [again[name] for name in ("bootstrap", "redis_url")] == [first[name] for name in ("bootstrap", "redis_url")]


def test_a_second_down_deletes_data_that_the_first_has_kept_and_says_so(stack: StackCommand) -> None:
    stack.json("up", "--brokers", "0")
    kept = "The stack 'default' is stopped, its data are kept. Start it again with: konverse stack up\n"
    assert stack.call("down", "--keep-data")[:2] == (0, kept)
    assert stack.call("down", "--keep-data")[:2] == (0, kept)
    assert stack.call("down")[:2] == (0, "Nothing was running. The data that were kept are deleted.\n")
    assert stack.call("down")[:2] == (0, "Nothing was running.\n")


def test_the_logs_are_shown_and_followed(up: Up) -> None:
    assert "Kafka Server started" in up.command.call("logs", "kafka")[1]
    assert "redis | " in up.command.call("logs")[1]
    code, _, err = up.command.call("logs", "mysql")
    assert (code, err) == (2, "konverse: The stack 'default' has no server 'mysql'. It has: redis, kafka.\n")
    with up.command.start("logs", "redis", "--follow", "--lines", "1") as following:
        assert following.stdout is not None
        assert following.stdout.readline()  # the last line that Redis has written
        with (up.command.home / "logs" / "redis.log").open("a") as log:
            log.write("one more line\n")
        assert following.stdout.readline() == "one more line\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 130


def test_a_running_stack_refuses_other_ports_and_another_shape(up: Up) -> None:
    assert up.command.json("up", "--kafka-port", str(up.kafka_port))["found"] is True
    for option, what, port in (("--kafka-port", "Kafka", up.kafka_port), ("--redis-port", "Redis", up.redis_port)):
        code, out, err = up.command.call("up", option, "9092")
        assert (code, out) == (2, "")
        assert f"has {what} on port {port}." in err
    code, out, err = up.command.call("up", "--brokers", "3")
    assert (code, out) == (2, "")
    assert "has 1 broker." in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_up_leaves_no_process_and_no_file(
    stack: StackCommand, tmp_path: Path, number: signal.Signals
) -> None:
    code = 0
    while code == 0:  # else it was up before the signal came, and nothing was interrupted
        stack.run("down")
        with stack.start("up") as process:
            until(lambda: _state_names_a_kafka(stack.home / "stack.json"), 60)
            process.send_signal(number)
            process.communicate(timeout=30)
        code = process.returncode
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    until(lambda: not processes_naming(tmp_path))
    until(lambda: not files_in(tmp_path))


def test_two_ups_at_once_start_one_stack(stack: StackCommand) -> None:
    with stack.start("up", "--json") as one, stack.start("up", "--json") as other:
        ends = [process.communicate(timeout=110) for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), [err for _, err in ends]
    answers = [json.loads(out) for out, _ in ends]
    assert _pids(answers[0]) == _pids(answers[1])
    assert sorted(answer["found"] for answer in answers) == [False, True]


@pytest.mark.parametrize("option", ["--kafka-port", "--redis-port"])
def test_a_port_in_use_is_reported_and_no_process_or_file_is_left(
    stack: StackCommand, tmp_path: Path, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, _, err = stack.call("up", option, str(port))
    assert code == 3
    what = f"Port {port} of 127.0.0.1 ({option}) is in use, or this user may not open it"
    assert err == f"konverse: {what}. Give another, or none.\n"
    assert processes_naming(tmp_path) == []
    assert files_in(tmp_path) == []


def test_one_port_for_both_is_refused(stack: StackCommand) -> None:
    code, _, err = stack.call("up", "--kafka-port", "23456", "--redis-port", "23456")
    assert (code, err) == (2, "konverse: Kafka and Redis cannot both have port 23456. Give each its own.\n")


def test_a_folder_with_other_things_is_left_alone(stack: StackCommand, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    for command in ("up", "down"):
        code, _, err = stack.call(command, "--directory", str(mine))
        assert code == 2
        assert "is not empty and not the folder of a stack" in err
    assert (mine / "data").is_dir()


def test_a_stack_may_stand_in_any_folder_and_be_redis_alone(stack: StackCommand, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    up = stack.json("up", "--name", "mine", "--directory", str(folder), "--brokers", "0")
    assert (up["bootstrap"], list(_pids(up))) == ("", ["redis"])
    assert up["environment"] == {"KONVERSE_REDIS": up["redis_url"]}
    assert stack.run("down", "--directory", str(folder))[:2] == (0, "The stack 'mine' is down.\n")
    assert not folder.exists()


def test_wrong_options_are_wrong_usage(stack: StackCommand) -> None:
    assert stack.call("up", "--brokers", "2")[0] == 2
    assert stack.call("up", "--name", "../x")[0] == 2
    assert stack.run("up", "--no-such-option")[0] == 2


def _pids(described: dict[str, list[dict[str, object]]]) -> dict[str, int]:
    return {str(server["name"]): int(str(server["pid"])) for server in described["servers"]}


def _state_names_a_kafka(state: Path) -> bool:
    if not state.exists():
        return False
    servers = json.loads(state.read_text())["servers"]
    return any(server["kind"] == "kafka" and server["process"] for server in servers)
