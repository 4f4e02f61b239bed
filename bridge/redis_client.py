"""Clients of Redis, and what is reported about it. A password never stands in what this says."""

from __future__ import annotations

import logging
import re
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS
from redis.exceptions import AuthorizationError
from redis.retry import Retry

from konverse.schemas.errors import RedisUnavailable

from .seldom import Seldom

TIMEOUT_S: Final = 2.0

_USER: Final = re.compile(r"\A((?:\w[\w+.-]*://)?+[^:]*):.*(?=@)", re.DOTALL)
"""Up to the last @: a password that is not percent-encoded may hold any sign. The scheme may have been forgotten."""
_PORT: Final = re.compile(
    r"\A((?:.*@|\w[\w+.-]*://)?+(?:\[[\da-f:.]*\]|[^:/?#]|:\d*(?=[,/?#]|\Z))*+):.*", re.DOTALL | re.IGNORECASE
)
"""From a port that is no number: it may be a password behind which the host was forgotten."""
_OPTION: Final = re.compile(r"(?<=[?&#])[^?&#]+")
_OPEN_OPTION: Final = re.compile(rf"(?:{'|'.join(URL_QUERY_ARGUMENT_PARSERS)})=[\w.-]*")
"""Numbers and switches; any other option may be a password whose name was misspelt."""

_WRONG: Final = re.compile(r"invalid username-password|user is disabled|WRONGPASS", re.IGNORECASE)
"""In the words of Redis; any other error of this kind says that none was given."""
_FORMS: Final = "redis://:PASSWORD@HOST:PORT/0 or redis://USER:PASSWORD@HOST:PORT/0"

REFUSALS: Final = (redis.ResponseError, redis.AuthenticationError, AuthorizationError)
"""Redis has answered, and does not do it: rights, memory, a replica that is read-only."""


def connect_redis(url: str) -> redis.Redis:
    """A client that tries once: a script whose reply was lost is shown again whole, not repeated."""
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
    )


def masked(url: str) -> str:
    """The URL of a server, with or without its scheme, without what may be a password."""
    return _OPTION.sub(_masked_option, _PORT.sub(r"\1:***", _USER.sub(r"\1:***", url, count=1), count=1))


def _masked_option(option: re.Match[str]) -> str:
    if _OPEN_OPTION.fullmatch(option[0]):
        return option[0]
    name, equals, _value = option[0].partition("=")
    return f"{name}=***" if equals else "***"


def check_options(url: str) -> None:
    """Raise ValueError for an option of the URL that the client does not know, or whose value it cannot read."""
    try:
        with redis.Redis.from_url(url) as client:
            client.connection_pool.make_connection()  # it connects later
    except TypeError as error:
        unknown = re.search(r"'[^']+'", str(error))
        raise ValueError(f"has the option {unknown[0] if unknown else '?'}, which redis-py does not know") from None
    except redis.RedisError:  # its text may show the value
        raise ValueError("has an option with a value that redis-py does not know") from None


def words(error: Exception) -> str:
    """What stands in a text about an error of Redis: which password it wants or refuses, or its own words."""
    if not isinstance(error, redis.AuthenticationError):
        return str(error)
    if _WRONG.search(str(error)):
        return (
            "it refuses the user or the password of its address. Correct them there, with special signs "
            "percent-encoded, and see that the user is on (ACL SETUSER)"
        )
    return f"it wants a password, and its address names none. Name it there, as in {_FORMS}"


def reading(error: redis.RedisError, url: str) -> RedisUnavailable:
    """A typed error for people who want to read what Redis shows."""
    if isinstance(error, REFUSALS):
        return RedisUnavailable(
            f"Redis at {masked(url)} answers, and does not let us read: {words(error)}. Work on conversations goes on "
            "without it"
        )
    return RedisUnavailable(
        f"Redis at {masked(url)} does not answer ({error}). Work on conversations goes on without it; start it to see "
        "the view"
    )


class Trouble:
    """Reports that something is not written: each refusal once, an absent server every 30 s, and when it is over."""

    def __init__(self, log: logging.Logger, what: str, done: str) -> None:
        """`what` is not `done`."""
        self._log = log
        self._what = what
        self._done = done
        self._absent = Seldom()
        self._refusals: set[tuple[type, str]] = set()
        """Kinds and first words (MISCONF) of those that were reported since something was written last."""

    def failed(self, error: Exception) -> None:
        """It could not be written."""
        if isinstance(error, REFUSALS):
            cause = type(error), str(error).partition(" ")[0]
            if cause not in self._refusals:
                self._refusals.add(cause)
                self._log.warning(
                    "%s is not %s, Redis refuses it: %s. Work on conversations goes on without it",
                    self._what,
                    self._done,
                    words(error),
                )
        elif self._absent.due():
            self._log.warning("%s is not %s, Redis does not answer as it should: %s", self._what, self._done, error)

    def wrote(self) -> None:
        """It was written."""
        refused = bool(self._refusals)
        self._refusals.clear()
        if self._absent.over() or refused:
            self._log.warning("%s is %s again", self._what, self._done)

    def complete(self) -> None:
        """Redis answers, and all that was ever written is there. Of rights to write this says nothing."""
        if not self._refusals and self._absent.over():
            self._log.warning("Redis answers again; %s is complete there", self._what)
