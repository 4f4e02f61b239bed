"""Clients of Redis, and what is reported about it. A password never stands in what this says."""

from __future__ import annotations

import logging
import re
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthorizationError
from redis.retry import Retry

from konverse.bridge.runtime.log_throttle import Seldom
from konverse.bridge.runtime.redis_urls import masked
from konverse.schemas.errors import RedisUnavailable

TIMEOUT_S: Final = 2.0
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
