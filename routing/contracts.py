"""Which contracts a router must accept: the union of the contracts of the services behind it.

Source: section 9 of the original's sample, "the routing service supports the union of all the contracts supported by
the target services"; behaviour 230.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from konverse.schemas.errors import InvalidRoute


def check_declared(router: str, declared: Collection[str], listed: Collection[str]) -> None:
    """Raise InvalidRoute unless a router is declared with exactly the contracts that its service lists."""
    missing = sorted(set(declared) - set(listed))
    if missing:
        raise InvalidRoute(
            f"router {router!r} is declared with {_named(missing)}, which its service does not list: it would "
            f"never receive a conversation under {_it(missing)}. Add {_it(missing)} with "
            f"broker.admin.alter_service({router!r}, add={missing!r})"
        )
    further = sorted(set(listed) - set(declared))
    if further:
        raise InvalidRoute(
            f"service {router!r} lists {_named(further)}, with which its router is not declared. Name {_it(further)} "
            f"among the router's contracts, or take {_it(further)} away with broker.admin.alter_service({router!r}, "
            f"drop={further!r})"
        )


def check_union(router: str, listed: Collection[str], targets: Mapping[str, Collection[str]]) -> None:
    """Raise InvalidRoute unless a router lists the union of its targets' contracts. `targets`: service -> contracts."""
    for service in sorted(targets):
        missing = sorted(set(targets[service]) - set(listed))
        if missing:
            raise InvalidRoute(
                f"router {router!r} does not list {_named(missing)}, which its target {service!r} accepts: a router "
                f"has to list every contract of its targets. Add {_it(missing)} with "
                f"broker.admin.alter_service({router!r}, add={missing!r})"
            )
    further = sorted(set(listed).difference(*targets.values()))
    if further:
        raise InvalidRoute(
            f"router {router!r} lists {_named(further)}, which none of its targets accepts "
            f"({', '.join(map(repr, sorted(targets)))}): conversations under {_it(further)} could not be routed. "
            f"Add {_it(further)} to a target with broker.admin.alter_service, or drop {_it(further)} from the router"
        )


def check_accepts(contract: str, target: str, accepted: Collection[str]) -> None:
    """Raise InvalidRoute when a target does not accept the contract of the conversation."""
    if contract not in accepted:
        raise InvalidRoute(
            f"a conversation under contract {contract!r} was classified as one for {target!r}, which does not accept "
            f"that contract. Add it with broker.admin.alter_service({target!r}, add=[{contract!r}]), or let the "
            "classifier answer with another service"
        )


def _named(contracts: Collection[str]) -> str:
    names = ", ".join(map(repr, contracts))
    return f"contract {names}" if len(contracts) == 1 else f"contracts {names}"


def _it(contracts: Collection[str]) -> str:
    return "it" if len(contracts) == 1 else "them"
