"""Routing tables: which service has the conversations of a key (behaviours 230 to 233), and what changes one.

A change is a record of the catalog that names only what becomes another, however large the table is. A table is a
value: a change makes another one of it, which shares with the first what has stayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from .errors import InvalidRoute
from .identifiers import check_name
from .limits import (
    ROUTING_KEY_BYTES_MAX,
    ROUTING_TABLE_BUCKETS,
    ROUTING_TABLE_CHANGE_BYTES_MAX,
    ROUTING_TABLE_ENTRIES_MAX,
    ROUTING_TABLE_ROUTERS_ENTRIES_MAX,
)


class Target(NamedTuple):
    """The service that a conversation is for."""

    service: str
    broker_instance: str | None = None
    """Id of the database in which it is, as `begin_dialog` takes it; None: wherever routes lead."""


Bucket = Mapping[str, Target]

_NO_ENTRIES: Final[Bucket] = {}
_NO_BUCKETS: Final[tuple[Bucket, ...]] = (_NO_ENTRIES,) * ROUTING_TABLE_BUCKETS


class Entries(Mapping[str, Target]):
    """The keys of a routing table, in an order that means nothing. It does not change."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, entries: Mapping[str, Target] | None = None) -> None:
        self._buckets: tuple[Bucket, ...] = _NO_BUCKETS
        self._count = 0
        if entries:
            self._put(entries, ())

    def changed(self, put: Mapping[str, Target], remove: Collection[str]) -> Entries:
        """Another one, without the keys of `remove` and then with those of `put`. Takes time for these alone."""
        made = Entries()
        made._buckets, made._count = self._buckets, self._count
        made._put(put, remove)
        return made

    def _put(self, put: Mapping[str, Target], remove: Collection[str]) -> None:
        touched: dict[int, dict[str, Target]] = {}
        for key in remove:
            self._touch(touched, key).pop(key, None)
        for key, target in put.items():
            self._touch(touched, key)[key] = target
        buckets = list(self._buckets)
        for number, bucket in touched.items():
            self._count += len(bucket) - len(buckets[number])
            buckets[number] = bucket
        self._buckets = tuple(buckets)

    def _touch(self, touched: dict[int, dict[str, Target]], key: str) -> dict[str, Target]:
        number = _bucket_of(key)
        found = touched.get(number)
        if found is None:
            found = touched[number] = dict(self._buckets[number])
        return found

    def __getitem__(self, key: str) -> Target:
        return self._buckets[_bucket_of(key)][key]

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def __hash__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Entries of {self._count} keys>"

    def __reduce__(self) -> tuple[type[Entries], tuple[dict[str, Target]]]:
        return Entries, (dict(self),)


def _bucket_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) % ROUTING_TABLE_BUCKETS


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """A routing table."""

    name: str
    entries: Mapping[str, Target] = field(default_factory=Entries)
    default: Target | None = None
    """Where conversations go whose key is not among the entries; None: their messages cannot be classified."""
    routers: tuple[str, ...] = ()
    """Services whose routers go by this table: it must not lead back to them."""
    version: int = 1
    """Counts the contents that it has had since it was created."""

    @classmethod
    def of(
        cls, name: str, entries: Mapping[str, Target], default: Target | None = None, routers: tuple[str, ...] = ()
    ) -> RoutingTable:
        """The table of that name. Raises InvalidName, and InvalidRoute for what `TableChange.of` refuses."""
        check_name("routing table", name)
        first = TableChange.of(name, entries, default=default, routers=routers)
        return cls(name, Entries(first.put), first.default, routers)

    def find(self, key: str) -> Target | None:
        """Where conversations of this key go."""
        return self.entries.get(key, self.default)

    def changed(self, change: TableChange) -> RoutingTable:
        """The next version."""
        known = self.entries if isinstance(self.entries, Entries) else Entries(self.entries)
        default = None if change.without_default else change.default or self.default
        routers = self.routers if change.routers is None else change.routers
        return RoutingTable(
            self.name, known.changed(change.put, change.remove), default, routers, version=self.version + 1
        )

    def targets(self) -> list[Target]:
        """All services that it leads to, each once, in order of their names."""
        return _each_once([*self.entries.values(), self.default])


