"""Routing tables: which service has the conversations of a key (behaviours 230 to 233), and what changes one.

A change is a record of the catalog that names only what becomes another, however large the table is. One that is too
large for a record is several, its parts, which count when the last of them is there, or not at all. A table is a value:
a change makes another one of it, which shares with the first what has stayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from konverse.schemas.errors import InvalidRoute
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import (
    ROUTING_KEY_BYTES_MAX,
    ROUTING_TABLE_CHANGE_BYTES_MAX,
    ROUTING_TABLE_ENTRIES_MAX,
    ROUTING_TABLE_ROUTERS_ENTRIES_MAX,
)

from .table_entries import Entries, Target


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """A routing table."""

    name: str
    entries: Entries = field(default_factory=Entries)
    default: Target | None = None
    """Where conversations go whose key is not among the entries; None: their messages cannot be classified."""
    routers: tuple[str, ...] = ()
    """Services whose routers go by this table: it must not lead back to them."""
    version: int = 0
    """Counts the contents that it has had since it was created."""

    def find(self, key: str) -> Target | None:
        """Where conversations of this key go."""
        return self.entries.get(key, self.default)

    def changed(self, change: TableChange) -> RoutingTable:
        """The next version."""
        default = None if change.without_default else change.default or self.default
        routers = self.routers if change.routers is None else change.routers
        return RoutingTable(
            self.name, self.entries.changed(change.put, change.remove), default, routers, version=self.version + 1
        )

    def targets(self) -> list[Target]:
        """All services that it leads to, each once, in order of their names."""
        found = self.entries.targets()
        return found if self.default is None else _each_once([*found, self.default])


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
    creates: bool = False
    """There is no such table: this is a CREATE."""
    parts: bytes = b""
    """Id that all parts of a change have, 16 bytes; empty: this is all of it."""
    part: int = 0
    """Which of them it is."""
    last: bool = True
    """With this one the change counts."""

    @classmethod
    def of(  # noqa: PLR0913  # the clauses of CREATE and ALTER
        cls,
        name: str,
        put: Mapping[str, Target],
        remove: tuple[str, ...] = (),
        *,
        default: Target | None = None,
        without_default: bool = False,
        routers: tuple[str, ...] | None = None,
        creates: bool = False,
    ) -> TableChange:
        """The change, checked: InvalidName, and InvalidRoute for a key, a target or routers that cannot be."""
        check_name("routing table", name)
        entries = {_key(name, key): _target(name, target) for key, target in put.items()}
        for key in remove:
            if key in entries:
                raise InvalidRoute(f"routing table {name!r}: key {key!r} is to be set and removed; do one of it")
        if routers is not None and len(routers) > ROUTING_TABLE_ROUTERS_ENTRIES_MAX:
            raise InvalidRoute(
                f"routing table {name!r} has {len(routers)} routers; at most {ROUTING_TABLE_ROUTERS_ENTRIES_MAX} can be"
            )
        if default is not None and without_default:
            raise InvalidRoute(f"routing table {name!r} is to have a default and none; name one of it")
        checked = None if default is None else _target(name, default)
        return cls(name, entries, tuple(remove), checked, without_default, routers, creates)

    @property
    def is_empty(self) -> bool:
        """Whether it names nothing to change."""
        named = self.put or self.remove or self.default or self.without_default or self.routers is not None
        return not named and not self.creates

    def divided(self, parts: bytes) -> list[TableChange]:
        """The records that it is written as: itself, or as many parts as it needs, with this id."""
        room, slices = 0, list[tuple[dict[str, Target], list[str]]]()
        named: list[tuple[str, Target | None]] = [*self.put.items(), *((key, None) for key in self.remove)]
        for key, target in named:
            size = _size(key, target)
            if size > room:
                slices.append(({}, []))
                room = ROUTING_TABLE_CHANGE_BYTES_MAX
            room -= size
            if target is None:
                slices[-1][1].append(key)
            else:
                slices[-1][0][key] = target
        if len(slices) <= 1:
            return [self]
        made = [
            TableChange(self.name, put, tuple(remove), parts=parts, part=number, last=False)
            for number, (put, remove) in enumerate(slices[:-1])
        ]
        put, remove = slices[-1]
        return [*made, replace(self, put=put, remove=tuple(remove), parts=parts, part=len(made))]

    def follows(self, before: list[TableChange]) -> bool:
        """Whether it is the next part behind these."""
        return self.part == len(before) and (not before or before[0].parts == self.parts)

    def joined(self, before: list[TableChange]) -> TableChange:
        """All of a change, of which this is the last part; a key stands in one of them."""
        put = {key: target for each in (*before, self) for key, target in each.put.items()}
        remove = tuple(key for each in (*before, self) for key in each.remove)
        return replace(self, put=put, remove=remove, parts=b"", part=0)

    def targets(self) -> list[Target]:
        """The services that it names, each once, in order of their names."""
        return _each_once([*self.put.values(), self.default])


def folded(known: RoutingTable | None, change: TableChange, before: list[TableChange]) -> RoutingTable | None:
    """What a table is behind a record of the catalog; None: there is none. `before` are the parts that wait for others.

    A part that does not follow them was overtaken and is ignored; a change that begins takes the place of one that does
    not go on.
    """
    if change.part == 0:
        before.clear()
    if not change.follows(before):
        return known
    if not change.last:
        before.append(change)
        return known
    whole = change.joined(before)
    before.clear()
    if whole.creates != (known is None):
        return known
    return (known or RoutingTable(change.name)).changed(whole)


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


def change_to_avro(change: TableChange) -> dict[str, Any]:
    """The fields of a record of the catalog."""
    return {
        "name": change.name,
        "put": {key: target._asdict() for key, target in change.put.items()},
        "remove": list(change.remove),
        "default": None if change.default is None else change.default._asdict(),
        "without_default": change.without_default,
        "routers": None if change.routers is None else list(change.routers),
        "creates": change.creates,
        "parts": change.parts,
        "part": change.part,
        "last": change.last,
    }


def change_of_avro(fields: dict[str, Any]) -> TableChange:
    """What `change_to_avro` made fields of."""
    default, routers = fields["default"], fields["routers"]
    return TableChange(
        **{
            **fields,
            "put": {key: Target(**target) for key, target in fields["put"].items()},
            "remove": tuple(fields["remove"]),
            "default": None if default is None else Target(**default),
            "routers": None if routers is None else tuple(routers),
        }
    )


_ENTRY_BYTES: Final = 12
"""Lengths and marks beside the texts of an entry."""


def _size(key: str, target: Target | None = None) -> int:
    texts = (key, target.service, target.broker_instance or "") if target is not None else (key,)
    return _ENTRY_BYTES + sum(len(text.encode()) for text in texts)


def _each_once(targets: Iterable[Target | None]) -> list[Target]:
    found = {(target.service, target.broker_instance or "") for target in targets if target is not None}
    return [Target(service, instance or None) for service, instance in sorted(found)]
