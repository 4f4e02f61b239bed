"""Shared by all commands: the options for servers and database, and the connection to them."""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue
from typing import Annotated, Final

import typer

from konverse.bridge.broker import Broker
from konverse.bridge.runtime.settings import DEFAULT_DATABASE, Settings
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import UnknownObject

Kafka = Annotated[str | None, typer.Option("--kafka", help="kafka://host:port (else KONVERSE_KAFKA)")]
RedisUrl = Annotated[str | None, typer.Option("--redis", help="redis://host:port (else KONVERSE_REDIS)")]
Database = Annotated[str | None, typer.Option("--database", help="Database (else KONVERSE_DATABASE)")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables")]

DATABASES_SHOWN: Final = 10

SILENT_S: Final = 1.0
"""Time after which a wait for Kafka is announced on a terminal."""


def connected(kafka: str | None, *, redis: str | None = None, database: str | None = None) -> Broker:
    """Connect; on a terminal announce a long wait. Ctrl-C ends the wait at once."""
    settings = Settings.load(kafka=kafka, redis=redis, database=database)
    # Ctrl-C can leave the lock of a Future half released, and then RuntimeError takes the place of KeyboardInterrupt
    made: SimpleQueue[Broker | BaseException] = SimpleQueue()

    def connect() -> None:
        try:
            made.put(Broker(settings))
        except BaseException as error:  # noqa: BLE001  # the waiting thread raises it
            made.put(error)

    # Kafka's client does not return before its timeout, not even on Ctrl-C. Only a daemon thread can be abandoned.
    threading.Thread(target=connect, name="konverse-connect", daemon=True).start()
    try:
        result = made.get(timeout=SILENT_S)
    except Empty:
        if sys.stderr.isatty():
            typer.echo(
                f"Waiting up to {settings.connect_timeout_s:.0f} s for Kafka at {settings.bootstrap} ...", err=True
            )
        result = made.get()
    if isinstance(result, BaseException):
        raise result
    return result


def opened(kafka: str | None, *, redis: str | None = None, database: str | None = None) -> Broker:
    """Connect to a database that must exist. Raises UnknownObject if no database has the name.

    The default database counts as existing before anything is created in it.
    """
    broker = connected(kafka, redis=redis, database=database)
    try:
        if not broker.catalog.all(Queue):
            if broker.database not in (*broker.catalog.databases(), DEFAULT_DATABASE):
                raise UnknownObject(f"there is no database {broker.database!r} {_others(broker)}")
            typer.echo(f"konverse: there is no queue in database {broker.database!r} {_others(broker)}", err=True)
    except BaseException:
        broker.close()
        raise
    return broker


def _others(broker: Broker) -> str:
    known = broker.catalog.databases()
    more = f" and {len(known) - DATABASES_SHOWN} more" if len(known) > DATABASES_SHOWN else ""
    databases = (", ".join(known[:DATABASES_SHOWN]) or "none yet") + more
    return f"(databases: {databases}); name another with --database or KONVERSE_DATABASE"
