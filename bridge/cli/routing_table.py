"""`konverse table`: shows and changes routing tables, by single entries or by files of CSV or JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from konverse.schemas.catalog.routing_tables import RoutingTable
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidRoute, InvalidSettings

from .connection import AsJson, Database, Kafka, connected
from .tables import ROWS_SHOWN, print_json, print_more, print_table

STANDARD_INPUT: Final = "-"
_COLUMNS: Final = ("key", "service", "broker_instance")

table = typer.Typer(no_args_is_help=True, help="Routing tables: the service for the conversations of each key.")

Name = Annotated[str, typer.Argument(metavar="TABLE", help="Name of a routing table")]
Entries = Annotated[list[str] | None, typer.Argument(metavar="KEY=SERVICE …", help="Entries; KEY=SERVICE@INSTANCE too")]
File = Annotated[
    str | None,
    typer.Option("--file", help="Entries of a file, - for stdin: CSV with key,service[,broker_instance], or JSON"),
]
Default = Annotated[str | None, typer.Option(help="SERVICE[@INSTANCE] for keys without an entry")]
Routers = Annotated[
    list[str] | None, typer.Option("--router", help="Service whose router uses the table; may be repeated")
]


@table.command("create")
def create(
    name: Name,
    entries: Entries = None,
    *,
    file: File = None,
    default: Default = None,
    routers: Routers = None,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Create a routing table. All entries take effect at once, or none."""
    wanted = _entries(entries, file)
    with connected(kafka, database=database) as broker:
        made = broker.admin.create_routing_table(name, wanted, default=_default(default), routers=routers or [])
    _print_change(made, "is created")


