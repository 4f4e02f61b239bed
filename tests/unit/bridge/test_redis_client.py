"""Reports about Redis, and their frequency."""

from __future__ import annotations

import logging

import pytest
import redis
from redis import exceptions

from konverse.bridge.redis.client import WriteFailures, reading
from konverse.bridge.runtime.redis_urls import masked

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
