"""`konverse route explain`: where messages for a service go by the routes, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from konverse.routing.routes.decision import MatchStep, RouteDecision
from konverse.schemas.catalog.routes import NEVER, Route

from .connection import AsJson, Database, Kafka, connected
from .tables import print_json, print_table

_STEPS: Final = {
    MatchStep.REPLY: "its broker id is that of a database of this instance",
    MatchStep.NAMED: "routes with this service and this broker id",
    MatchStep.SERVICE: "routes with this service and no broker id",
    MatchStep.ANY_ID: "routes with this service and any one broker id",
    MatchStep.ASK: "a dynamic routing service",
    MatchStep.WILDCARD: "routes with neither",
    MatchStep.AS_LOCAL: "a named broker id, and the service in this instance",
    MatchStep.NONE: "none of these",
}

route = typer.Typer(help="Routes to services of other databases and instances", no_args_is_help=True)


@route.callback()
def _route() -> None:
    """Routes to services of other databases and instances."""


@route.command("explain")
def explain_route(
    *,
    service: Annotated[str, typer.Option(help="Name of the service to which messages go")],
    broker_id: Annotated[UUID | None, typer.Option(help="Broker id that the conversation names")] = None,
    arrived: Annotated[
        bool, typer.Option("--arrived", help="The message comes from outside the instance: the routes of msdb count")
    ] = False,
    reply: Annotated[
        bool, typer.Option("--reply", help="The message comes from outside, from the target of a conversation")
    ] = False,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show which route messages for a service take: the step that matched, its routes, the choice, and why.

    Nothing is sent. Among equal routes or databases one is chosen at random, so another call may show another choice.
    BEGIN DIALOG decides in this way among the databases of the instance. The exit code is 0 whatever the decision is.
    """
    with connected(kafka, database=database) as broker:
        found = broker.admin.explain_route(service, broker_id=broker_id, arrived=arrived, reply=reply)
    if as_json:
        print_json(_plain(found))
        return
    _print(found, service, _taken(found, named=broker_id is not None, arrived=arrived or reply))


def _print(found: RouteDecision, service: str, taken: list[MatchStep]) -> None:
    typer.echo(f"service   {service}")
    typer.echo(f"routes of {found.table}")
    for step in taken:
        mark = "matched" if step is found.step else "no match"
        typer.echo(f"step {step.value}    {mark}: {_STEPS[step]}")
    if found.candidates:
        rows = [_row(one, "yes" if one is found.route else "no") for one in found.candidates]
        print_table("candidates", _row_names(), rows)
    typer.echo(f"outcome   {found.outcome.value}: {found.reason}")
    for address in found.addresses:
        typer.echo(f"address   {address}")
    for wake in found.wakes:
        typer.echo(f"waits     until {wake.value}")


def _taken(found: RouteDecision, *, named: bool, arrived: bool) -> list[MatchStep]:
    """The steps that were tried, up to the one that ended matching."""
    if found.step is MatchStep.REPLY:
        return [MatchStep.REPLY]
    passed_over = {MatchStep.REPLY, MatchStep.ANY_ID if named else MatchStep.NAMED}
    if arrived:
        passed_over.add(MatchStep.ASK)
    if not named:
        passed_over.add(MatchStep.AS_LOCAL)
    return [step for step in MatchStep if step <= found.step and step not in passed_over]


def _row_names() -> list[str]:
    return ["chosen", "route", "service", "broker id", "address", "mirror", "expires"]


def _row(one: Route, mark: str) -> list[object]:
    never = one.expires_ms == NEVER
    expires = "never" if never else f"{datetime.fromtimestamp(one.expires_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    return [
        mark, one.name, one.service_name or "any", one.broker_instance or "any", one.address,
        one.mirror_address or "", expires,
    ]  # fmt: skip


def _plain(found: RouteDecision) -> dict[str, Any]:
    return {
        "outcome": found.outcome.value,
        "reason": found.reason,
        "table": found.table,
        "step": found.step.value,
        "candidates": [one.name for one in found.candidates],
        "route": found.route and found.route.name,
        "database": found.database and found.database.name,
        "addresses": [str(address) for address in found.addresses],
        "asks": found.asks,
        "waits_until": [wake.value for wake in found.wakes],
    }
