"""`konverse view NAME`: one of Service Broker's views, as a table or as lines of JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

import typer

from konverse.bridge.broker import Broker
from konverse.bridge.views.view_result import View
from konverse.bridge.views.views import COLUMNS
from konverse.schemas.counting import counted

from .connection import Database, Kafka, RedisUrl, opened
from .show import show
from .tables import ROWS_SHOWN, print_more, print_table

OF_A_QUEUE: Final = ("conversation_endpoints", "conversation_groups", "contents")
"""Views that --queue can limit to one queue; `contents` requires it."""

SHORT: Final[dict[str, tuple[str, ...]]] = {
    "conversation_endpoints": ("conversation_id", "is_initiator", "state", "send_sequence", "receive_sequence"),
    "contents": ("conversation_handle", "status", "message_sequence_number", "message_type_name"),
    "transmission_queue": ("conversation_handle", "message_type_name", "transmission_status"),
}
"""Columns that a table shows, for views that have more than fit on a terminal."""


class Selection(NamedTuple):
    """The view to show, and the columns and rows wanted from it."""

    name: str
    queue: str | None
    columns: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    """Column and value; a row has all of these values."""

    def check(self) -> None:
        """Raise typer.BadParameter for a queue or a column that the view does not have."""
        if self.queue is not None and self.name not in OF_A_QUEUE:
            raise typer.BadParameter(f"{self.name} takes no queue: leave --queue out", param_hint="--queue")
        if self.queue is None and self.name == "contents":
            raise typer.BadParameter("contents needs a queue: add --queue", param_hint="--queue")
        for column in (*self.columns, *(column for column, _ in self.where)):
            if column not in COLUMNS[self.name]:
                known = ", ".join(COLUMNS[self.name])
                raise typer.BadParameter(f"{self.name} has no column {column}; it has {known}")

    def read(self, broker: Broker) -> View[Any]:
        """Read the view, with the columns that are needed."""
        read = getattr(broker.views, self.name)
        if self.name == "conversation_endpoints":
            view: View[Any] = read(self.queue, {*self.columns, *(column for column, _ in self.where)})
        else:
            view = read() if self.queue is None else read(self.queue)
        rows = [row for row in view if all(_matches(getattr(row, key), text) for key, text in self.where)]
        return View(rows, view.sources)


def view(
    what: Annotated[str, typer.Argument(help="Name of a view or queue, or id of a conversation")],
    *,
    queue: Annotated[str | None, typer.Option(help="Of this queue only; `contents` needs one")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns, with commas between them")] = None,
    where: Annotated[list[str] | None, typer.Option(help="COLUMN=VALUE: such rows only; may be repeated")] = None,
    kafka: Kafka = None,
    redis_url: RedisUrl = None,
    database: Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; for a view, one line per row")] = False,
) -> None:
    """Show one of Service Broker's views, or the state of a queue or of a conversation from Redis.

    The views: conversation_endpoints, conversation_groups, contents (of a queue), transmission_queue, databases,
    services, service_queues, service_contracts, service_message_types, service_contract_message_usages,
    service_contract_usages, service_queue_usages, routes, conversation_priorities. They come from Redis where it holds
    the columns that are shown, else from the logs; a line below the table says which, with --json on standard error.
    Nothing is consumed.
    """
    if what not in COLUMNS:
        if queue or columns or where:
            raise typer.BadParameter(f"{what} is not a view: --queue, --columns, --where are for {', '.join(COLUMNS)}")
        with opened(kafka, redis=redis_url, database=database) as broker:
            show(broker, what, as_json=as_json)
        return
    chosen = tuple(name.strip() for name in columns.split(",")) if columns else (() if as_json else SHORT.get(what, ()))
    wanted = Selection(what, queue, chosen or COLUMNS[what], tuple(map(_condition, where or ())))
    wanted.check()
    with opened(kafka, redis=redis_url, database=database) as broker:
        found = wanted.read(broker)
    if as_json:
        for row in found:
            typer.echo(json.dumps({name: _plain(getattr(row, name)) for name in wanted.columns}, ensure_ascii=False))
    else:
        _print(wanted, found)
    for line in _origins(found):
        typer.echo(line, err=as_json)


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not of the form COLUMN=VALUE", param_hint="--where")
    return column.strip(), value


def _matches(value: object, text: str) -> bool:
    """Whether a cell has the value that a user has typed: for bits also true or false."""
    return _text(value) == text or (isinstance(value, bool) and str(value).lower() == text.lower())


def _print(wanted: Selection, found: View[Any]) -> None:
    cells = ([_text(getattr(row, name)) for name in wanted.columns] for row in found[:ROWS_SHOWN])
    print_table(f"{wanted.name}: {counted(len(found), 'row')}", wanted.columns, cells)
    print_more(len(found))


def _origins(found: View[Any]) -> Iterable[str]:
    """Lines that name the sources of the rows."""
    redis = sum(source.from_redis for source in found.sources)
    if redis:
        yield f"{counted(redis, 'partition')} from Redis"
    for reason, count in Counter(source.reason for source in found.sources if not source.from_redis).items():
        yield f"{counted(count, 'partition')} folded from the logs{': ' if reason else ''}{reason}"
    yield from unseen(found)


def unseen(found: View[Any]) -> Iterable[str]:
    """A line with the number of offsets that were not read, if any."""
    offsets = sum(source.unseen for source in found.sources)
    if offsets:
        yield f"not read: {counted(offsets, 'offset')} of data that no owner has ingested"


def _plain(value: object) -> object:
    """A value as JSON: bytes as T-SQL prints them, times as ISO 8601."""
    if isinstance(value, bool | int | None):
        return value
    return _text(value)


def _text(value: object) -> str:
    """A value as a table shows it and --where compares it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):
        return f"0x{value.hex().upper()}"
    return value.isoformat() if isinstance(value, datetime) else str(value)
