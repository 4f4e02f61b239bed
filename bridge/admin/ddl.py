"""The steps of every statement: check the catalog, append the change, check again if another change came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from konverse.bridge.catalog.catalog import Object
from konverse.bridge.catalog.objects import BORN_WITH, differences, kind_of
from konverse.bridge.client.connection import Connection
from konverse.schemas.catalog.objects import CatalogObject
from konverse.schemas.catalog.routes import Route
from konverse.schemas.errors import AlreadyExists, StillUsed

NAMES_SHOWN: Final = 5
"""Number of users of an object that StillUsed names."""

User = TypeVar("User", bound=CatalogObject)


class Use(NamedTuple, Generic[User]):
    """A kind of object that may use the object to be dropped."""

    kind: type[User]
    names: Callable[[User], bool]
    """Whether an object of this kind uses the one to be dropped."""


class Ddl:
    """Changes of the catalog of one database."""

    def __init__(self, connection: Connection) -> None:
        self._check_open = connection.check_open
        self._catalog = connection.catalog
        self._database = connection.database

    def create(self, value: Object, check: Callable[[], None], *, if_not_exists: bool) -> Object:
        """Add an object unless `check` raises."""
        self._check_open()
        kind = type(value)

        def decide() -> Object:
            if self._catalog.find(kind, value.name) is not None:
                raise AlreadyExists
            check()
            return value

        try:
            self._catalog.change(value.name, decide, kind)
        except AlreadyExists:
            return self.existing(value, if_not_exists=if_not_exists)
        return value

    def existing(self, wanted: Object, *, if_not_exists: bool) -> Object:
        """The existing object if it equals the wanted one and `if_not_exists` is set; else raise AlreadyExists."""
        kind = type(wanted)
        found = self._catalog.get(kind, wanted.name)
        differs = differences(found, wanted)
        if if_not_exists and not differs:
            return found
        how = f", with {differs}" if differs else ""
        raise AlreadyExists(f"there is a {kind_of(kind)} {wanted.name!r} in database {self._database!r} already{how}")

    def alter(self, kind: type[Object], name: str, altered: Callable[[Object], Object]) -> Object:
        """Replace an object by `altered(object)`, which raises to refuse the change."""
        self._check_open()

        def decide() -> Object:
            return altered(self._catalog.get(kind, name))

        self._catalog.change(name, decide, kind)
        return self._catalog.get(kind, name)

    def drop(self, kind: type[Object], name: str, *uses: Use[Any]) -> None:
        """Drop an object. Raises StillUsed when an object of one of these `uses` needs it."""
        self._check_open()
        self._catalog.change(name, lambda: self.check_unused(kind, name, *uses), kind)

    def check_unused(self, kind: type[Object], name: str, *uses: Use[Any]) -> None:
        """Raise StillUsed when every database has the object, or when an object of one of these `uses` needs it."""
        self._catalog.get(kind, name)
        if kind is not Route and (kind_of(kind), name) in BORN_WITH:
            raise StillUsed(f"every database has the {kind_of(kind)} {name!r}; it cannot be dropped")
        for use in uses:
            users = [user.name for user in self._catalog.all(use.kind) if use.names(user)]
            if users:
                raise StillUsed(
                    f"{kind_of(kind)} {name!r} is used by {kind_of(use.kind)} "
                    f"{', '.join(map(repr, users[:NAMES_SHOWN]))}"
                    f"{f' and {len(users) - NAMES_SHOWN} more' if len(users) > NAMES_SHOWN else ''}; change that first"
                )
