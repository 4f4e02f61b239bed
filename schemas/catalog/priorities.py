"""Broker priorities, and which of them an endpoint gets (service-broker.md 1.7 and 8; behaviours 216 to 218)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from konverse.schemas.errors import InvalidPriority
from konverse.schemas.identifiers import check_name
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST

ANY: Final = "ANY"
"""The word for a criterion that every conversation meets; nothing of that name can be meant."""


@dataclass(frozen=True, slots=True)
class BrokerPriority:
    """A level for endpoints that meet all criteria; `ANY` is one that each meets."""

    name: str
    contract: str = ANY
    local_service: str = ANY
    """The service of the endpoint itself: who begins, or who is begun with."""
    remote_service: str = ANY
    """The other one. It need not exist here; names are compared byte by byte."""
    level: int = DEFAULT_LEVEL

    @classmethod
    def of(cls, value: BrokerPriority) -> BrokerPriority:
        """The same when it may be; InvalidPriority for a level that does not exist (33302), InvalidName."""
        check_name("broker priority", value.name)
        if value.remote_service != ANY:
            check_name("remote service", value.remote_service)
        if not LOWEST <= value.level <= HIGHEST:
            raise InvalidPriority(
                f"broker priority {value.name!r} cannot have level {value.level}; {LOWEST} (low) to {HIGHEST} can be"
            )
        return value

    @property
    def criteria(self) -> tuple[str, str, str]:
        """Contract, local and remote service: no two priorities of a database have the same (33303)."""
        return self.contract, self.local_service, self.remote_service

    def matches(self, contract: str, local_service: str, remote_service: str) -> bool:
        """Whether an endpoint meets every criterion."""
        wanted = contract, local_service, remote_service
        return all(own in (ANY, other) for own, other in zip(self.criteria, wanted, strict=True))


def level_of(priorities: Iterable[BrokerPriority], contract: str, local_service: str, remote_service: str) -> int:
    """The level of a new endpoint: that of the match which is nearest to it, else the default (behaviour 217).

    A named contract counts more than a named local service, and that more than a named remote one: read as the digits
    of a number they make the eight rows of the original's table.
    """
    found = [each for each in priorities if each.matches(contract, local_service, remote_service)]
    nearest = max(found, key=lambda each: [name != ANY for name in each.criteria], default=None)
    return DEFAULT_LEVEL if nearest is None else nearest.level
