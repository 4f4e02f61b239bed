"""Routing for each database of an instance, as the owners of its link queue ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import Network
from konverse.bridge.kafka.clients import Kafka
from konverse.dialog.owner.relocations import RoutedPlace
from konverse.dialog.state.delayed import RouteWanted
from konverse.routing.partitioning import choose_partition
from konverse.schemas.catalog.broker_configuration import MissingRoute
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidState, NotSupportedYet, ServiceNotFound, UnknownObject
from konverse.schemas.identifiers import Address, queue_of
from konverse.schemas.wire.records import Begin


class InstancePlaces:
    """The places of services in an instance (implements `konverse.bridge.owner.delayed_routing.RoutedPlaces`)."""

    def __init__(self, kafka: Kafka, catalog: Catalog, request: Callable[[str, MissingRoute], None]) -> None:
        """`catalog` is that of any database: it knows the objects of all. `request` asks for a route of a database."""
        self._kafka = kafka
        self._catalog = catalog
        self._request = request
        self._networks: dict[str, Network] = {}

    @property
    def version(self) -> int:
        """Rises with each change of a database, service, queue or route."""
        return self._catalog.routed_version

    def find(self, wanted: Iterable[RouteWanted]) -> Mapping[RouteWanted, RoutedPlace]:
        """The places of services that a conversation reaches now. Asks for routes to the others. Raises Unavailable."""
        self._catalog.refresh()
        found: dict[RouteWanted, RoutedPlace] = {}
        for one in wanted:
            network, broker_id = self._network(one), _broker_id(one)
            if network.reaches(one.service, broker_id):
                found[one] = partial(self._place, network, one.service, broker_id)
            elif network.asks(one.service, broker_id):
                self._request(network.database, MissingRoute(one.service, broker_id))
        return found

    def _network(self, wanted: RouteWanted) -> Network:
        """Routing of the database that began the conversation."""
        database = self._catalog.database_of(wanted.topic)
        name = queue_of(wanted.topic)[0] if database is None else database
        network = self._networks.get(name)
        if network is None:
            network = self._networks[name] = Network(self._kafka, self._catalog, name)
        return network

    def _place(
        self, network: Network, service: str, broker_id: UUID | None, conversation: bytes, begin: Begin
    ) -> Address | None:
        """The partition of one conversation; of several databases with the service its id draws one."""
        try:
            located = network.known(service, broker_id, conversation)
            queue = self._catalog.get_in(located.database, Queue, located.service.queue)
        except (ServiceNotFound, NotSupportedYet, InvalidState, UnknownObject):
            return None  # dropped since routing was asked
        return queue.address(choose_partition(begin.key or begin.group, queue.partitions))


def _broker_id(wanted: RouteWanted) -> UUID | None:
    return None if wanted.broker_instance is None else UUID(wanted.broker_instance)
