"""`konverse router explain`: what a classifier decides about a message, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from konverse.bridge.broker import Broker
from konverse.bridge.catalog.lookups import bound
from konverse.routing.classifiers import Classifier, Explanation, parse
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidSettings, NotSupportedYet, ServiceNotFound
from konverse.schemas.limits import BODY_BYTES_MAX

from .connection import AsJson, Database, Kafka, connected
from .tables import print_json
from .values import utf8

STANDARD_INPUT: Final = "-"


class _Dialog(NamedTuple):
    """The part of a conversation that classifiers read."""

    key: bytes | None
    conversation: bytes = bytes(16)


class _Message(NamedTuple):
    """The part of a received message that classifiers read."""

    type: str
    body: bytes
    headers: list[tuple[str, bytes | str | None]]
    dialog: _Dialog


def explain(
    message: Annotated[str, typer.Argument(metavar="MESSAGE-FILE", help="File with the body of a message; -: stdin")],
    *,
    classifier: Annotated[
        str, typer.Option(help="KIND:ARGUMENT, like xpath:/order/region, or a description in JSON, or @FILE with one")
    ] = "to_service_name",
    table: Annotated[str | None, typer.Option(help="Look the key up in this routing table")] = None,
    message_type: Annotated[str, typer.Option("--type", help="Message type of the body; avro_field needs it")] = "",
    schema: Annotated[Path | None, typer.Option(help="avro_field: file with the Avro schema, else the type's")] = None,
    key: Annotated[str | None, typer.Option(help="The dialog's key, which key_hash uses")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show which service a message is for: the key found in it, the key's table entry, or why there is no service.

    Classifiers: to_service_name, xpath, json_path, avro_field, regular_expression, key_hash. Nothing is sent. The exit
    code is 0 even if the message cannot be classified.
    """
    made = _classifier(classifier, table, schema)
    key_bytes = None if key is None else key.encode("utf-8", "surrogateescape")  # any bytes, as on the command line
    read = _Message(message_type, _body(message), [], _Dialog(key_bytes))
    with connected(kafka, database=database) as broker:
        found: Explanation = bound(broker.network, made).explain(read)
        where = _where(broker, found)
    if as_json:
        print_json(_plain(made, found, where))
        return
    typer.echo(f"classifier  {made.described()['kind']}")
    typer.echo(f"key         {'none' if found.key is None else repr(found.key)}")
    if found.table is not None:
        how = "by default" if found.by_default else "an entry" if isinstance(found.decision, Target) else "not found"
        typer.echo(f"table       {found.table!r}, version {found.version}: {how}")
    if isinstance(found.decision, Target):
        typer.echo(f"service     {found.decision.service}{where and f' ({where})'}")
    else:
        typer.echo(f"service     none: {found.decision.reason}")


def _classifier(text: str, table: str | None, schema: Path | None) -> Classifier:
    if text.startswith("@"):
        text = _read(Path(text[1:])).decode("utf-8", "replace")
    utf8(text)
    if schema is not None:
        made = parse({**parse(text).described(), "schema": _read(schema).decode("utf-8", "replace")})
    else:
        made = parse(text)
    return made if table is None else made.with_table(table)


def _body(place: str) -> bytes:
    body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1) if place == STANDARD_INPUT else _read(Path(place))
    if len(body) > BODY_BYTES_MAX:
        raise InvalidSettings(f"the body has {len(body)} bytes or more; a message has at most {BODY_BYTES_MAX}")
    return body


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from None


def _where(broker: Broker, found: Explanation) -> str:
    """A remark on a target: its broker instance, or that no such service exists here."""
    if not isinstance(found.decision, Target):
        return ""
    service, instance = found.decision
    if instance not in {None, str(broker.catalog.broker_id)}:
        return f"in broker instance {instance}"
    try:
        database = broker.network.service(service).database
    except (ServiceNotFound, NotSupportedYet) as error:
        return str(error)
    return "" if database == broker.database else f"in database {database!r}"


def _plain(classifier: Classifier, found: Explanation, where: str) -> dict[str, Any]:
    target = found.decision if isinstance(found.decision, Target) else None
    return {
        "classifier": classifier.described(),
        "key": found.key,
        "table": found.table,
        "version": found.version,
        "by_default": found.by_default,
        "service": None if target is None else target.service,
        "broker_instance": None if target is None else target.broker_instance,
        "reason": where if isinstance(found.decision, Target) else found.decision.reason,
    }
