"""The view of a queue in Redis: written by owners through one fenced script, read by people (protocol.md section 8).

No decision depends on it. When Redis is unreachable, empty or holds garbage, work continues; the owner later rewrites
the view.

Keys of a partition share the hash tag `{<data topic>.<subscription>/<partition>}`:
    konverse:{…}:header      incarnation, highest CLAIM offset, journal offset, owner, unread messages, open endpoints
    konverse:{…}:e:<bucket>  conversation and role -> journal offset and packed endpoint (`dialog.owner.view`)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Final

import redis

from konverse.bridge.runtime.threads import in_background
from konverse.dialog.owner.view import Show, ViewRow, bucket_of, unpack
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import view_key
from konverse.schemas.limits import VIEW_BUCKETS

from .client import WriteFailures, connect_redis, words

Rows = list[tuple[bytes, bytes]]

log: Final = logging.getLogger("konverse.view")

ROWS_PER_CALL: Final = 500
SHOWS_WAITING_MAX: Final = 1_000
CHECK_EVERY_S: Final = 1.0
COUNT_EVERY_S: Final = 30.0
"""Interval of counting rows, to find rows that Redis evicted or others wrote. A count costs some milliseconds."""


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a partition's view."""

    journal_offset: int
    claim_offset: int
    owner: str
    unread: int
    open: int
    complete: bool


def _header(values: Any) -> Header | None:
    try:
        return Header(
            int(values[b"journal"]),
            int(values[b"claim"]),
            values[b"owner"].hex(),
            int(values[b"unread"]),
            int(values[b"open"]),
            values[b"complete"] == b"1",
        )
    except (KeyError, TypeError, ValueError):
        return None


