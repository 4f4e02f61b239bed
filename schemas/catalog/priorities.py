"""Broker priorities, and the level that they give an endpoint (service-broker.md 1.7 and 8; behaviours 216 to 218)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from konverse.schemas.errors import InvalidPriority
from konverse.schemas.identifiers import check_name
from konverse.schemas.levels import DEFAULT_LEVEL, HIGHEST, LOWEST

ANY: Final = "ANY"
"""Criterion that every conversation meets; an object of this name cannot be a criterion."""


@dataclass(frozen=True, slots=True)
class BrokerPriority:
    """A level for endpoints that meet all criteria."""

    name: str
    contract: str = ANY
    local_service: str = ANY
    """Service of the endpoint itself, at an initiator or a target."""
    remote_service: str = ANY
    """Service of the other side. It need not exist here; names are compared byte by byte."""
    level: int = DEFAULT_LEVEL

    @classmethod
    def of(cls, value: BrokerPriority) -> BrokerPriority:
        """Return the value if it is valid; raises InvalidPriority (33302) for an impossible level, InvalidName."""
        check_name("broker priority", value.name)
        if value.remote_service != ANY:
            check_name("remote service", value.remote_service)
        if not LOWEST <= value.level <= HIGHEST:
            raise InvalidPriority(
                f"broker priority {value.name!r} cannot have level {value.level}; {LOWEST} (low) to {HIGHEST} "
                "are allowed"
            )
        return value

    @property
    def criteria(self) -> tuple[str, str, str]:
        """Contract, local and remote service: unique among the priorities of a database (33303)."""
        return self.contract, self.local_service, self.remote_service

    def matches(self, contract: str, local_service: str, remote_service: str) -> bool:
        """Whether an endpoint meets every criterion."""
        wanted = contract, local_service, remote_service
        return all(own in (ANY, other) for own, other in zip(self.criteria, wanted, strict=True))


def level_of(priorities: Iterable[BrokerPriority], contract: str, local_service: str, remote_service: str) -> int:
    """Level of a new endpoint: that of the most specific match, else the default (behaviour 217).

    A named contract counts more than a named local service, and that more than a named remote service: read as the
    digits of a binary number they order the eight rows of the original's table.
    """
    found = [each for each in priorities if each.matches(contract, local_service, remote_service)]
    nearest = max(found, key=lambda each: [name != ANY for name in each.criteria], default=None)
    return DEFAULT_LEVEL if nearest is None else nearest.level
