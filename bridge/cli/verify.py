"""`konverse verify`: proves or refutes, from the logs alone, that each message was received once and in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import entry_points
from typing import Annotated, Any, Final

import redis
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.redis.client import connect_redis, reading
from konverse.bridge.runtime.exit_codes import FAILED
from konverse.bridge.verifier.check import KINDS, Finding, PartitionVerdict
from konverse.bridge.verifier.reading import Judged, Verification, Views
from konverse.bridge.verifier.view import read_view
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.counting import counted
from konverse.schemas.errors import QueueNotFound, RedisUnavailable

from .connection import AsJson, Database, Kafka, RedisUrl, opened
from .tables import Page, print_json, print_table

FINDINGS_SHOWN: Final = 20
COUNTED: Final = ("conversations", "accepted", "consumed", "unread", "outputs", "duplicates")
"""Columns of the table: properties of `PartitionVerdict`."""

WAITING: Final = "waiting_offsets"
"""Property of `PartitionVerdict`: the number of data offsets that were not judged."""

RARE: Final = {
    "void": "void journal {records}",
    "undecodable": "undecodable journal {records}",
    "forged": "accepted {records} with the writer and counter of another record and different content",
    "foreign": "{records} without a konverse header",
    "malformed": "{records} with a broken konverse header",
    "copied": "{records} copied from another queue, or from an earlier one of this name",
}
"""Properties of `PartitionVerdict` that are printed only if they are not 0, and what they count."""


def verify(
    queues: Annotated[list[str] | None, typer.Argument(help="Names of queues; none: all of the database")] = None,
    kafka: Kafka = None,
    redis_url: RedisUrl = None,
    database: Database = None,
    since: Annotated[
        datetime | None, typer.Option(help="Begin at the last snapshot before this time (local) of each partition.")
    ] = None,
    *,
    all_databases: Annotated[
        bool, typer.Option("--all-databases", help="Verify the queues of all databases of the instance.")
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Have Spark read the partitions in parallel.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark's master for --spark; default: all cores of this machine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the logs of queues and prove or refute: each message once, in order, none missing, every output delivered.

    A second implementation of the protocol does this; it shares nothing with the first but the record layouts. The
    system may keep working. If Redis is configured, its view is compared as well; if Redis does not answer and was
    not named by --redis, a warning is printed and only the logs are verified. Exit code 1: refuted; 7: incomplete,
    because an open transaction of another producer holds up a log, or because a newer version wrote one.
    """
    if all_databases and queues:
        raise typer.BadParameter("verifies every queue: leave out the names", param_hint="--all-databases")
    since_ms = None if since is None else _milliseconds(since)
    with opened(kafka, redis=redis_url, database=database) as broker:
        names = _chosen(broker.catalog, queues or [], all_databases=all_databases)
        chosen = [*names]
        if not chosen:
            where = "no database of the instance" if all_databases else f"database {broker.database!r}"
            raise QueueNotFound(f"{where} has {'a queue' if all_databases else 'nothing'} to verify")
        chosen += [queue for queue in [broker.operations.transmission_queue()] if queue is not None and not queues]
        views = _views(broker.settings.redis, chosen, required=redis_url is not None)
        verification = broker.operations.verification(chosen, since_ms)
        judged = _spread(master) if spark else None
        verdicts, findings = _run(verification, views or {}, judged, quiet=as_json)
    stalled = verification.stalled
    if as_json:
        print_json({"view_compared": views is not None, **_as_dict(verdicts, findings, stalled)})
    else:
        _print({queue.topic: names.get(queue, queue.name) for queue in chosen}, verdicts, findings, stalled)
    if findings or stalled:
        raise typer.Exit(1 if findings else FAILED)


def _chosen(catalog: Catalog, queues: Sequence[str], *, all_databases: bool) -> dict[Queue, str]:
    """The queues to verify, each with the name that is printed."""
    if all_databases:
        databases = catalog.databases()
        return {queue: f"{name}/{queue.name}" for name in databases for queue in catalog.known_in(name, Queue)}
    named = [catalog.get(Queue, name) for name in dict.fromkeys(queues)]
    return {queue: queue.name for queue in named or catalog.all(Queue)}


