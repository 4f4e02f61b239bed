"""The base of every CREATE, ALTER and DROP: check the catalog, append the change, check again if another came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from konverse.bridge.catalog.catalog import Catalog, Object
from konverse.bridge.catalog.objects import BORN_WITH, differences, kind_of
from konverse.schemas.catalog.objects import CatalogObject
from konverse.schemas.catalog.routes import Route
from konverse.schemas.errors import AlreadyExists, StillUsed

NAMES_SHOWN: Final = 5
"""Users of an object that are named in StillUsed."""

User = TypeVar("User", bound=CatalogObject)


class Use(NamedTuple, Generic[User]):
    """A kind of object that may use the object to be dropped."""

    kind: type[User]
    names: Callable[[User], bool]
    """Whether an object of this kind uses the one to be dropped."""


class Defining:
    """The part of a broker that changes the catalog of its database."""

    database: str
    catalog: Catalog
    _check_open: Callable[[], None]

    def _create(self, value: Object, check: Callable[[], None], *, if_not_exists: bool) -> Object:
        self._check_open()
        kind = type(value)

        def decide() -> Object:
            if self.catalog.find(kind, value.name) is not None:
                raise AlreadyExists
            check()
            return value

        try:
            self.catalog.change(value.name, decide, kind)
        except AlreadyExists:
            return self._existing(value, if_not_exists=if_not_exists)
        return value

    def _existing(self, wanted: Object, *, if_not_exists: bool) -> Object:
        """The existing object if it equals the wanted one and `if_not_exists` is set; else raise AlreadyExists."""
        kind = type(wanted)
        found = self.catalog.get(kind, wanted.name)
        differs = differences(found, wanted)
        if if_not_exists and not differs:
            return found
        how = f", with {differs}" if differs else ""
        raise AlreadyExists(f"there is a {kind_of(kind)} {wanted.name!r} in database {self.database!r} already{how}")

    def _alter(self, kind: type[Object], name: str, altered: Callable[[Object], Object]) -> Object:
        """Replace an object by `altered(object)`, which raises to refuse the change."""
        self._check_open()

        def decide() -> Object:
            return altered(self.catalog.get(kind, name))

        self.catalog.change(name, decide, kind)
        return self.catalog.get(kind, name)

    def _drop(self, kind: type[Object], name: str, *uses: Use[Any]) -> None:
        """Drop an object. Raises StillUsed when an object of one of these `uses` needs it."""
        self._check_open()
        self.catalog.change(name, lambda: self._check_unused(kind, name, *uses), kind)

    def _check_unused(self, kind: type[Object], name: str, *uses: Use[Any]) -> None:
        self.catalog.get(kind, name)
        if kind is not Route and (kind_of(kind), name) in BORN_WITH:
            raise StillUsed(f"every database has the {kind_of(kind)} {name!r}; it cannot be dropped")
        for use in uses:
            users = [user.name for user in self.catalog.all(use.kind) if use.names(user)]
            if users:
                raise StillUsed(
                    f"{kind_of(kind)} {name!r} is used by {kind_of(use.kind)} "
                    f"{', '.join(map(repr, users[:NAMES_SHOWN]))}"
                    f"{f' and {len(users) - NAMES_SHOWN} more' if len(users) > NAMES_SHOWN else ''}; change that first"
                )
