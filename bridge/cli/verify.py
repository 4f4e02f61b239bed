"""`konverse verify`: proves or refutes, from the logs alone, that each message was received once and in order."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import redis
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from konverse.bridge.broker import Broker, connect
from konverse.bridge.verifier.check import KINDS, Finding, PartitionVerdict
from konverse.bridge.verifier.reading import Views
from konverse.bridge.verifier.shown import read_view
from konverse.bridge.view import connect_redis, reading
from konverse.schemas.catalog import Queue

from .connection import AsJson, Database, Kafka, RedisUrl

FINDINGS_SHOWN: Final = 20
COUNTED: Final = ("conversations", "accepted", "consumed", "unread", "outputs", "duplicates", "void", "undecodable")
"""What is said of a partition: properties of `PartitionVerdict`."""


def verify(
    queues: Annotated[list[str] | None, typer.Argument(help="Names of queues; none: all of the database")] = None,
    kafka: Kafka = None,
    redis_url: RedisUrl = None,
    database: Database = None,
    as_json: AsJson = False,  # a flag of the command line
) -> None:
    """Read the logs of queues and prove or refute: each message once, in order, none missing, every output delivered.

    A second implementation of the protocol does this; it shares nothing with the first but the record layouts. The
    system may work meanwhile. With a Redis, the view is compared too. Exit code 1: refuted.
    """
    with connect(kafka, redis=redis_url, database=database) as broker:
        chosen = [broker.catalog.get(Queue, name) for name in queues] if queues else broker.catalog.all(Queue)
        views = _views(broker.settings.redis, chosen) if broker.settings.redis else {}
        verdicts, findings = _run(broker, chosen, views, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(_as_dict(verdicts, findings), indent=2))
    else:
        _print(verdicts, findings)
    if findings:
        raise typer.Exit(1)


def _run(
    broker: Broker, queues: list[Queue], views: Views, *, quiet: bool
) -> tuple[list[PartitionVerdict], list[Finding]]:
    verification = broker.verification(queues)
    columns = (TextColumn("Reading"), BarColumn(), MofNCompleteColumn(), TextColumn("records"))
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
            task = progress.add_task("", total=verification.records)
            return verification.run(lambda count: progress.advance(task, count), views)
    finally:
        verification.close()


def _views(url: str, queues: list[Queue]) -> Views:
    try:
        with connect_redis(url) as client:
            found = {(queue.topic, n): read_view(client, queue, n) for queue in queues for n in range(queue.partitions)}
    except redis.RedisError as error:
        raise reading(error, url) from None
    return {place: shown for place, shown in found.items() if shown is not None}


def _as_dict(verdicts: list[PartitionVerdict], findings: list[Finding]) -> dict[str, Any]:
    return {
        "holds": not findings,
        "partitions": {v.place.name: {name: getattr(v, name) for name in COUNTED} for v in verdicts},
        "findings": [
            {"rule": f.rule, "kind": KINDS[f.rule], "partition": f.partition, "text": f.text} for f in findings
        ],
    }


def _print(verdicts: list[PartitionVerdict], findings: list[Finding]) -> None:
    console = Console()
    table = Table("partition", *COUNTED)
    for column in table.columns[1:]:
        column.justify = "right"
    for verdict in verdicts:
        table.add_row(escape(verdict.place.name), *(f"{getattr(verdict, name):,}" for name in COUNTED))
    console.print(table)
    for finding in findings[:FINDINGS_SHOWN]:
        console.print(f"{finding.partition}: {KINDS[finding.rule]} ({finding.rule}): {finding.text}", markup=False)
    if len(findings) > FINDINGS_SHOWN:
        console.print(f"and {len(findings) - FINDINGS_SHOWN} more; --json has all of them")
    if findings:
        console.print(f"REFUTED: {len(findings)} findings", style="bold red")
    else:
        console.print(
            "Verified: each message once, in order, none missing; every output where it belongs", style="green"
        )
