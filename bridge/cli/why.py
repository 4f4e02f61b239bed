"""`konverse why`: where a conversation stands, and what it waits for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import track

from konverse.schemas.catalog.objects import Queue

from .connection import AsJson, Database, Kafka, opened
from .tables import print_json


def why(
    conversation: Annotated[UUID, typer.Argument(help="Id of a conversation")],
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Explain in words where a conversation stands and what it waits for.

    The logs of all queues are read, without disturbing their owners; Redis is not needed.
    """
    console = Console(stderr=True)
    with opened(kafka, database=database) as broker:
        partitions = sum(queue.partitions for queue in broker.catalog.all(Queue))
        looked = track(
            broker.why(conversation),
            "Reading",
            partitions,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        found = [side for sides in looked for side in sides]
    if as_json:
        print_json([asdict(side) for side in found])
        return
    for side in found:
        typer.echo(
            f"{side.role} {side.service}, {side.state}, in {side.queue}/{side.partition}, talks to {side.far_service}"
        )
        for reason in side.reasons:
            typer.echo(f"  {reason}")
