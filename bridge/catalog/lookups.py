"""What classifiers ask of a catalog, as it is known in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from konverse.routing.classifiers import Classifier
from konverse.routing.keys.rule import Lookup
from konverse.schemas.catalog.objects import MessageType, Service, Validation
from konverse.schemas.catalog.routing_tables import RoutingTable

from .catalog import ROUTED_FRESH_EVERY_S, Catalog


def lookup_of(catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> Lookup:
    """The tables, services and schemas of a catalog, whenever they are asked for."""
    return Lookup(partial(catalog.get, RoutingTable), _Services(catalog, clock), partial(_avro_schema, catalog))


class _Services:
    """Whether there is a service. Strangers may ask for any number of names that nobody has: few are read for."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._clock = clock
        self._due_s = 0.0

    def __call__(self, name: str) -> bool:
        if self._catalog.heard_of(Service, name) is not None:
            return True
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + ROUTED_FRESH_EVERY_S
        return self._catalog.find(Service, name) is not None


def bound(catalog: Catalog, classify: Any) -> Any:
    """A classifier with this catalog to ask, when it is a ready one; a function of the user's as it is.

    From here on the catalog hears within a fraction of a second of what others change.
    """
    if not isinstance(classify, Classifier):
        return classify
    catalog.keep_fresh(ROUTED_FRESH_EVERY_S)
    return classify.bound(lookup_of(catalog))


def _avro_schema(catalog: Catalog, message_type: str) -> str:
    known = catalog.find(MessageType, message_type)
    return known.schema if known is not None and known.validation is Validation.AVRO else ""
