"""Catalog lookups of classifiers, answered from the copy of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from konverse.routing.classifiers import Classifier
from konverse.routing.keys.rule import Lookup
from konverse.schemas.catalog.objects import MessageType, Validation
from konverse.schemas.catalog.routing_tables import RoutingTable

from .catalog import ROUTED_FRESH_EVERY_S, Catalog
from .network import Network


def lookup_of(network: Network, clock: Callable[[], float] = time.monotonic) -> Lookup:
    """Lookups of routing tables, services and Avro schemas; each call sees the catalog as it is then."""
    catalog = network.catalog
    return Lookup(partial(catalog.get, RoutingTable), _Services(network, clock), partial(_avro_schema, catalog))


class _Services:
    """Whether a service can be reached. Limits refreshes, because messages may name any number of unknown services."""

    def __init__(self, network: Network, clock: Callable[[], float]) -> None:
        self._network = network
        self._clock = clock
        self._due_s = 0.0

    def __call__(self, name: str) -> bool:
        if self._network.reaches(name):
            return True
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        self._network.catalog.refresh()
        self._due_s = now_s + ROUTED_FRESH_EVERY_S
        return self._network.reaches(name)


def bound(network: Network, classify: Any) -> Any:
    """Bind a `Classifier` to the catalog of this network; a classifying function of the user is returned unchanged.

    Binding makes the catalog refresh several times a second, so that changes by others are noticed quickly.
    """
    if not isinstance(classify, Classifier):
        return classify
    network.catalog.refresh_every(ROUTED_FRESH_EVERY_S)
    return classify.bound(lookup_of(network))


def _avro_schema(catalog: Catalog, message_type: str) -> str:
    known = catalog.find(MessageType, message_type)
    return known.schema if known is not None and known.validation is Validation.AVRO else ""