@dataclass(frozen=True, slots=True)
class TableChange:
    """What an ALTER says of a routing table; all else stays as it is."""

    name: str
    put: Mapping[str, Target] = field(default_factory=dict)
    """Keys that have this service from now on, new ones and known ones."""
    remove: tuple[str, ...] = ()
    default: Target | None = None
    """Another default; None: it stays."""
    without_default: bool = False
    """There is no default any more."""
    routers: tuple[str, ...] | None = None
    """Others; None: they stay."""

    @classmethod
    def of(  # noqa: PLR0913  # the clauses of an ALTER
        cls,
        name: str,
        put: Mapping[str, Target],
        remove: tuple[str, ...] = (),
        *,
        default: Target | None = None,
        without_default: bool = False,
        routers: tuple[str, ...] | None = None,
    ) -> TableChange:
        """The change, checked: InvalidRoute for a key or a target that cannot be, and for more than a record."""
        entries = {_key(name, key): _target(name, target) for key, target in put.items()}
        for key in remove:
            if key in entries:
                raise InvalidRoute(f"routing table {name!r}: key {key!r} is to be set and removed; do one of it")
        if routers is not None and len(routers) > ROUTING_TABLE_ROUTERS_ENTRIES_MAX:
            raise InvalidRoute(
                f"routing table {name!r} has {len(routers)} routers; at most {ROUTING_TABLE_ROUTERS_ENTRIES_MAX} can be"
            )
        checked = None if default is None else _target(name, default)
        change = cls(name, entries, tuple(remove), checked, without_default, routers)
        size = sum(_size(key, target) for key, target in entries.items()) + sum(_size(key) for key in change.remove)
        if size > ROUTING_TABLE_CHANGE_BYTES_MAX:
            raise InvalidRoute(
                f"routing table {name!r}: {len(entries) + len(remove)} keys and their services have {size} bytes, and "
                f"one change has at most {ROUTING_TABLE_CHANGE_BYTES_MAX}; make several, each counts as a whole"
            )
        return change

    def targets(self) -> list[Target]:
        """The services that it names, each once, in order of their names."""
        return _each_once([*self.put.values(), self.default])


def parts_of(name: str, entries: Mapping[str, Target]) -> Iterator[dict[str, Target]]:
    """Entries of any number, in parts that are small enough for a change each. Raises as `TableChange.of`."""
    part: dict[str, Target] = {}
    room = ROUTING_TABLE_CHANGE_BYTES_MAX
    for key, target in entries.items():
        size = _size(_key(name, key), target)
        if size > room:
            yield part
            part, room = {}, ROUTING_TABLE_CHANGE_BYTES_MAX
        part[key] = target
        room -= size
    yield part


def check_entries(table: RoutingTable) -> RoutingTable:
    """The table, unless it has more keys than a table may have: InvalidRoute."""
    if len(table.entries) > ROUTING_TABLE_ENTRIES_MAX:
        raise InvalidRoute(
            f"routing table {table.name!r} would have {len(table.entries)} keys; at most {ROUTING_TABLE_ENTRIES_MAX} "
            "can be. Let a classifier find a coarser key"
        )
    return table


def _key(name: str, key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidRoute(f"routing table {name!r}: key {key!r} has a character that is none") from None
    if not 0 < size <= ROUTING_KEY_BYTES_MAX:
        raise InvalidRoute(
            f"routing table {name!r}: key {key[:40]!r} has {size} bytes; a key has 1 to {ROUTING_KEY_BYTES_MAX}"
        )
    return key


def _target(name: str, target: Target) -> Target:
    check_name("service", target.service)
    if target.broker_instance is None:
        return target
    try:
        return Target(target.service, str(UUID(target.broker_instance)))
    except ValueError:
        raise InvalidRoute(
            f"routing table {name!r}: {target.broker_instance!r} is no id of a broker instance; it looks like "
            "0f8fad5b-d9cb-469f-a165-70867728950e"
        ) from None


_ENTRY_BYTES: Final = 12
"""Lengths and marks beside the texts of an entry."""


def _size(key: str, target: Target | None = None) -> int:
    texts = (key, target.service, target.broker_instance or "") if target is not None else (key,)
    return _ENTRY_BYTES + sum(len(text.encode()) for text in texts)


def _each_once(targets: Iterable[Target | None]) -> list[Target]:
    found = {(target.service, target.broker_instance or "") for target in targets if target is not None}
    return [Target(service, instance or None) for service, instance in sorted(found)]
