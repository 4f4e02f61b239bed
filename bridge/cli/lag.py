"""`konverse lag`: what waits in the queues of a database, for how long, and what is parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from konverse.bridge.views.lag import PartitionLag
from konverse.schemas.counting import counted

from .connection import AsJson, Database, Kafka, opened
from .tables import print_json, print_table
from .values import age

_COLUMNS: Final = ("queue", "partition", "messages", "offsets", "oldest", "parked", "reader")


def lag(
    queue: Annotated[str | None, typer.Argument(help="Name of a queue; none: all of the database")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show how many messages wait in each partition, since when, and how many conversations are parked.

    "messages": accepted and not received. "offsets": at the end of the log, not ingested by an owner yet. "oldest": age
    of the oldest of both. "parked": suspended conversations, see `konverse suspended`. The logs are read, without
    disturbing the owners; Redis is not needed. Without a queue the instance's transmission queue is shown as well.
    """
    with opened(kafka, database=database) as broker:
        found = [*broker.operations.lag(queue)]
    if as_json:
        print_json([one._asdict() for one in found])
        return
    print_table(_summary(found), _COLUMNS, map(_cells, found))
    for one in found:
        if one.unreadable:
            typer.echo(f"{one.queue}/{one.partition} cannot be read: {one.unreadable}")


def _summary(found: Sequence[PartitionLag]) -> str:
    messages, offsets = sum(one.messages for one in found), sum(one.offsets for one in found)
    oldest = max((one.oldest_s for one in found if one.oldest_s is not None), default=None)
    since = "" if oldest is None else f"; the oldest is {age(oldest)} old"
    return f"{counted(messages, 'message waits', 'messages wait')}, {counted(offsets, 'offset')} not ingested{since}"


def _cells(one: PartitionLag) -> tuple[object, ...]:
    if one.unreadable:
        return one.queue, one.partition, "?", "?", "?", "?", "?"
    oldest = "" if one.oldest_s is None else age(one.oldest_s)
    return one.queue, one.partition, one.messages, one.offsets, oldest, one.parked, "yes" if one.reader else "NO READER"
