"""`konverse suspended`, `suspend`, `resume`, `skip` and `end`: commands of operators for conversations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from konverse.bridge.admin.instructions import Suspended
from konverse.schemas.counting import counted

from .connection import AsJson, Database, Kafka, opened
from .tables import ROWS_SHOWN, print_json, print_more, print_table
from .values import age, finite, seconds, utf8

Conversation = Annotated[UUID, typer.Argument(help="Id of a conversation")]
QueueName = Annotated[
    str | None, typer.Option("--queue", help="Queue of the side that is meant; default: all queues are searched")
]
Timeout = Annotated[
    float, typer.Option(min=0, callback=finite, help="Seconds to wait for the worker that owns the conversation")
]


def suspended(
    queue: Annotated[str | None, typer.Argument(help="Name of a queue; none: all of the database")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the conversations that wait for an operator: their handler failed five times, or `suspend` was called.

    The logs are read, without disturbing the owners; Redis is not needed.
    """
    with opened(kafka, database=database) as broker:
        found = [one for partition in broker.operations.suspended(queue) for one in partition]
    if as_json:
        print_json([_plain(one) for one in found])
        return
    columns = ("conversation", "in", "attempts", "age", "unread", "last error")
    print_table(
        counted(len(found), "suspended conversation"),
        columns,
        (
            (one.conversation, f"{one.queue}/{one.partition}", one.attempts, age(one.age_s), one.unread, one.reason)
            for one in found[:ROWS_SHOWN]
        ),
    )
    print_more(len(found))
    if found:
        typer.echo(
            "konverse resume, skip or end CONVERSATION lets it continue. To resume several:\n"
            "konverse resume --all --reason TEXT, or --older-than TIME"
        )


def _plain(one: Suspended) -> dict[str, Any]:
    return asdict(one) | {"conversation": str(one.conversation)}


def suspend(  # noqa: PLR0917  # options of a command
    conversation: Conversation,
    reason: Annotated[str, typer.Option(callback=utf8, help="What `konverse suspended` shows")] = "",
    queue: QueueName = None,
    timeout: Timeout = 15.0,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Stop the delivery of a conversation and its group, until it is resumed or skipped.

    The owner of its partition does this after the transaction that holds the group; the command returns when it is
    committed.
    """
    with opened(kafka, database=database) as broker:
        broker.operations.suspend(conversation, reason=reason, queue=queue, timeout=timeout)
    typer.echo(f"{conversation} is suspended")


def resume(
    conversation: Annotated[UUID | None, typer.Argument(help="Id of a suspended conversation")] = None,
    *,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="All suspended conversations of the database or --queue that match --reason or --older-than"
        ),
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="With --all: conversations whose last error contains this text, in any case")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="With --all: suspended for at least 90s, 30m, 1h, 2d ...; 0s: all of them")
    ] = None,
    queue: QueueName = None,
    timeout: Timeout = 15.0,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Deliver the messages of a suspended conversation again, with five more attempts; with --all those of several.

    The owners of the partitions do this; the command returns when it is committed. With --json it prints the resumed
    conversations in the form of `konverse suspended`.
    """
    if every == (conversation is not None):
        raise typer.BadParameter("give the id of a conversation, or --all", param_hint="CONVERSATION")
    if as_json and not every:
        raise typer.BadParameter("--json lists the conversations that --all resumes: add --all", param_hint="--json")
    if every == (reason is None and older_than is None):
        raise typer.BadParameter(
            "--all needs --reason TEXT or --older-than TIME, to choose the conversations (--older-than 0s: all of them)"
            if every
            else "--reason and --older-than choose the conversations that --all resumes: add --all",
            param_hint="--all",
        )
    older_than_s = None if older_than is None else seconds(older_than)
    with opened(kafka, database=database) as broker:
        if conversation is not None:
            broker.operations.resume(conversation, queue=queue, timeout=timeout)
            typer.echo(f"{conversation} is resumed")
            return
        found = broker.operations.resume_all(reason=reason, older_than=older_than_s, queue=queue, timeout=timeout)
    if as_json:
        print_json([_plain(one) for one in found])
        return
    for one in found:
        typer.echo(f"{one.conversation} is resumed")
    typer.echo(f"{counted(len(found), 'suspended conversation')} resumed")


def skip(
    conversation: Conversation,
    queue: QueueName = None,
    timeout: Timeout = 15.0,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Drop the first waiting message of a conversation, and resume the conversation if it is suspended.

    The owner of its partition does this after the transaction that holds the group; the command returns when it is
    committed.
    """
    with opened(kafka, database=database) as broker:
        broker.operations.skip(conversation, queue=queue, timeout=timeout)
    typer.echo(f"the first message of {conversation} is dropped; the others are delivered")


def end(
    conversation: Conversation,
    error: Annotated[int, typer.Option(min=0, help="Code of END WITH ERROR; 0: without error")] = 0,
    description: Annotated[str, typer.Option(callback=utf8, help="Text of the error")] = "",
    *,
    cleanup: Annotated[
        bool, typer.Option("--cleanup", help="Remove this side at once, without a message to the other side")
    ] = False,
    queue: QueueName = None,
    timeout: Timeout = 15.0,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """End a conversation; with --error the other side receives the error.

    If both sides live in the database, the suspended one is ended, or both if none is suspended; --queue chooses one.
    Use --cleanup when the other side is gone for good. A side in another database needs a call with its --database.

    The owner of its partition does this after the transaction that holds the group; the command returns when it is
    committed.
    """
    with opened(kafka, database=database) as broker:
        broker.operations.end(
            conversation, error=error, description=description, cleanup=cleanup, queue=queue, timeout=timeout
        )
    typer.echo(f"{conversation} is ended")


def error_broker_conversations(
    queue: Annotated[
        str | None, typer.Option("--queue", help="Conversations on this queue only; default: on all queues")
    ] = None,
    timeout: Timeout = 60.0,
    kafka: Kafka = None,
    database: Database = None,
) -> None:
    """Fail every open conversation of a database: both sides receive Error -9719, and must still be ended.

    For a database whose logs were restored from a backup. The owners of the conversations do it.
    """
    with opened(kafka, database=database) as broker:
        found = broker.operations.error_broker_conversations(queue=queue, timeout=timeout)
    typer.echo(f"{counted(found, 'conversation')} failed")
