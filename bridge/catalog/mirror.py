"""A copy of a database's catalog in Redis, for people. Processes that change the catalog or read queues write it.

Nothing depends on it and nothing reads it back: the journal is the catalog. Redis may be away, empty or hold garbage;
as long as a reader of the database runs, the mirror is rewritten within seconds.

The key is a hash, `konverse:{<catalog topic>}:<database>`:
    catalog, journal, objects   id of the topic, journal position of the mirrored state, number of objects
    <kind> <name>               an object as JSON: `queue Orders`, `message type //sales/Order`; of a large routing
                                table only the number of its keys, not the entries
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict
from enum import Enum
from importlib.resources import files
from typing import Any, Final

import redis

from konverse.bridge.redis.client import Trouble, connect_redis
from konverse.schemas.catalog.objects import CatalogObject
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.identifiers import mirror_key

from .objects import kind_of

log: Final = logging.getLogger("konverse.mirror")

ENTRIES_SHOWN: Final = 1_000
"""A routing table with more entries is mirrored without them."""

_HEADER: Final = ("catalog", "journal", "objects")


class CatalogMirror:
    """Writes the mirror of one database. Thread-safe."""

    def __init__(self, url: str, topic: str, database: str) -> None:
        """`topic` is the topic of the catalog."""
        self._client = connect_redis(url)
        self._key = mirror_key(topic, database)
        self._script = self._client.register_script(
            files("konverse.bridge").joinpath("scripts/mirror.lua").read_text("utf-8")
        )
        self._lock = threading.Lock()
        self._trouble = Trouble(log, "the catalog", "mirrored")
        self._written = False
        """This process has written before. Its first write is not skipped, even if the header in Redis matches."""
        self._newer = b""
        """Position that Redis showed last time. If it is above ours again, it is garbage: ours is the journal's end."""

    def show(self, topic_id: bytes, position: int, objects: Iterable[CatalogObject]) -> None:
        """Write the objects at `position`, the journal's end, unless Redis has them. Waits at most 2 s for Redis."""
        values = list(objects)
        header = [topic_id.hex().encode(), b"%d" % position, b"%d" % len(values)]
        with self._lock:
            try:
                self._show(header, values)
            except (redis.RedisError, ValueError, TypeError) as error:
                self._trouble.failed(error)
            else:
                self._trouble.wrote()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._client.close()

    def _show(self, header: list[bytes], objects: list[CatalogObject]) -> None:
        shown, fields = self._shown()
        if self._written and shown == header and fields == len(header) + len(objects):
            return
        doubted = self._newer if self._newer == shown[1] else b""
        body = [part for each in objects for part in (_field(each), _value(each))]
        self._written = bool(self._script(keys=[self._key], args=[*header, doubted, *body])) or self._written
        self._newer = shown[1] or b""

    def _shown(self) -> tuple[list[bytes | None], int]:
        """The header and the number of fields; empty values and 0 when the key is no hash."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hmget(self._key, _HEADER)
        pipeline.hlen(self._key)
        header, fields = pipeline.execute(raise_on_error=False)
        for reply in (header, fields):
            if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
                raise reply
        return ([None] * len(_HEADER), 0) if isinstance(fields, Exception) else (header, fields)


def _field(value: CatalogObject) -> str:
    return f"{kind_of(type(value))} {value.name}"


def _value(value: CatalogObject) -> str:
    shown = _table(value) if isinstance(value, RoutingTable) else asdict(value)
    return json.dumps(shown, ensure_ascii=False, sort_keys=True, default=_plain)


def _table(value: RoutingTable) -> dict[str, Any]:
    """A routing table as JSON data. A large one has no entries: every change of the catalog would write all of them."""
    few = len(value.entries) <= ENTRIES_SHOWN
    return {
        "name": value.name,
        "keys": len(value.entries),
        "entries": {key: target._asdict() for key, target in value.entries.items()} if few else None,
        "default": value.default._asdict() if value.default is not None else None,
        "routers": value.routers,
        "version": value.version,
    }


def _plain(value: Any) -> str:
    """Text of a value that JSON lacks: an enum member, or an id in hex."""
    return str(value.value) if isinstance(value, Enum) else bytes(value).hex()