@table.command("set")
def set_entries(
    name: Name,
    entries: Entries = None,
    *,
    file: File = None,
    default: Default = None,
    no_default: Annotated[
        bool, typer.Option("--no-default", help="Remove the default: keys without an entry are unknown")
    ] = False,
    routers: Routers = None,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Add or replace entries of a routing table; other entries stay. All take effect at once, or none."""
    wanted = _entries(entries, file)
    with connected(kafka, database=database) as broker:
        made = broker.admin.alter_routing_table(
            name, set=wanted, default=_default(default), without_default=no_default, routers=routers or None
        )
    _print_change(made, "is changed")


@table.command("remove")
def remove(
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY …", help="Keys of entries")],
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Remove entries of a routing table."""
    with connected(kafka, database=database) as broker:
        made = broker.admin.alter_routing_table(name, remove=keys)
    _print_change(made, "is changed")


@table.command("show")
def show(
    name: Name,
    key: Annotated[str | None, typer.Option(help="The service for this key only")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show a routing table. `create --file` reads the entries that --json prints."""
    with connected(kafka, database=database) as broker:
        found = broker.admin.routing_table(name)
    entries = {each: found.entries[each] for each in sorted(found.entries)}
    if key is not None:
        entries = {key: entries[key]} if key in entries else {}
    if as_json:
        print_json(_plain(found, entries))
        return
    shown = list(entries.items())[:ROWS_SHOWN]
    title = f"{name}, version {found.version}: {counted(len(found.entries), 'key')}"
    print_table(title, _COLUMNS, ((each, target.service, target.broker_instance or "") for each, target in shown))
    print_more(len(entries))
    typer.echo(f"other keys: {_said(found.default)}")
    if found.routers:
        typer.echo(f"routers: {', '.join(found.routers)}")


@table.command("drop")
def drop(name: Name, kafka: Kafka = None, database: Database = None) -> None:
    """Drop a routing table. Messages routed by it wait until a table of that name exists again."""
    with connected(kafka, database=database) as broker:
        broker.admin.drop_routing_table(name)
    typer.echo(f"routing table {name!r} is dropped")


def _print_change(made: RoutingTable, what: str) -> None:
    typer.echo(f"routing table {made.name!r} {what}: version {made.version}, {counted(len(made.entries), 'key')}")


def _said(target: Target | None) -> str:
    if target is None:
        return "no service"
    return target.service + (f"@{target.broker_instance}" if target.broker_instance else "")


def _plain(found: RoutingTable, entries: dict[str, Target]) -> dict[str, Any]:
    return {
        "name": found.name,
        "version": found.version,
        "entries": {key: _of(target) for key, target in entries.items()},
        "default": None if found.default is None else _of(found.default),
        "routers": list(found.routers),
    }


def _of(target: Target) -> str | dict[str, str]:
    """A target in the format of files: only its name, unless it has a broker instance."""
    instance = target.broker_instance
    return target.service if instance is None else {"service": target.service, "broker_instance": instance}


def _default(text: str | None) -> Target | None:
    return None if text is None else _target(text)


def _target(text: str) -> Target:
    """Parse `SERVICE` or `SERVICE@INSTANCE`. An @ with no id after it belongs to the name of the service."""
    service, at, instance = text.rpartition("@")
    looks_like_an_id = at and len(instance) == 36 and instance.count("-") == 4
    return Target(service, instance) if looks_like_an_id else Target(text)


def _entries(given: Iterable[str] | None, file: str | None) -> dict[str, Target]:
    """Entries of the command line and of a file. A key given twice is an error: one of its entries would be lost."""
    found: dict[str, Target] = {}
    for key, target in [*_pairs(given or ()), *(_from_file(file) if file is not None else ())]:
        if key in found:
            raise InvalidRoute(f"key {key!r} is given more than once; give each key once")
        found[key] = target
    return found


def _pairs(given: Iterable[str]) -> Iterable[tuple[str, Target]]:
    for text in given:
        key, equals, service = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form KEY=SERVICE")
        yield key, _target(service)


def _from_file(place: str) -> list[tuple[str, Target]]:
    try:
        data = sys.stdin.buffer.read() if place == STANDARD_INPUT else Path(place).read_bytes()
        text = StringIO(data.decode("utf-8-sig"), newline=None).getvalue()  # line ends as in a text file
    except OSError as error:
        raise InvalidSettings(f"{place} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{place} is not encoded in UTF-8: {error.reason} at byte {error.start}") from None
    return _from_json(place, text) if text.lstrip().startswith("{") else _from_csv(place, text)


def _from_json(place: str, text: str) -> list[tuple[str, Target]]:
    """Parse an object of keys and services, or the output of `show --json`."""
    try:
        data: Any = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"{place} is not a JSON document: {error}") from None
    inner = dict(data).get("entries")
    rows = inner if isinstance(inner, _Pairs) else data
    return [(key, _of_json(place, key, value)) for key, value in rows]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its pairs, including repeated names."""


def _of_json(place: str, key: str, value: Any) -> Target:
    if isinstance(value, str):
        return Target(value)
    fields = dict(value) if isinstance(value, _Pairs) else {}
    service, instance = fields.get("service"), fields.get("broker_instance")
    if not isinstance(service, str) or not isinstance(instance, str | None):
        raise InvalidSettings(f"{place}: key {key!r} has no service; give its name, or service and broker_instance")
    return Target(service, instance)


def _from_csv(place: str, text: str) -> list[tuple[str, Target]]:
    rows = csv.reader(StringIO(text), strict=True)
    found: list[tuple[str, Target]] = []
    try:
        for row in rows:
            if not row or (not found and [each.strip() for each in row] == list(_COLUMNS[: len(row)])):
                continue
            if len(row) not in (2, 3):
                raise InvalidSettings(
                    f"{place}, line {rows.line_num}: {len(row)} columns; a row has {','.join(_COLUMNS)}"
                )
            found.append((row[0], Target(row[1], row[2] or None if len(row) == 3 else None)))
    except csv.Error as error:
        raise InvalidSettings(f"{place}, line {rows.line_num}: {error}") from None
    return found