def _milliseconds(since: datetime) -> int:
    try:
        return round(since.timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{since:%Y-%m-%d} is not a possible time of a record", param_hint="--since") from None


def _spread(master: str | None) -> Judged:
    """Load the function that has Spark judge partitions. It is an entry point, as `bridge` cannot import `spark`."""
    (found,) = entry_points(group="konverse.verifiers", name="spark")
    judged: Judged = found.load()(master)
    return judged


def _run(
    verification: Verification, views: Views, judged: Judged | None, *, quiet: bool
) -> tuple[list[PartitionVerdict], list[Finding]]:
    columns = (TextColumn("Reading"), BarColumn(), MofNCompleteColumn(), TextColumn("records"))
    console = Console(stderr=True)
    quiet = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("", total=verification.records)
        return verification.run(lambda count: progress.advance(task, count), views, judged)


def _views(url: str | None, queues: list[Queue], *, required: bool) -> Views | None:
    """Read the views in Redis; None without Redis, or if it does not answer and is not `required`."""
    if not url:
        return None
    try:
        with connect_redis(url) as client:
            found = {(queue.topic, n): read_view(client, queue, n) for queue in queues for n in range(queue.partitions)}
    except redis.RedisError as error:
        unavailable: RedisUnavailable = reading(error, url)
        if required:
            raise unavailable from None
        typer.echo(f"konverse: the view is not compared: {unavailable}", err=True)
        return None
    return {place: shown for place, shown in found.items() if shown is not None}


def _as_dict(verdicts: list[PartitionVerdict], findings: list[Finding], stalled: list[str]) -> dict[str, Any]:
    return {
        "holds": not findings and not stalled,
        "stalled": stalled,
        "partitions": {
            v.place.name: {name: getattr(v, name) for name in (*COUNTED, WAITING, *RARE)} | {"begins_at": _begins_at(v)}
            for v in verdicts
        },
        "findings": [
            {"rule": f.rule, "kind": KINDS[f.rule], "partition": f.partition, "text": f.text} for f in findings
        ],
    }


def _begins_at(verdict: PartitionVerdict) -> int:
    """Offset of the first data record that was verified."""
    start = verdict.place.start
    return 0 if start is None else start.end.ingest_to


def _not_judged(offsets: int) -> str:
    left = counted(offsets, "offset that no owner has ingested was", "offsets that no owner has ingested were")
    return f"{left} not judged"


def _print(
    names: Mapping[str, str], verdicts: list[PartitionVerdict], findings: list[Finding], stalled: list[str]
) -> None:
    """Print verdicts. `names` gives the printed name of the queue of each data topic."""
    console = Page()
    rows = [(f"{names[v.place.topic]}/{v.place.partition}", *(getattr(v, name) for name in COUNTED)) for v in verdicts]
    print_table("Partitions", ("partition", *COUNTED), rows)
    for (name, *_), verdict in zip(rows, verdicts, strict=True):
        if verdict.place.start is not None:
            typer.echo(f"{name}: the state before record {_begins_at(verdict):,} is taken from a snapshot, unverified")
        if verdict.waiting_offsets:
            typer.echo(f"{name}: {_not_judged(verdict.waiting_offsets)}")
        for rare, meaning in RARE.items():
            count = getattr(verdict, rare)
            if count:
                typer.echo(f"{name}: {count:,} {meaning.format(records='record' if count == 1 else 'records')}")
    for sentence in stalled:
        console.print(f"Not judged: {sentence}", markup=False)
    for finding in findings[:FINDINGS_SHOWN]:
        console.print(f"{finding.partition}: {KINDS[finding.rule]} ({finding.rule}): {finding.text}", markup=False)
    if len(findings) > FINDINGS_SHOWN:
        console.print(f"and {len(findings) - FINDINGS_SHOWN} more; --json has all of them")
    waiting = sum(verdict.waiting_offsets for verdict in verdicts)
    if findings:
        console.print(f"REFUTED: {counted(len(findings), 'finding')}", style="bold red")
    elif stalled:
        console.print(
            "INCOMPLETE: verified up to the open transactions; records after them were not judged", style="yellow"
        )
    elif waiting:
        console.print(
            f"Verified up to what owners have ingested; {_not_judged(waiting)}",
            style="yellow",
        )
    else:
        console.print(
            "Verified: each message once, in order, none missing; every output where it belongs", style="green"
        )
