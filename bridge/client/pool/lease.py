"""The lease of a named pool in Redis names the process that uses the pool, so that a second one is refused early.

The lease is a hint, not a lock. Without Redis, or when the lease was lost, a second process that opens the pool takes
over its conversations. The logs then decide: sends of the first process raise SessionTakenOver.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import Final

import redis

from konverse.bridge.redis.client import connect_redis, words
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import in_background
from konverse.schemas.errors import PoolInUse
from konverse.schemas.limits import POOL_LEASE_MS

log: Final = logging.getLogger("konverse.pool")

RENEW_S: Final = POOL_LEASE_MS / 4 / 1000
"""Interval of renewing a lease."""
LOOK_S: Final = 0.2


class Lease:
    """The lease of one pool. `take` starts a thread that renews it until `close`."""

    def __init__(self, url: str, key: str, pool: str, writer: bytes) -> None:
        """`writer` is the session that sends for the pool."""
        self._client = connect_redis(url)
        self._key = key
        self._pool = pool
        self.holder = f"process {os.getpid()} on {_here()}, session {writer.hex()}"
        self._script = self._client.register_script(
            files("konverse.bridge").joinpath("scripts/lease.lua").read_text("utf-8")
        )
        self._trouble = LogThrottle()
        self._closed = threading.Event()
        self._renewal: threading.Thread | None = None

    def take(self) -> None:
        """Take the lease and hold it until `close`. Waits until an earlier lease, if it is not renewed, has expired.

        When Redis does not answer, the pool is used without a lease. Raises PoolInUse when another process renews the
        lease, which takes some seconds to notice.
        """
        lasting_ms, deadline = POOL_LEASE_MS, time.monotonic() + 2 * POOL_LEASE_MS / 1000
        while (held := self._call(self.holder, POOL_LEASE_MS)) not in {None, self.holder}:
            assert held is not None, "another process holds it"
            left_ms = self._left_ms(lasting_ms)
            if left_ms > lasting_ms or time.monotonic() > deadline:  # it was renewed, or never expires
                raise PoolInUse(
                    f"pool {self._pool!r} is used by {held}. Close it there, or give another name; its lease expires "
                    f"{POOL_LEASE_MS // 1000} s after that process has ended"
                )
            lasting_ms = left_ms
            if _is_gone(held):
                self._call(held, 0)
            else:
                time.sleep(LOOK_S)
        self._renewal = in_background("konverse-pool-lease", self._keep)

    def _keep(self) -> None:
        """Renew the lease in the background. If another process holds it, leave it there: the logs decide."""
        while not self._closed.wait(RENEW_S):
            held = self._call(self.holder, POOL_LEASE_MS)
            if held not in {None, self.holder} and self._trouble.due("held"):
                log.warning("pool %r is also used by %s; one of the two processes will take it over", self._pool, held)

    def close(self) -> None:
        """Give the lease back. Safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._renewal is not None:
            self._renewal.join()
        self._call(self.holder, 0)
        self._client.close()

    def _call(self, holder: str, lasting_ms: int) -> str | None:
        """Take or renew the lease, or give it back (0 ms). Returns the holder afterwards; None also without Redis."""
        try:
            held = self._script(keys=[self._key], args=[holder, lasting_ms])
        except (redis.RedisError, ValueError, TypeError) as error:
            if self._trouble.due():
                log.warning(
                    "the lease of pool %r cannot be written to Redis, and the pool continues without the lease: %s",
                    self._pool,
                    words(error),
                )
            return None
        self._trouble.over()
        return held.decode("utf-8", "replace") if isinstance(held, bytes) else None

    def _left_ms(self, known_ms: int) -> int:
        """Milliseconds until the lease expires; `known_ms`, the last answer, when Redis gives none."""
        try:
            return int(self._client.pttl(self._key))
        except (redis.RedisError, ValueError, TypeError):
            return known_ms


def _here() -> str:
    """Host name, boot id and pid namespace: containers with one host name may have different pid namespaces."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        numbers = Path("/proc/self/ns/pid").readlink().name
    except OSError:  # not Linux, so there are no pid namespaces
        return socket.gethostname()
    return f"{socket.gethostname()} ({boot[:8]} {numbers})"


def _is_gone(holder: str) -> bool:
    """Whether a holder was a process of this machine that no longer exists."""
    found = re.match(r"process (\d+) on (.+), session [0-9a-f]+$", holder)
    if found is None or found[2] != _here():
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
