"""`konverse lag`: the backlog of each partition: waiting messages, their age, and suspended conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from konverse.bridge.runtime.exit_codes import FAILED
from konverse.bridge.views.lag import PartitionLag
from konverse.schemas.counting import counted

from .connection import AsJson, Database, Kafka, opened
from .tables import print_json, print_table
from .values import age

_COLUMNS: Final = ("queue", "partition", "messages", "offsets", "oldest", "suspended", "reader")


def lag(
    queue: Annotated[str | None, typer.Argument(help="Name of a queue; none: all of the database")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show how many messages wait in each partition, since when, and how many conversations are suspended.

    "messages": accepted and not received. "offsets": at the end of the log, not ingested by an owner yet. "oldest": age
    of the oldest of both. "suspended": conversations, see `konverse suspended`. The logs are read, without
    disturbing the owners; Redis is not needed. Without a queue the instance's transmission queue is shown as well.
    """
    with opened(kafka, database=database) as broker:
        found = [*broker.operations.lag(queue)]
    if as_json:
        print_json([one._asdict() for one in found])
        _check_readable(found)
        return
    print_table(_summary(found), _COLUMNS, map(_cells, found))
    for one in found:
        if one.unreadable:
            typer.echo(f"{one.queue}/{one.partition} cannot be read: {one.unreadable}")
        for remark in filter(None, (one.held_up, one.unknown)):
            typer.echo(f"{one.queue}/{one.partition}: {remark}")
    _check_readable(found)


def _check_readable(found: Sequence[PartitionLag]) -> None:
    """Exit with an error when no partition could be read."""
    if found and all(one.unreadable for one in found):
        raise typer.Exit(FAILED)


def _summary(found: Sequence[PartitionLag]) -> str:
    messages, offsets = sum(one.messages or 0 for one in found), sum(one.offsets or 0 for one in found)
    oldest = max((one.oldest_s for one in found if one.oldest_s is not None), default=None)
    unread = sum(bool(one.unreadable) for one in found)
    return (
        f"{counted(messages, 'message waits', 'messages wait')}, {counted(offsets, 'offset')} not ingested"
        + ("" if oldest is None else f"; the oldest is {age(oldest)} old")
        + (f"; {counted(unread, 'partition')} cannot be read" if unread else "")
    )


def _cells(one: PartitionLag) -> tuple[object, ...]:
    if one.unreadable:
        return one.queue, one.partition, "?", "?", "?", "?", "?"
    oldest = "" if one.oldest_s is None else age(one.oldest_s)
    reader = {True: "yes", False: "NO READER", None: "not known"}[one.reader]
    return one.queue, one.partition, one.messages, one.offsets, oldest, one.suspended, reader
