"""`konverse view QUEUE` and `konverse view ID`, from Redis where it is fresh; `konverse list`, the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import redis
import typer

from konverse.bridge.admin.instructions import report_unread
from konverse.bridge.broker import Broker
from konverse.bridge.redis.client import reading
from konverse.bridge.redis.view import Header
from konverse.bridge.runtime.arguments import did_you_mean
from konverse.bridge.views.partitions import PartitionView
from konverse.bridge.views.reading_state import (
    ReadingState,
    describe_dead,
    describe_forged,
    describe_stuck,
    describe_unknown,
    describe_unseen,
)
from konverse.bridge.views.views import COLUMNS
from konverse.dialog.owner.view import ViewRow
from konverse.dialog.state.endpoint import NO_TIME
from konverse.dialog.state.transitions import State
from konverse.schemas.catalog.objects import Contract, MessageType, Queue, Service
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.routes import NEVER, Route
from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.counting import counted
from konverse.schemas.errors import DialogNotFound, PartitionHalted, QueueNotFound

from .connection import AsJson, Database, Kafka, opened
from .tables import ROWS_SHOWN, print_json, print_more, print_table

FOLDED: Final = "the rows come from the logs"

Where = tuple[str, int]


def show(broker: Broker, what: str, *, as_json: bool) -> None:
    """Print the state of a queue, given its name, or of a conversation, given its id, from the view in Redis.

    Where Redis is behind the journal or lacks rows, the logs are folded, and a line says so. Whether the queue has a
    reader, and how much waits for one, is always read from the journals.
    """
    try:
        conversation = _conversation(what)
        if conversation is not None:
            _show_conversation(broker, conversation, as_json=as_json)
        else:
            queue = _queue(broker, what)
            states = [*broker.operations.reading_states(what)]
            if all(state.unreadable for state in states):
                raise PartitionHalted(states[0].unreadable)
            views = _views(broker, queue, states) if broker.settings.redis else None
            _show_queue(queue, states, views, as_json=as_json)
    except redis.RedisError as error:
        raise reading(error, broker.settings.redis or "") from None


def list_catalog(
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the objects of a database: message types, contracts, queues, services, routes, tables, priorities."""
    with opened(kafka, database=database) as broker:
        catalog = broker.catalog
        found: dict[str, list[dict[str, Any]]] = {
            "message_types": [_message_type(m) for m in catalog.all(MessageType)],
            "xml_schema_collections": [
                {"name": c.name, "documents": len(c.documents)} for c in catalog.all(XmlSchemaCollection)
            ],
            "contracts": [
                {"name": c.name, "sent_by": {name: side.value for name, side in c.sent_by.items()}}
                for c in catalog.all(Contract)
            ],
            "queues": [
                {"name": q.name, "partitions": q.partitions, "status": "ON" if q.status else "OFF", "topic": q.topic}
                for q in catalog.all(Queue)
            ],
            "services": [asdict(s) for s in catalog.all(Service)],
            "routes": [_route(r) for r in catalog.all(Route)],
            "routing_tables": [_routing_table(t) for t in catalog.all(RoutingTable)],
            "broker_priorities": [asdict(p) for p in catalog.all(BrokerPriority)],
        }
    if as_json:
        print_json(found)
    else:
        for title, rows in found.items():
            if rows:
                columns = [name.replace("_", " ") for name in rows[0]]
                print_table(title.replace("_", " "), columns, ([_cell(cell) for cell in row.values()] for row in rows))


def _message_type(value: MessageType) -> dict[str, Any]:
    by = value.schema_collection or ("a schema of its own" if value.schema else "")
    return {"name": value.name, "validation": value.validation.value, "schema": by}


def _route(value: Route) -> dict[str, Any]:
    expires = "never" if value.expires_ms == NEVER else datetime.fromtimestamp(value.expires_ms / 1000, UTC).isoformat()
    return {
        "name": value.name,
        "address": value.address,
        "service_name": value.service_name,
        "broker_instance": value.broker_instance,
        "mirror_address": value.mirror_address,
        "expires": expires,
    }


