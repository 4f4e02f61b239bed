"""The lease of a named pool in Redis: it names the process that uses the pool, so that a second one is told at once.

It is a hint and no lock. Where there is no Redis, or the lease was lost, whoever opens the pool takes its conversations
over, and the logs say whose they are: the former holder's sends raise SessionTakenOver.
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

from konverse.bridge.redis.client import connect_redis
from konverse.bridge.runtime.log_throttle import Seldom
from konverse.bridge.runtime.threads import in_background
from konverse.schemas.errors import PoolInUse
from konverse.schemas.limits import POOL_LEASE_MS

log: Final = logging.getLogger("konverse.pool")

RENEW_S: Final = POOL_LEASE_MS / 4 / 1000
"""So often a lease is renewed."""
LOOK_S: Final = 0.2


class Lease:
    """Of one pool. One thread takes it; from then on it is renewed by one of its own until it is closed."""

    def __init__(self, url: str, key: str, pool: str, writer: bytes) -> None:
        """`writer` is the session that sends for the pool."""
        self._client = connect_redis(url)
        self._key = key
        self._pool = pool
        self.holder = f"process {os.getpid()} on {_here()}, session {writer.hex()}"
        self._script = self._client.register_script(
            files("konverse.bridge").joinpath("scripts/lease.lua").read_text("utf-8")
        )
        self._trouble = Seldom()
        self._closed = threading.Event()
        self._renewing: threading.Thread | None = None

    def take(self) -> None:
        """Hold it until `close`, as soon as who held it is gone. Redis need not answer.

        Raises PoolInUse when another process renews it, which is seen within some seconds.
        """
        lasting_ms, deadline = POOL_LEASE_MS, time.monotonic() + 2 * POOL_LEASE_MS / 1000
        while (held := self._call(self.holder, POOL_LEASE_MS)) not in {None, self.holder}:
            assert held is not None, "somebody holds it"
            left_ms = self._left_ms()
            if left_ms > lasting_ms or time.monotonic() > deadline:  # renewed, or one that is never over
                raise PoolInUse(
                    f"pool {self._pool!r} is used by {held}. Close it there, or give another name; its lease is over "
                    f"{POOL_LEASE_MS // 1000} s after that process has gone"
                )
            lasting_ms = left_ms
            if _is_gone(held):
                self._call(held, 0)
            else:
                time.sleep(LOOK_S)
        self._renewing = in_background("konverse-pool-lease", self._keep)

    def _keep(self) -> None:
        """Renew it, however long the pool waits for Kafka; who has it meanwhile keeps it, and the logs decide."""
        while not self._closed.wait(RENEW_S):
            held = self._call(self.holder, POOL_LEASE_MS)
            if held not in {None, self.holder} and self._trouble.due("held"):
                log.warning("pool %r is also used by %s: one of the two takes it over", self._pool, held)

    def close(self) -> None:
        """Give it back. Safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._renewing is not None:
            self._renewing.join()
        self._call(self.holder, 0)
        self._client.close()

    def _call(self, holder: str, lasting_ms: int) -> str | None:
        """Who holds it then; None also when Redis does not say."""
        try:
            held = self._script(keys=[self._key], args=[holder, lasting_ms])
        except (redis.RedisError, ValueError, TypeError) as error:
            if self._trouble.due():
                log.warning("the lease of pool %r cannot be written, which stops nothing: %s", self._pool, error)
            return None
        self._trouble.over()
        return held.decode("utf-8", "replace") if isinstance(held, bytes) else None

    def _left_ms(self) -> int:
        try:
            return int(self._client.pttl(self._key))
        except (redis.RedisError, ValueError, TypeError):
            return 0


def _here() -> str:
    """This machine, with where its processes have their numbers from: containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        numbers = Path("/proc/self/ns/pid").readlink().name
    except OSError:  # no Linux: then there are no such containers
        return socket.gethostname()
    return f"{socket.gethostname()} ({boot[:8]} {numbers})"


def _is_gone(holder: str) -> bool:
    """Whether a holder was a process of this machine, and is none any more."""
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
