"""CREATE, ALTER and DROP BROKER PRIORITY: priorities give each new side its level, and RECEIVE prefers high levels."""

from __future__ import annotations

from dataclasses import replace

from konverse.bridge.runtime.arguments import checked
from konverse.schemas.catalog.objects import Contract, Service
from konverse.schemas.catalog.priorities import ANY, BrokerPriority
from konverse.schemas.errors import NothingChanged, PriorityTwice
from konverse.schemas.levels import DEFAULT_LEVEL

from .ddl import Defining


class Priorities(Defining):
    """The part of a broker for statements about broker priorities."""

    @checked
    def create_broker_priority(  # noqa: PLR0913  # the clauses of CREATE BROKER PRIORITY
        self,
        name: str,
        *,
        contract: str = ANY,
        local_service: str = ANY,
        remote_service: str = ANY,
        level: int = DEFAULT_LEVEL,
        if_not_exists: bool = False,
    ) -> BrokerPriority:
        """CREATE BROKER PRIORITY: a level, 1 (low) to 10, for endpoints with this contract and these services.

        "ANY" matches every contract or service. A new side gets the level of the most specific priority (217); readers
        notice a new priority within seconds. Ready groups of a higher level are received first (219).
        Raises InvalidPriority (33302), PriorityTwice (33303) when another priority has the same contract and services,
        ContractNotFound, ServiceNotFound for the local service (the remote one may be anywhere), AlreadyExists.
        """
        value = BrokerPriority.of(BrokerPriority(name, contract, local_service, remote_service, level))
        return self._create(value, lambda: self._check_priority(value), if_not_exists=if_not_exists)

    @checked
    def alter_broker_priority(  # the clauses of ALTER BROKER PRIORITY
        self,
        name: str,
        *,
        contract: str | None = None,
        local_service: str | None = None,
        remote_service: str | None = None,
        level: int | None = None,
    ) -> BrokerPriority:
        """ALTER BROKER PRIORITY: clauses that are not given stay; "ANY" removes a criterion.

        Existing endpoints keep their level (behaviour 216). Raises PriorityNotFound, NothingChanged when no clause is
        given, and what CREATE raises.
        """
        given = {"contract": contract, "local_service": local_service, "remote_service": remote_service, "level": level}
        changes = {clause: value for clause, value in given.items() if value is not None}
        if not changes:
            raise NothingChanged(f"ALTER of broker priority {name!r} names nothing to alter; name one of its clauses")

        def altered(known: BrokerPriority) -> BrokerPriority:
            value = BrokerPriority.of(replace(known, **changes))  # type: ignore[arg-type]
            self._check_priority(value)
            return value

        return self._alter(BrokerPriority, name, altered)

    @checked
    def drop_broker_priority(self, name: str) -> None:
        """DROP BROKER PRIORITY. Existing endpoints keep their level (behaviour 216). Raises PriorityNotFound."""
        self._drop(BrokerPriority, name)

    def _check_priority(self, value: BrokerPriority) -> None:
        if value.contract != ANY:
            self.catalog.get(Contract, value.contract)
        if value.local_service != ANY:
            self.catalog.get(Service, value.local_service)
        for other in self.catalog.all(BrokerPriority):
            if other.name != value.name and other.criteria == value.criteria:
                raise PriorityTwice(
                    f"broker priority {other.name!r} has the contract and services of {value.name!r}; alter that one"
                )