class ViewStore:
    """The view of one queue."""

    def __init__(self, client: redis.Redis, queue: Queue) -> None:
        self._client = client
        self._queue = queue
        self._script = client.register_script(files("konverse.bridge").joinpath("scripts/show.lua").read_text("utf-8"))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def show(self, partition: int, show: Show) -> bool:
        """Write an update; False when the view must be written whole first. Raises redis.RedisError."""
        call = partial(self._call, partition, show)
        if not show.whole:
            return call("some", show.rows, show.gone) >= 0
        if call("first", [], []) == 0:
            return True
        for start in range(0, len(show.rows), ROWS_PER_CALL):
            call("more", show.rows[start : start + ROWS_PER_CALL], [])
        return call("last", [], []) >= 0

    def present(self, partition: int, claim_offset: int) -> bool:
        """Whether the header exists and is no older than this claim. A past owner may have written to an empty view."""
        header = self.header(partition)
        return header is not None and header.claim_offset >= claim_offset

    def missing(self, partition: int) -> int | None:
        """None when the view has as many rows as its header counts; else the header's journal offset (-1: no header).

        The offset lets the caller tell a view that is being written from one that stays incomplete.
        """
        header = self.header(partition)
        if header is None:
            return -1
        counts = self._read([("HLEN", key) for key in self._buckets(partition)])
        return None if None not in counts and sum(counts) == header.open else header.journal_offset

    def header(self, partition: int) -> Header | None:
        """The header; None when it is missing, garbage or of an earlier queue of the same name.

        None does not mean that the partition is empty.
        """
        (values,) = self._read([("HGETALL", self._key(partition, "header"))])
        return _header(values) if self._is_ours(values) else None

    def whole(self, partition: int) -> tuple[Header, list[ViewRow]] | None:
        """Header and rows, read atomically; None when rows are missing or the view is of an earlier incarnation."""
        buckets = [("HGETALL", key) for key in self._buckets(partition)]
        values, *found = self._read([("HGETALL", self._key(partition, "header")), *buckets], together=True)
        header = _header(values)
        if header is None or not header.complete or not self._is_ours(values):
            return None
        rows = self._rows(partition, found)
        return (header, rows) if len(rows) == header.open else None

    def rows(self, partition: int) -> list[ViewRow]:
        """Every endpoint in the view; malformed rows are left out. None of them is of an earlier queue of that name."""
        if self.header(partition) is None:
            return []
        buckets = self._read([("HGETALL", key) for key in self._buckets(partition)])
        return self._rows(partition, buckets)

    def find(self, conversation: bytes) -> list[tuple[int, ViewRow]]:
        """The endpoints of a conversation that live in this queue, each with its partition."""
        fields = (conversation + b"I", conversation + b"T")
        headers = self._read([("HGETALL", self._key(number, "header")) for number in range(self._queue.partitions)])
        ours = [number for number, values in enumerate(headers) if self._is_ours(values)]
        places = [(partition, field) for partition in ours for field in fields]
        values = self._read([("HGET", self._bucket(partition, bucket_of(field)), field) for partition, field in places])
        return [
            (partition, row)
            for (partition, field), value in zip(places, values, strict=True)
            if value is not None and (row := self._row(partition, field, value)) is not None
        ]

    def _is_ours(self, header: Any) -> bool:
        return isinstance(header, dict) and header.get(b"incarnation") == self._queue.incarnation

    def clear(self) -> None:
        """Delete the view of all partitions."""
        for partition in range(self._queue.partitions):
            keys = self._buckets(partition)
            self._client.unlink(self._key(partition, "header"), *keys)

    def _read(self, commands: Sequence[tuple[str | bytes, ...]], *, together: bool = False) -> list[Any]:
        """The replies, from one round trip; None also for a key of another Redis type.

        With `together` the commands run atomically.
        """
        pipeline = self._client.pipeline(transaction=together)
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        replies = pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
                raise reply
        return [None if isinstance(reply, Exception) else reply for reply in replies]

    def _rows(self, partition: int, buckets: list[Any]) -> list[ViewRow]:
        shown = [self._row(partition, field, value) for bucket in buckets for field, value in (bucket or {}).items()]
        return [row for row in shown if row is not None]

    def _row(self, partition: int, field: bytes, value: bytes) -> ViewRow | None:
        try:
            return unpack(field, value)
        except MalformedRecord:
            log.warning("the view of %s/%d holds a malformed row, which is not shown", self._queue.name, partition)
            return None

    def _call(
        self,
        partition: int,
        show: Show,
        how: str,
        rows: list[tuple[bytes, bytes]],
        gone: list[bytes],
    ) -> int:
        places: dict[int, int] = {}
        body: list[Any] = []
        for field, value in rows:
            body += (self._place(places, field), field, value)
        for field in gone:
            body += (self._place(places, field), field)
        buckets = range(VIEW_BUCKETS) if how == "first" else places
        keys = [self._key(partition, "header"), *(self._bucket(partition, number) for number in buckets)]
        place = (self._queue.incarnation, show.claim_offset, show.journal_offset, show.owner)
        return int(self._script(keys=keys, args=[*place, show.unread, show.open, how, len(rows), *body]))

    @staticmethod
    def _place(places: dict[int, int], field: bytes) -> int:
        return places.setdefault(bucket_of(field), len(places) + 2)

    def _buckets(self, partition: int) -> list[str]:
        """The keys of all buckets."""
        return [self._bucket(partition, number) for number in range(VIEW_BUCKETS)]

    def _bucket(self, partition: int, number: int) -> str:
        return self._key(partition, f"e:{number}")

    def _key(self, partition: int, suffix: str) -> str:
        return view_key(self._queue.topic, self._queue.subscription, partition, suffix)


