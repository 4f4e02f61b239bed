"""Redis clients, and the texts of log lines and errors about Redis. No text contains a password."""

from __future__ import annotations

import logging
import re
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import AuthorizationError
from redis.retry import Retry

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.redis_urls import masked
from konverse.schemas.errors import RedisUnavailable

TIMEOUT_S: Final = 2.0
_WRONG: Final = re.compile(r"invalid username-password|user is disabled|WRONGPASS", re.IGNORECASE)
"""Redis refused the given user or password. Any other AuthenticationError means that none was given."""
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*", re.DOTALL | re.IGNORECASE)
"""Redis's list of the arguments of a command that it does not know. Those of HELLO contain the password."""
_FORMS: Final = "redis://:PASSWORD@HOST:PORT/0 or redis://USER:PASSWORD@HOST:PORT/0"
REFUSALS: Final = (redis.ResponseError, redis.AuthenticationError, AuthorizationError)
"""Redis answered and refused the command: missing rights, no memory, a read-only replica."""


def connect_redis(url: str) -> redis.Redis:
    """A client that never retries. When the reply to a script is lost, the view is rewritten whole instead.

    It speaks RESP2 unless the URL has another `protocol`: RESP3 begins with HELLO, which some servers and proxies lack.
    """
    given = parse_url(url)  # type: ignore[no-untyped-call]
    # AUTH with a password alone fails at a server that needs none; AUTH with a user does not
    user = {"username": "default"} if given.get("password") and not given.get("username") else {}
    return redis.Redis.from_url(
        url, protocol=2, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0), **user
    )


def words(error: Exception) -> str:
    """Text for an error of Redis: the remedy for authentication, else Redis's own message without its arguments."""
    if not isinstance(error, redis.AuthenticationError):
        return _ARGUMENTS.sub("", str(error))
    if _WRONG.search(str(error)):
        return (
            "it refuses the user or the password in its address. Correct them there, with special characters "
            "percent-encoded, and make sure that the user is enabled (ACL SETUSER)"
        )
    return f"it requires a password, and its address has none. Add it there, as in {_FORMS}"


def refusal(error: redis.RedisError) -> str:
    """Why the view in Redis is not used, as part of a text: Redis refuses to be read, or does not answer."""
    if isinstance(error, REFUSALS):
        return f"Redis answers but refuses to be read: {words(error)}"
    return f"Redis does not answer ({words(error)})"


def reading(error: redis.RedisError, url: str) -> RedisUnavailable:
    """The error to raise when the view cannot be read."""
    if isinstance(error, REFUSALS):
        return RedisUnavailable(
            f"Redis at {masked(url)} answers but refuses to be read: {words(error)}. Conversations continue without it"
        )
    return RedisUnavailable(
        f"Redis at {masked(url)} does not answer ({words(error)}). Conversations continue without it; start it to see "
        "the view"
    )


class WriteFailures:
    """Logs failed writes: each kind of refusal once, an absent server every 30 s, and the recovery."""

    def __init__(self, log: logging.Logger, what: str, done: str) -> None:
        """The log lines read "<what> is not <done>", for instance "the view is not written"."""
        self._log = log
        self._what = what
        self._done = done
        self._absent = LogThrottle()
        self._refusals: set[tuple[type, str]] = set()
        """Refusals logged since the last successful write: error class, first word of its message (MISCONF …)."""

    def failed(self, error: Exception) -> None:
        """Log a failed write, throttled."""
        if isinstance(error, REFUSALS):
            cause = type(error), str(error).partition(" ")[0]
            if cause not in self._refusals:
                self._refusals.add(cause)
                self._log.warning(
                    "%s is not %s, because Redis refuses it: %s. Conversations continue without it",
                    self._what,
                    self._done,
                    words(error),
                )
        elif self._absent.due():
            self._log.warning(
                "%s is not %s, because Redis gives no valid answer: %s", self._what, self._done, words(error)
            )

    def wrote(self) -> None:
        """Note a successful write, and log it if a failure was logged before."""
        refused = bool(self._refusals)
        self._refusals.clear()
        if self._absent.over() or refused:
            self._log.warning("%s is %s again", self._what, self._done)

    def complete(self) -> None:
        """Note that Redis answers and holds everything written before. Writes that it refused may still be refused."""
        if not self._refusals and self._absent.over():
            self._log.warning("Redis answers again; %s is complete there", self._what)
