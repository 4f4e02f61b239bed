"""`konverse stack` with real servers: it starts, finds and shows them, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.stack_command import StackCommand, files_in, processes_naming
from tests.kit import until

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("local_servers")]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[StackCommand]:
    command = StackCommand(tmp_path)
    yield command
    command.call("down")
    assert processes_naming(tmp_path) == []
    assert files_in(tmp_path) == []


def test_a_stack_goes_up_is_found_shown_and_goes_down(stack: StackCommand, tmp_path: Path) -> None:
    first = stack.json("up")
    assert first["found"] is False
    assert AdminClient({"bootstrap.servers": first["bootstrap"]}).list_topics(timeout=5).brokers
    with redis.Redis.from_url(first["redis_url"]) as client:
        assert client.ping()

    second = stack.json("up")
    assert second["found"] is True
    assert (second["bootstrap"], second["redis_url"]) == (first["bootstrap"], first["redis_url"])
    assert _pids(second) == _pids(first)

    shown = stack.json("status")
    assert _pids(shown) == _pids(first)
    assert all(server["running"] and server["memory_bytes"] > 1_000_000 for server in shown["servers"])
    code, out, _ = stack.run("status")
    assert code == 0
    assert first["bootstrap"] in out
    assert first["redis_url"] in out

    code, out, _ = stack.run("down")
    assert (code, out) == (0, "The stack 'default' is down.\n")
    assert processes_naming(tmp_path) == []
    assert files_in(tmp_path) == []


def test_without_a_stack_down_is_fine_and_status_and_logs_say_so(stack: StackCommand) -> None:
    assert stack.call("down")[:2] == (0, "Nothing was running.\n")
    code, out, _ = stack.call("status")
    assert (code, out) == (5, "There is no stack 'default'. Start one with: konverse stack up\n")
    code, _, err = stack.call("logs", "--name", "nope")
    assert (code, err) == (5, "konverse: There is no stack 'nope'. Start one with: konverse stack up --name nope\n")


def test_dead_servers_are_shown_and_the_next_up_starts_them_again(stack: StackCommand) -> None:
    first = stack.json("up")
    os.kill(_pids(first)["kafka"], signal.SIGKILL)
    until(lambda: stack.run("status")[0] == 4)
    code, out, _ = stack.run("status", "--json")
    states = {server["name"]: server["running"] for server in json.loads(out)["servers"]}
    assert (code, states) == (4, {"kafka": False, "redis": True})

    again = stack.json("up")
    assert again["found"] is False
    assert again["bootstrap"] == first["bootstrap"]
    assert _pids(again)["redis"] == _pids(first)["redis"]
    assert _pids(again)["kafka"] != _pids(first)["kafka"]


def test_kept_data_are_there_again(stack: StackCommand) -> None:
    first = stack.json("up", "--redis-aof")
    admin = AdminClient({"bootstrap.servers": first["bootstrap"], "log_level": 0})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result()
    with redis.Redis.from_url(first["redis_url"]) as client:
        client.set("kept", "yes")
    stopped = "The stack 'default' is stopped, its data are kept. Start it again with: konverse stack up\n"
    assert stack.run("down", "--keep-data")[:2] == (0, stopped)
    assert stack.run("status")[:2] == (5, stopped)

    again = stack.json("up", "--redis-aof")
    assert "kept" in AdminClient({"bootstrap.servers": again["bootstrap"]}).list_topics(timeout=5).topics
    with redis.Redis.from_url(again["redis_url"]) as client:
        assert client.get("kept") == b"yes"
    assert [again[name] for name in ("bootstrap", "redis_url")] == [first[name] for name in ("bootstrap", "redis_url")]


def test_the_logs_are_shown_and_followed(stack: StackCommand) -> None:
    stack.json("up")
    assert "Kafka Server started" in stack.call("logs", "kafka")[1]
    assert "redis | " in stack.call("logs")[1]
    code, _, err = stack.call("logs", "mysql")
    assert (code, err) == (2, "konverse: The stack 'default' has no server 'mysql'. It has: redis, kafka.\n")
    with stack.start("logs", "redis", "--follow", "--lines", "1") as following:
        assert following.stdout is not None
        assert "Ready to accept connections" in following.stdout.readline()
        with (stack.home / "logs" / "redis.log").open("a") as log:
            log.write("one more line\n")
        assert following.stdout.readline() == "one more line\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 130


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


def test_ports_that_were_asked_for_are_used(stack: StackCommand) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    kafka_port, redis_port = (each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    up = stack.json("up", "--kafka-port", str(kafka_port), "--redis-port", str(redis_port))
    assert (up["bootstrap"], up["redis_url"]) == (f"127.0.0.1:{kafka_port}", f"redis://127.0.0.1:{redis_port}/0")
    assert stack.json("up", "--kafka-port", str(kafka_port))["found"] is True
    for option, what, port in (("--kafka-port", "Kafka", kafka_port), ("--redis-port", "Redis", redis_port)):
        code, out, err = stack.call("up", option, "9092")
        assert (code, out) == (2, "")
        assert f"has {what} on port {port}, not 9092" in err


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
