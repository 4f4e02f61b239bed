"""Checks a router and its decisions against the catalog, for both kinds of router: services and Spark jobs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from uuid import UUID

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.network import LocatedService, Network
from konverse.routing.contracts import check_accepts, check_declared, check_union
from konverse.schemas.catalog.objects import Contract, SentBy, Service
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute, Unavailable


class TargetCheck:
    """Checks the target that a classifier chose (implements `konverse.routing.step.Resolve`)."""

    def __init__(self, network: Network, queue: str, *, forwards: bool) -> None:
        """`queue` is the name of the router's own queue."""
        self._network = network
        self._queue = queue
        self._forwards = forwards

    def __call__(self, target: Target, contract: str) -> Target:
        """The target, checked against the catalog. A target that names another database is returned unchecked.

        Raises ServiceNotFound. Raises InvalidRoute for a service on the router's queue and, when forwarding, for a
        service that does not accept the contract of the conversation, and for a target with this database's id when the
        routes lead to another database.
        """
        catalog = self._network.catalog
        broker_id = None if target.broker_instance is None else UUID(target.broker_instance)
        if broker_id not in {None, catalog.broker_id}:
            return target
        service, database = self._network.service(target.service, broker_id)
        if self._forwards and broker_id is not None and self._network.service(target.service).database != database:
            raise InvalidRoute(
                f"a conversation was classified as one for {target.service!r} in this database, and the routes of "
                f"database {catalog.database!r} lead elsewhere: drop the route, or let the classifier name no database"
            )
        if (database, service.queue) == (catalog.database, self._queue):
            raise InvalidRoute(
                f"a conversation was classified as one for {target.service!r}, a service on queue {self._queue!r}, "
                "which the router itself reads: the conversation would come back for ever. Let the classifier answer "
                "with a service on another queue, or null"
            )
        if not self._forwards:  # the redirected initiator chooses the contract itself
            return target
        if contract not in service.contracts:
            service, _ = self._refreshed(service.name)
            check_accepts(contract, service.name, service.contracts)
        return target._replace(broker_instance=None)

    def _refreshed(self, service: str) -> LocatedService:
        """The service after a refresh of the catalog: the contract may have been added just before."""
        with suppress(Unavailable):
            self._network.catalog.refresh()
        return self._network.service(service)


def check_forwarding(
    network: Network, router: Service, declared: Collection[str] | None, targets: Collection[str] | None
) -> None:
    """Raise InvalidRoute unless the router accepts the declared contracts and the union of its targets' contracts.

    An argument that is None is not checked. Raises ServiceNotFound for a target that does not exist, ContractNotFound.
    """
    _check_declared(network.catalog, router, declared)
    if targets is not None:
        accepted = {name: network.service(name).service.contracts for name in sorted(targets)}
        check_union(router.name, router.contracts, accepted)


def _check_declared(catalog: Catalog, router: Service, declared: Collection[str] | None) -> None:
    """Raise InvalidRoute unless the router's service lists exactly these contracts; ContractNotFound."""
    for name in declared or ():
        catalog.get(Contract, name)
    if declared is not None:
        check_declared(router.name, declared, router.contracts)


def check_redirecting(catalog: Catalog, router: Service, declared: Collection[str] | None, redirect_type: str) -> None:
    """Raise InvalidRoute unless each contract of the router lets the target send `redirect_type`."""
    _check_declared(catalog, router, declared)
    for name in router.contracts:
        if catalog.get(Contract, name).sent_by.get(redirect_type) not in {SentBy.TARGET, SentBy.ANY}:
            raise InvalidRoute(
                f"router {router.name!r} accepts contract {name!r}, which does not let the target send "
                f"{redirect_type!r}: no initiator could be redirected. Create a contract in which TARGET sends "
                f"{redirect_type!r}, or let the router forward"
            )
