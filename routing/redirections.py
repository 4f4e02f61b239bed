"""Where an initiator goes that is redirected from service to service: never in a circle (behaviour 233)."""

from __future__ import annotations

from collections.abc import Sequence

from konverse.schemas.errors import InvalidRoute
from konverse.schemas.limits import ROUTER_HOPS_MAX

from .decisions import Target


def followed(way: Sequence[Target], target: Target) -> tuple[Target, ...]:
    """The way of an initiator, from the service that it asked first on, with where it is redirected now.

    Raises InvalidRoute for a service at which it has been, and for more than ROUTER_HOPS_MAX redirections.
    """
    if target in way or len(way) > ROUTER_HOPS_MAX:
        names = " to ".join(repr(one.service) for one in (*way, target))
        raise InvalidRoute(
            f"redirected from {names}: "
            + (
                "routers redirect in a circle, and nobody on it answers. Look at what they decide"
                if target in way
                else f"{ROUTER_HOPS_MAX} redirections are the most that are followed"
            )
        )
    return (*way, target)
