"""`konverse view`: what Redis shows of a queue or of one conversation. `konverse list`: the catalog."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import redis
import typer
from rich.console import Console
from rich.table import Table

from konverse.bridge.broker import Broker, connect
from konverse.bridge.view import Header, ViewStore, reading
from konverse.dialog.view import Row
from konverse.schemas.catalog import Contract, MessageType, Queue, Service
from konverse.schemas.errors import DialogNotFound

from .connection import AsJson, Database, Kafka, RedisUrl

ROWS_SHOWN = 50

Where = tuple[str, int]


def view(
    what: Annotated[str, typer.Argument(help="Name of a queue, or id of a conversation")],
    kafka: Kafka = None,
    redis_url: RedisUrl = None,
    database: Database = None,
    as_json: AsJson = False,  # a flag of the command line
) -> None:
    """Show the state of a queue or conversation as Redis has it.

    Nothing rests on the view; where it is missing, the owner of the partition writes it again.
    """
    with connect(kafka, redis=redis_url, database=database) as broker:
        try:
            conversation = _conversation(what)
            if conversation is not None:
                _show_rows(_find(broker, conversation), as_json=as_json)
            else:
                _show_queue(broker.view(what), broker.catalog.get(Queue, what), as_json=as_json)
        except redis.RedisError as error:
            raise reading(error, broker.settings.redis or "") from None


def list_catalog(
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,  # a flag of the command line
) -> None:
    """List message types, contracts, queues and services of a database."""
    with connect(kafka, database=database) as broker:
        catalog = broker.catalog
        found: dict[str, list[dict[str, str]]] = {
            "message types": [{"name": m.name, "validation": m.validation} for m in catalog.all(MessageType)],
            "contracts": [
                {"name": c.name, "sent by": ", ".join(f"{k}: {v.value}" for k, v in c.sent_by.items())}
                for c in catalog.all(Contract)
            ],
            "queues": [{"name": q.name, "topic": q.topic, "partitions": str(q.partitions)} for q in catalog.all(Queue)],
            "services": [
                {"name": s.name, "queue": s.queue, "contracts": ", ".join(s.contracts)} for s in catalog.all(Service)
            ],
        }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for title, rows in found.items():
        table = Table(title=title, title_justify="left")
        for name in rows[0] if rows else ():
            table.add_column(name)
        for row in rows:
            table.add_row(*row.values())
        Console().print(table)


def _conversation(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _find(broker: Broker, conversation: UUID) -> list[tuple[Where, Row]]:
    found = [
        ((queue.name, partition), row)
        for queue in broker.catalog.all(Queue)
        for partition, row in broker.view(queue.name).find(conversation.bytes)
    ]
    if not found:
        raise DialogNotFound(
            f"the view shows no conversation {conversation}: it is over, its queue has no owner at present, "
            "or it belongs to another database"
        )
    return found


def _show_queue(store: ViewStore, queue: Queue, *, as_json: bool) -> None:
    headers = {number: store.header(number) for number in range(queue.partitions)}
    rows = [((queue.name, number), row) for number in range(queue.partitions) for row in store.rows(number)]
    if as_json:
        partitions = {number: asdict(header) if header else None for number, header in headers.items()}
        typer.echo(json.dumps({"partitions": partitions, "conversations": [_as_dict(*pair) for pair in rows]}))
        return
    table = Table(title=f"Queue {queue.name}", title_justify="left")
    for name in ("partition", "owner", "journal", "claim", "conversations", "unread"):
        table.add_column(name, justify="right")
    for number, header in headers.items():
        table.add_row(str(number), *_header_cells(header))
    Console().print(table)
    _print_rows(rows)


def _header_cells(header: Header | None) -> tuple[str, ...]:
    if header is None:
        return ("unknown", "", "", "", "")
    state = "" if header.complete else " (being written)"
    owner = header.owner[:8] + state
    return (owner, str(header.journal_offset), str(header.claim_offset), str(header.open), str(header.unread))


def _show_rows(rows: list[tuple[Where, Row]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([_as_dict(*pair) for pair in rows]))
    else:
        _print_rows(rows)


def _print_rows(rows: list[tuple[Where, Row]]) -> None:
    table = Table(title=f"{len(rows):,} conversation endpoints", title_justify="left")
    for name in ("conversation", "side", "partition", "state", "send seq", "receive seq", "consumed", "unread"):
        whole = name == "conversation"  # it is to be copied
        table.add_column(name, justify="left" if whole else "right", no_wrap=whole, min_width=36 if whole else None)
    for (queue, partition), row in rows[:ROWS_SHOWN]:
        sequence = "-" if row.send_sequence < 0 else str(row.send_sequence)
        unread = f"{row.unread}{' + error' if row.error_waits else ''}"
        table.add_row(
            str(row.conversation),
            row.role.name.lower(),
            f"{queue}/{partition}",
            f"{row.state.code} {row.state.name.lower()}",
            sequence,
            str(row.receive_sequence),
            str(row.consumed),
            unread,
        )
    Console().print(table)
    if len(rows) > ROWS_SHOWN:
        typer.echo(f"… and {len(rows) - ROWS_SHOWN:,} more; --json prints all")


def _as_dict(where: Where, row: Row) -> dict[str, Any]:
    return {
        "queue": where[0],
        "partition": where[1],
        **row._asdict(),
        "conversation": str(row.conversation),
        "role": row.role.name,
        "state": row.state.name,
    }