def _routing_table(value: RoutingTable) -> dict[str, Any]:
    return {
        "name": value.name,
        "version": value.version,
        "keys": len(value.entries),
        "default": value.default.service if value.default is not None else "",
        "routers": list(value.routers),
    }


def _cell(value: Any) -> object:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {side}" for name, side in value.items())
    return "\n".join(value) if isinstance(value, list | tuple) else value


def _conversation(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _queue(broker: Broker, name: str) -> Queue:
    queue = broker.catalog.find(Queue, name)
    if queue is None:
        like = did_you_mean(name, [*COLUMNS, *(each.name for each in broker.catalog.all(Queue))])
        raise QueueNotFound(f"there is neither a view nor, in database {broker.database!r}, a queue {name!r}{like}")
    return queue


def _show_conversation(broker: Broker, conversation: UUID, *, as_json: bool) -> None:
    found: list[tuple[Where, PartitionView]] = []
    unread: list[Exception] = []
    with closing(broker.operations.view_reader()) as reading_views:
        for queue in broker.catalog.all(Queue):
            for partition, view in reading_views.find(broker.view(queue.name), queue, conversation.bytes):
                if isinstance(view, Exception):
                    unread.append(view)
                else:
                    found.append(((queue.name, partition), view))
    report_unread(unread, found=bool(found))
    if not found:
        raise _not_found(broker, conversation)
    _show_rows([(where, row) for where, view in found for row in view.rows], as_json=as_json)
    for (queue_name, partition), view in found:
        if view.reason:
            typer.echo(f"{queue_name}/{partition}: {view.reason}; {FOLDED}", err=as_json)
        if view.overdue:
            typer.echo(f"{queue_name}/{partition}: data waits that no owner has ingested", err=as_json)


def _not_found(broker: Broker, conversation: UUID) -> DialogNotFound:
    """The error for a conversation that no partition has: it is over, elsewhere, or in data that nothing has read."""
    offsets, unread = 0, dict[str, None]()
    for queue in broker.catalog.all(Queue):
        for state in broker.operations.reading_states(queue.name):
            offsets += state.waiting
            if state.waiting and state.reader is False and not state.unreadable:
                unread[queue.name] = None
    return DialogNotFound(
        f"no queue of database {broker.database!r} has conversation {conversation}: it is over on both sides, or it "
        f"belongs to other databases (--database){describe_unseen(offsets, unread)}"
    )


def _views(broker: Broker, queue: Queue, states: list[ReadingState]) -> list[PartitionView]:
    """The view of each partition; an empty one where the logs cannot be read."""
    store = broker.view(queue.name)
    with closing(broker.operations.view_reader()) as reading_views:
        return [
            PartitionView(None, []) if state.unreadable else reading_views.read(store, queue, number)
            for number, state in enumerate(states)
        ]


def _show_queue(queue: Queue, states: list[ReadingState], views: list[PartitionView] | None, *, as_json: bool) -> None:
    """Print a queue. Without Redis `views` is None, and only the state in the journals is printed."""
    partitions = range(queue.partitions)
    headers = [views[number].header if views else None for number in partitions]
    rows = [((queue.name, number), row) for number in partitions for row in (views[number].rows if views else ())]
    if as_json:
        shown = {number: _partition_as_dict(headers[number], states[number]) for number in partitions}
        print_json({"partitions": shown, "conversations": [_as_dict(*pair) for pair in rows]})
    else:
        columns = ("partition", "owner", "journal", "claim", "conversations", "unread", "waiting")
        cells = ((n, *_header_cells(headers[n], states[n]), states[n].waiting) for n in partitions)
        print_table(f"Queue {queue.name}", columns, cells)
        for number in partitions:
            for line in _remarks(states[number]):
                typer.echo(f"{queue.name}/{number}: {line}")
        if views is not None:
            _print_rows(rows)
    for number, view in enumerate(views or ()):
        if view.reason:
            typer.echo(f"{queue.name}/{number}: {view.reason}; {FOLDED}", err=as_json)
    if views is None:
        typer.echo("Conversations need Redis: name one with --redis or KONVERSE_REDIS", err=as_json)


def _header_cells(header: Header | None, state: ReadingState) -> tuple[object, ...]:
    if state.unreadable:
        return ("UNREADABLE", "", "", "", "")
    owner = {True: state.owner.hex()[:8], False: "NO READER", None: "NOT KNOWN"}[state.reader]
    if header is None:
        return (owner, "", "", "", state.unread)
    owner += "" if header.complete else " (being written)"
    return (owner, header.journal_offset, header.claim_offset, header.open, state.unread)


def _remarks(state: ReadingState) -> Iterator[str]:
    """Lines about a partition that needs attention."""
    if state.unreadable:
        yield f"it cannot be read: {state.unreadable}"
        return
    if state.stuck:
        yield describe_stuck(state)
    yield from _no_reader(state)
    if state.membership.unknown:
        yield describe_unknown(state)
    if state.held_up:
        yield state.held_up
    if state.forged:
        yield describe_forged(state.forged, state.forged_at)


def _no_reader(state: ReadingState) -> Iterator[str]:
    """Lines for a partition without a reader: since when, and how much waits."""
    if state.reader is not False:
        return
    since = f"since {state.since:%Y-%m-%d %H:%M:%S} UTC" if state.since else "there never was one"
    unread = f"{counted(state.unread, 'unread message waits', 'unread messages wait')}, " if state.unread else ""
    yield f"NO READER, {since}; {unread}{counted(state.waiting, 'offset waits', 'offsets wait')}"
    dead = describe_dead(state)
    if dead:
        yield dead


def _partition_as_dict(header: Header | None, state: ReadingState) -> dict[str, Any]:
    return {
        **(asdict(header) if header else {}),
        "owner": None if state.reader is False else state.owner.hex(),
        "reader": state.reader,
        "reader_unknown": state.membership.unknown or None,
        "since": state.since.isoformat() if state.since else None,
        "silent_s": round(state.silent_s, 3) if state.last_write_ms else None,
        "stuck": state.stuck,
        "unread": state.unread,
        "waiting": state.waiting,
        "held_up": state.held_up or None,
        "forged": state.forged,
        "forged_at": state.forged_at,
        "unreadable": state.unreadable or None,
    }


def _show_rows(rows: list[tuple[Where, ViewRow]], *, as_json: bool) -> None:
    if as_json:
        print_json([_as_dict(*pair) for pair in rows])
    else:
        _print_rows(rows)


def _print_rows(rows: list[tuple[Where, ViewRow]]) -> None:
    """Print rows with the whole conversation id, so that it can be copied; some fields are only in --json."""
    columns = ("conversation", "side", "state", "sent", "received", "unread", "in")
    print_table(
        counted(len(rows), "conversation endpoint"),
        columns,
        (
            (
                row.conversation,
                "target" if row.role else "init",
                row.state.code,
                "-" if row.send_sequence < 0 else f"{row.send_sequence:,}",
                row.receive_sequence,
                f"{row.unread:,}{' +error' if row.error_waits else ''}{_trouble(row)}",
                f"{queue}/{partition}",
            )
            for (queue, partition), row in rows[:ROWS_SHOWN]
        ),
    )
    print_more(len(rows))


def _trouble(row: ViewRow) -> str:
    if row.suspended and row.state is not State.DISCONNECTED_OUTBOUND:  # else it was ended, and waits for its peer
        return " suspended"
    return f" ({row.attempts} failed)" if row.attempts else ""


def _as_dict(where: Where, row: ViewRow) -> dict[str, Any]:
    return {
        "queue": where[0],
        "partition": where[1],
        **row._asdict(),
        "conversation": str(row.conversation),
        "role": row.role.name,
        "state": row.state.name,
        "timer_due_ms": None if row.timer_due_ms == NO_TIME else row.timer_due_ms,
    }
