"""Reports about Redis, and their frequency."""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from redis import exceptions

from konverse.bridge.redis.client import WriteFailures, connect_redis, reading, refusal
from konverse.bridge.redis.view import ViewStore, forget_view
from konverse.bridge.runtime.redis_urls import masked
from konverse.bridge.views.partitions import StateReader
from konverse.schemas.catalog.objects import Queue

ABSENT = redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused.")
REFUSALS = [
    exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_refusal_is_reported_once_and_its_end_once(
    refusal: redis.RedisError, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = WriteFailures(logging.getLogger("konverse.view"), "the view", "written")
    for _ in range(3):
        trouble.failed(refusal)
    assert len(caplog.messages) == 1
    assert f"the view is not written, because Redis refuses it: {refusal}" in caplog.messages[0]
    trouble.wrote()
    trouble.wrote()
    assert caplog.messages[1:] == ["the view is written again"]


def test_each_cause_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    trouble = WriteFailures(logging.getLogger("konverse.view"), "the view", "written")
    for error in (ABSENT, REFUSALS[0], ABSENT, REFUSALS[1], REFUSALS[0]):
        trouble.failed(error)
    said = [[str(error) in message for error in (ABSENT, *REFUSALS[:2])].index(True) for message in caplog.messages]
    assert said == [0, 1, 2]


def test_an_absent_server_that_comes_back_with_all_that_was_written_is_not_claimed_to_be_written_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble = WriteFailures(logging.getLogger("konverse.view"), "the view", "written")
    trouble.failed(ABSENT)
    trouble.complete()
    trouble.complete()
    assert caplog.messages[1:] == ["Redis answers again; the view is complete there"]
    trouble.failed(REFUSALS[0])
    trouble.complete()
    assert len(caplog.messages) == 3


def test_a_write_without_earlier_failures_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    WriteFailures(logging.getLogger("konverse.view"), "the view", "written").wrote()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://secret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:pw@host", "redis://:***@host"),
        ("rediss://user:pw@host/0?a=b", "rediss://user:***@host/0?a=***"),
        ("redis://user:p@w/x:y@host/0", "redis://user:***@host/0"),
        (
            "redis://host/0?db=1&socket_timeout=abc&client_name=pw",
            "redis://host/0?db=1&socket_timeout=abc&client_name=***",
        ),
        ("redis://host/0?db=1;password=pw", "redis://host/0?db=***"),
        ("redis://host/0?pw", "redis://host/0?***"),
        ("redis://host/0#password=pw", "redis://host/0#password=***"),
        ("redis://host:pw/0", "redis://host:***"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis://:p@[::1]:w/0", "redis://:***@[::1]:***"),
        (":pw@host:6379", ":***@host:6379"),
        ("user:pw@host:9092", "user:***@host:9092"),
        ("host:9092", "host:9092"),
        ("kafka://one:9092,two:pw", "kafka://one:9092,two:***"),
        ("kafka://one:9092,user:pw@two:9092", "kafka://one:***@two:9092"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix://:pw@/run/redis.sock?db=1&password=pw", "unix://:***@/run/redis.sock?db=1&password=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert shown in str(reading(redis.ConnectionError("gone"), url))


# Redis's text behind NOAUTH and WRONGPASS; redis-py turns it into this error.
MISSING = "HELLO must be called with the client already authenticated"
OLDER = "Authentication required."
WRONG = "invalid username-password pair or user is disabled."


@pytest.mark.parametrize("said", [MISSING, OLDER])
def test_a_password_that_is_missing_is_asked_for(said: str, caplog: pytest.LogCaptureFixture) -> None:
    error = redis.AuthenticationError(said)
    text = str(reading(error, "redis://127.0.0.1:6379/0"))
    assert text.startswith("Redis at redis://127.0.0.1:6379/0 answers but refuses to be read: it requires a password")
    assert "redis://USER:PASSWORD@HOST:PORT/0" in text
    assert "start it" not in text
    WriteFailures(logging.getLogger("konverse.view"), "the view", "written").failed(error)
    (line,) = caplog.messages
    assert line.startswith("the view is not written, because Redis refuses it: it requires a password")


def test_a_password_that_is_wrong_is_refused_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    error = redis.AuthenticationError(WRONG)
    text = str(reading(error, "redis://:wr0ng@127.0.0.1:6379/0"))
    assert text.startswith("Redis at redis://:***@127.0.0.1:6379/0 answers but refuses to be read: it refuses the user")
    assert "percent-encoded" in text
    assert "wr0ng" not in text
    assert "start it" not in text
    WriteFailures(logging.getLogger("konverse.view"), "the view", "written").failed(error)
    (line,) = caplog.messages
    assert line.startswith("the view is not written, because Redis refuses it: it refuses the user or the password")


def test_a_server_that_is_away_is_to_be_started() -> None:
    text = str(reading(redis.ConnectionError("Error 111 connecting to 127.0.0.1:6379"), "redis://127.0.0.1:6379/0"))
    assert "does not answer" in text
    assert "start it" in text


class Server(socketserver.ThreadingTCPServer):
    """A Redis without HELLO; `refuse` may replace its answer to a command. It remembers all commands."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Commands)
        self.commands: list[list[bytes]] = []
        self.refuse: dict[bytes, bytes] = {}

    def url(self, options: str = "") -> str:
        return f"redis://:s3cret@127.0.0.1:{self.server_address[1]}/0{options}"

    def answer(self, command: list[bytes]) -> bytes:
        self.commands.append(command)
        if command[0] in self.refuse:
            return b"-" + self.refuse[command[0]] + b"\r\n"
        if command[0] == b"HELLO":
            said = b"".join(b" '%s'" % argument for argument in command[1:])
            return b"-ERR unknown command 'HELLO', with args beginning with:" + said + b"\r\n"
        return b":0\r\n" if command[0] == b"UNLINK" else b"*0\r\n" if command[0] == b"HGETALL" else b"+OK\r\n"


class Commands(socketserver.StreamRequestHandler):
    """Reads commands in the form of RESP2."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            command = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                command.append(self.rfile.read(size + 2)[:-2])
            self.wfile.write(cast("Server", self.server).answer(command))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


QUEUE = Queue("Orders", "konverse.sales.Orders", "queue", 1, bytes(16), bytes(16), bytes(16))


def test_a_redis_without_hello_is_used(server: Server) -> None:
    with closing(connect_redis(server.url())) as client:
        ViewStore(client, QUEUE).clear()
    assert server.commands[0] == [b"AUTH", b"default", b"s3cret"], "a server that needs no password refuses it alone"
    assert b"UNLINK" in {command[0] for command in server.commands}


def _shown(url: str) -> str:
    kafka: Any = SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=1.0))
    catalog: Any = SimpleNamespace(version=0)
    with closing(StateReader(kafka, catalog, cast("Any", None), url)) as looking:
        return str(looking.shown(QUEUE, 0))


def _raised(url: str) -> Exception:
    with closing(connect_redis(url)) as client, pytest.raises(redis.RedisError) as caught:
        client.ping()
    return caught.value


def _forgotten(url: str) -> str:
    forget_view(url, QUEUE)
    return ""


def _written(url: str) -> str:
    WriteFailures(logging.getLogger("konverse.view"), "the view", "written").failed(_raised(url))
    return ""


def _read(url: str) -> str:
    return str(reading(cast("redis.RedisError", _raised(url)), url))


@pytest.mark.parametrize("use", [_shown, _forgotten, _written, _read])
def test_a_server_that_repeats_the_password_does_not_get_it_shown(
    use: Callable[[str], str], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    text = use(server.url("?protocol=3")) + caplog.text
    assert "unknown command 'HELLO'" in text
    assert "s3cret" not in text


@pytest.mark.parametrize("said", [b"NOPERM this user has no permissions", b"WRONGPASS invalid username-password pair"])
@pytest.mark.parametrize("use", [_shown, _forgotten])
def test_a_redis_that_refuses_is_not_called_absent(
    use: Callable[[str], str], said: bytes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse = dict.fromkeys((b"AUTH", b"MULTI", b"UNLINK"), said)
    text = use(server.url()) + caplog.text
    assert "does not answer" not in text
    assert ("percent-encoded" in text) == said.startswith(b"WRONGPASS")


def test_a_redis_that_is_away_is_called_absent() -> None:
    assert refusal(redis.ConnectionError("Error 111")) == "Redis does not answer (Error 111)"