class ViewWriter:
    """Writes the view of a reader's partitions in a separate thread, so that no commit ever waits for Redis."""

    def __init__(self, url: str, queue: Queue) -> None:
        self._store = ViewStore(connect_redis(url), queue)
        self._waiting: deque[tuple[int, Show]] = deque(maxlen=SHOWS_WAITING_MAX)
        self._wake = threading.Condition()
        self._closed = False
        self._writing = False
        self._watched: dict[int, int] = {}
        """Partition -> claim offset of its last update."""
        self._count_at = 0.0
        self._suspects: dict[int, int] = {}
        """Partition whose rows did not match its header at the last count -> the header's journal offset then."""
        self._unshown: set[int] = set()
        """Partitions with updates that were dropped while Redis did not answer. Once it answers, they go to `lost`."""
        self.lost: deque[int] = deque()
        """Partitions whose view must be written whole. The reader takes them from here."""
        self._trouble = WriteFailures(log, f"the view of queue {queue.name!r}", "written")
        self._thread = in_background("konverse-view", self._run)

    def show(self, partition: int, show: Show) -> None:
        """Queue an update for writing. If the queue is full, the oldest one is dropped and its partition is `lost`."""
        with self._wake:
            self._watched[partition] = show.claim_offset
            if self._unshown:
                self._unshown.add(partition)
                return
            if len(self._waiting) == SHOWS_WAITING_MAX:
                self.lost.append(self._waiting[0][0])
            self._waiting.append((partition, show))
            self._wake.notify()

    def forget(self, partition: int) -> None:
        """Stop watching a partition that this process no longer owns."""
        self._watched.pop(partition, None)

    def close(self, timeout_s: float = 5.0) -> None:
        """Have the thread write the queued updates and end; wait for it up to `timeout_s`."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with closing(self._store):
            while self._write_next():
                pass

    def _write_next(self) -> bool:
        """Wait for an update, or for the time of the next check. Returns False when this writer is closed."""
        with self._wake:
            if not self._waiting and not self._closed:
                self._wake.wait(CHECK_EVERY_S)
            if self._closed and not self._waiting:
                return False
            job = self._waiting.popleft() if self._waiting else None
        try:
            if job is None:
                self._find_missing()
            elif self._store.show(*job):
                self._trouble.wrote()
            else:
                self.lost.append(job[0])
            if time.monotonic() >= self._count_at:
                self._count()
        except (redis.RedisError, ValueError, TypeError) as error:
            self._trouble.failed(error)
            self._drop_queued(job)
        return True

    def _find_missing(self) -> None:
        """Find partitions whose view is missing or whose updates were dropped."""
        watched = dict(self._watched)
        absent = {partition for partition, claim in watched.items() if not self._store.present(partition, claim)}
        with self._wake:
            missing = (absent | self._unshown) & self._watched.keys()
            self.lost.extend(missing)
            self._unshown.clear()
        if watched and not missing:
            self._trouble.complete()

    def _count(self) -> None:
        """Find views with the wrong number of rows.

        A view that is being written may have a wrong number once. It is lost when two counts in a row find a wrong
        number at the same journal offset.
        """
        self._count_at = time.monotonic() + COUNT_EVERY_S
        found = {partition: self._store.missing(partition) for partition in list(self._watched)}
        suspects = {partition: offset for partition, offset in found.items() if offset is not None}
        self.lost.extend(partition for partition, offset in suspects.items() if self._suspects.get(partition) == offset)
        self._suspects = suspects

    def _drop_queued(self, job: tuple[int, Show] | None) -> None:
        """Drop the queued updates, and accept none until Redis answers again, so that the reader is not slowed down."""
        with self._wake:
            self._unshown |= {partition for partition, _ in self._waiting} | ({job[0]} if job else set())
            self._waiting.clear()
            if not self._closed:
                self._wake.wait(CHECK_EVERY_S)


def forget_view(url: str, queue: Queue) -> None:
    """Delete the view of a dropped queue; when Redis does not answer or refuses, log that the view stays."""
    client = connect_redis(url)
    try:
        ViewStore(client, queue).clear()
    except redis.RedisError as error:
        log.warning("the view of queue %r could not be deleted from Redis: %s", queue.name, words(error))
    finally:
        client.close()
