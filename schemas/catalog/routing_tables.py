"""Routing tables: the service for the conversations of each key, and changes of a table (behaviours 230 to 233).

A change is a catalog record that names only the differences, however large the table is. A change that is too large for
one record is written in parts, which count together when the last part is there, or not at all. A table is immutable: a
change makes a new one, which shares the unchanged buckets with the old one.
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
    """Service for keys without an entry; None: messages with such a key cannot be classified."""
    routers: tuple[str, ...] = ()
    """Services whose routers use this table: an entry must not lead back to them."""
    version: int = 0
    """Number of changes since the table was created."""

    def find(self, key: str) -> Target | None:
        """Service for the conversations of this key; None when there is none."""
        return self.entries.get(key, self.default)

    def changed(self, change: TableChange) -> RoutingTable:
        """The table after a change."""
        default = None if change.without_default else change.default or self.default
        routers = self.routers if change.routers is None else change.routers
        return RoutingTable(
            self.name, self.entries.changed(change.put, change.remove), default, routers, version=self.version + 1
        )

    def targets(self) -> list[Target]:
        """All services to which the table leads, each once, ordered by name."""
        found = self.entries.targets()
        return found if self.default is None else _each_once([*found, self.default])


@dataclass(frozen=True, slots=True)
class TableChange:
    """The differences that a CREATE or ALTER makes to a routing table."""

    name: str
    put: Mapping[str, Target] = field(default_factory=dict)
    """Service by key, for new and known keys."""
    remove: tuple[str, ...] = ()
    default: Target | None = None
    """New default; None: unchanged."""
    without_default: bool = False
    """The default is removed."""
    routers: tuple[str, ...] | None = None
    """New routers; None: unchanged."""
    creates: bool = False
    """Whether this is a CREATE."""
    parts: bytes = b""
    """Id that the parts of one change share, 16 bytes; empty when the change is a single record."""
    part: int = 0
    """Number of this part, from 0 on."""
    last: bool = True
    """Whether this is the last part, with which the change counts."""

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
        """A checked change; raises InvalidName, and InvalidRoute for an invalid key, target or routers."""
        check_name("routing table", name)
        entries = {_key(name, key): _target(name, target) for key, target in put.items()}
        for key in remove:
            if key in entries:
                raise InvalidRoute(f"routing table {name!r}: key {key!r} is both set and removed; do one of the two")
        if routers is not None and len(routers) > ROUTING_TABLE_ROUTERS_ENTRIES_MAX:
            raise InvalidRoute(
                f"routing table {name!r} has {len(routers)} routers; at most {ROUTING_TABLE_ROUTERS_ENTRIES_MAX} "
                "are allowed"
            )
        if default is not None and without_default:
            raise InvalidRoute(f"routing table {name!r} cannot have a default and also drop it; choose one of the two")
        checked = None if default is None else _target(name, default)
        return cls(name, entries, tuple(remove), checked, without_default, routers, creates)

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        named = self.put or self.remove or self.default or self.without_default or self.routers is not None
        return not named and not self.creates

    def divided(self, parts: bytes) -> list[TableChange]:
        """The records of this change: itself, or its parts with the id `parts` when it is too large."""
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
        """Whether this is the next part of the same change after `before`."""
        return self.part == len(before) and (not before or before[0].parts == self.parts)

    def joined(self, before: list[TableChange]) -> TableChange:
        """The whole change: this is its last part, `before` holds the others. Each key is in one part only."""
        put = {key: target for each in (*before, self) for key, target in each.put.items()}
        remove = tuple(key for each in (*before, self) for key in each.remove)
        return replace(self, put=put, remove=remove, parts=b"", part=0)

    def targets(self) -> list[Target]:
        """The services that it names, each once, ordered by name."""
        return _each_once([*self.put.values(), self.default])


def folded(known: RoutingTable | None, change: TableChange, before: list[TableChange]) -> RoutingTable | None:
    """The table after a catalog record; None when it does not exist.

    `before` holds the parts of a change that wait for the last one. A part that does not follow them belongs to a
    change that was overtaken, and is ignored. A first part discards the parts of an unfinished change.
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
    """Return the table; raises InvalidRoute when it has too many keys."""
    if len(table.entries) > ROUTING_TABLE_ENTRIES_MAX:
        raise InvalidRoute(
            f"routing table {table.name!r} would have {len(table.entries)} keys; at most {ROUTING_TABLE_ENTRIES_MAX} "
            "are allowed. Let a classifier find a coarser key"
        )
    return table


def _key(name: str, key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidRoute(f"routing table {name!r}: key {key!r} has an invalid character") from None
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
            f"routing table {name!r}: {target.broker_instance!r} is not a valid id of a broker instance; it looks like "
            "0f8fad5b-d9cb-469f-a165-70867728950e"
        ) from None


def change_to_avro(change: TableChange) -> dict[str, Any]:
    """Fields of the catalog record of a change."""
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
    """The change from the fields of its catalog record."""
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
"""Bytes of an entry besides its strings."""


def _size(key: str, target: Target | None = None) -> int:
    texts = (key, target.service, target.broker_instance or "") if target is not None else (key,)
    return _ENTRY_BYTES + sum(len(text.encode()) for text in texts)


def _each_once(targets: Iterable[Target | None]) -> list[Target]:
    found = {(target.service, target.broker_instance or "") for target in targets if target is not None}
    return [Target(service, instance or None) for service, instance in sorted(found)]
