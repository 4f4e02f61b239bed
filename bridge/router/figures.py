"""The figures of a router in Redis, for people: each process of the router writes its own once a second.

Nothing depends on them. While Redis is unreachable or empty, routing goes on; the figures are written again later.

The key is a hash, `konverse:{<catalog topic>}:<database>:router:<service>`:
    <process>     JSON: `at_ms`, time of the write; counts as in `Routed`; `last_errors`, the latest first
The key expires a minute after the last write of any process. A process that starts removes the oldest entries if there
are too many.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import redis

from konverse.bridge.redis.client import connect_redis, reading, words
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.threads import repeating
from konverse.routing.routed import Failure, Routed
from konverse.schemas.catalog.objects import Service
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import catalog_topic, router_key
from konverse.schemas.limits import ROUTER_PROCESS_ENTRIES_MAX

if TYPE_CHECKING:
    from konverse.bridge.reader.activation import Host

log: Final = logging.getLogger("konverse.router")

PUBLISH_EVERY_S: Final = 1.0
FRESH_MS: Final = 5_000
"""A process whose last write is older than this counts as ended."""

_GARBAGE: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Errors of reading an entry that another program has written."""

_NO_ANSWER: Final = (redis.RedisError, ValueError, TypeError)
"""Errors of a Redis that does not answer, refuses, or gives an answer that is none."""

KEPT_S: Final = 60
ERRORS_SHOWN: Final = 5


class Routes(Protocol):
    """The parts of a `RoutingService` that are published."""

    service: str
    shown_as: str
    """A random name that distinguishes the router from others of the same process."""

    @property
    def routed(self) -> Routed:
        """Counts of the router's work in this process."""
        ...

    @property
    def last_errors(self) -> list[Failure]:
        """Failures, the latest first."""
        ...


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals over all processes of a router since each was started."""

    at_ms: int
    processes: int
    """Number of running processes."""
    routed: Routed
    last_errors: tuple[Failure, ...]
    """The latest first."""


@contextmanager
def publishing(broker: Host, router: Routes) -> Iterator[None]:
    """Write the router's figures while the block runs, and once after it. Without Redis, do nothing."""
    if not broker.settings.redis:
        yield
        return
    client = connect_redis(broker.settings.redis)
    key = _key(broker, router.service)
    process = f"{socket.gethostname()}:{os.getpid()}:{router.shown_as}"
    trouble = LogThrottle()

    def write() -> None:
        try:
            with client.pipeline(transaction=False) as pipeline:
                pipeline.hset(key, process, _packed(router, redis_time_ms(client)))
                pipeline.expire(key, KEPT_S)
                pipeline.execute()
        except _NO_ANSWER as error:
            if trouble.due():
                log.warning("the figures of router %r cannot be written to Redis: %s", router.service, words(error))
        else:
            trouble.over()

    _make_room(client, key)
    try:
        with repeating("konverse-router-figures", PUBLISH_EVERY_S, write):
            yield
    finally:
        write()
        client.close()


def _make_room(client: redis.Redis, key: str) -> None:
    """Remove the oldest entries once there are twice as many as `summed` reads."""
    with suppress(*_NO_ANSWER):
        if client.hlen(key) >= 2 * ROUTER_PROCESS_ENTRIES_MAX:
            found = cast("Mapping[bytes, bytes]", client.hgetall(key))
            written = sorted((_written_ms(value), process) for process, value in found.items())
            client.hdel(key, *(process for _, process in written[:-ROUTER_PROCESS_ENTRIES_MAX]))


def _written_ms(value: bytes) -> int:
    with suppress(*_GARBAGE):
        return _unpacked(value)[0]
    return 0


def read_figures(broker: Host, service: str) -> Figures:
    """The totals of a router, read from Redis.

    Raises InvalidSettings when no Redis was named, ServiceNotFound, and RedisUnavailable when Redis does not answer.
    """
    if not broker.settings.redis:
        raise InvalidSettings(
            "no Redis is configured, and routers write their figures to Redis: connect routers and this command with "
            "--redis (KONVERSE_REDIS); in the process of a router, read `routed` and `last_errors`"
        )
    broker.catalog.get(Service, service)
    client = connect_redis(broker.settings.redis)
    try:
        at_ms, found = redis_time_ms(client), _values(client, _key(broker, service))
    except redis.RedisError as error:
        raise reading(error, broker.settings.redis) from None
    finally:
        client.close()
    return summed(found, at_ms)


def _values(client: redis.Redis, key: str) -> list[bytes]:
    try:
        found: Mapping[bytes, bytes] = client.hgetall(key)  # type: ignore[assignment]  # a sync client
    except redis.ResponseError:
        return []  # the key is not a hash
    return list(found.values())


def summed(values: list[bytes], at_ms: int) -> Figures:
    """The sum over the entries that were written last, up to ROUTER_PROCESS_ENTRIES_MAX; garbage is left out."""
    routed, processes, failures = Routed(), 0, list[Failure]()
    known = []
    for value in values:
        with suppress(*_GARBAGE):
            known.append(_unpacked(value))
    known.sort(key=itemgetter(0), reverse=True)
    for written_ms, counts, errors in known[:ROUTER_PROCESS_ENTRIES_MAX]:
        routed = routed.plus(counts)
        failures += errors
        processes += at_ms - written_ms < FRESH_MS
    failures.sort(key=lambda failure: failure.at, reverse=True)
    return Figures(at_ms, processes, routed, tuple(failures[:ERRORS_SHOWN]))


def _packed(router: Routes, at_ms: int) -> str:
    errors = [*map(plain_failure, router.last_errors[:ERRORS_SHOWN])]
    return json.dumps({"at_ms": at_ms, **asdict(router.routed), "last_errors": errors}, ensure_ascii=False)


def plain_failure(failure: Failure) -> dict[str, Any]:
    """A failure in the types of JSON."""
    return {**failure._asdict(), "at": failure.at.isoformat(), "conversation": str(failure.conversation)}


def _unpacked(value: bytes) -> tuple[int, Routed, list[Failure]]:
    found: dict[str, Any] = json.loads(value)
    counts = {one.name: int(found[one.name]) for one in fields(Routed) if one.name != "targets"}
    targets = {str(service): int(count) for service, count in found["targets"].items()}
    errors = [
        Failure(
            datetime.fromisoformat(one["at"]).astimezone(UTC),
            uuid.UUID(one["conversation"]),
            str(one["message_id"]),
            str(one["message_type"]),
            str(one["text"]),
        )
        for one in found["last_errors"]
    ]
    return int(found["at_ms"]), Routed(**counts, targets=targets), errors


def redis_time_ms(client: redis.Redis) -> int:
    """The clock of Redis, in milliseconds: the clocks of the processes' machines may differ. Raises RedisError."""
    seconds, microseconds = client.time()
    return seconds * 1_000 + microseconds // 1_000


def _key(broker: Host, service: str) -> str:
    return router_key(catalog_topic(broker.settings.instance), broker.database, service)
