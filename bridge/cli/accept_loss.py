"""`konverse accept-loss`: lets a partition go on that halted because data which its journal needs were deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from konverse.bridge.admin.loss import Loss, LostConversation
from konverse.schemas.errors import InvalidState

from .asking import check_answer, confirmed
from .connection import AsJson, Database, Kafka, opened
from .tables import print_json, print_table


def accept_loss(
    queue: Annotated[str, typer.Argument(help="Name of a queue")],
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition that halted")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the deleted data that a halted partition needs, ask, and let it go on without them.

    For a partition that halted because waiting data were deleted. Each of its conversations gets Error -9719 on both
    sides, first the far sides of those that are forgotten. Then the loss is recorded in the journal (LOST). Stop all
    readers of the queue first. With --json nothing is asked: without --yes it only lists.
    """
    if not as_json:
        check_answer("--yes", yes=yes)
    with opened(kafka, database=database) as broker:
        loss = broker.operations.lost(queue, partition)
        if loss is None:
            raise InvalidState(
                f"partition {partition} of queue {queue!r} has lost nothing that it needs: nothing has to be given up, "
                "and a reader can read it. Far sides that could not be read by an earlier accept-loss are listed by "
                "`konverse conversations --leaked`"
            )
        if as_json:
            if yes:
                loss = broker.operations.accept_loss(queue, partition)
            print_json(_plain(loss, accepted=yes))
            return
        _show(loss)
        if not confirmed("Give all of this up?", yes=yes):
            typer.echo("nothing was given up", err=True)
            return
        broker.operations.accept_loss(queue, partition)
    typer.echo(f"partition {partition} of queue {queue!r} can be read again; konverse verify reports the loss")


def _plain(loss: Loss, *, accepted: bool) -> dict[str, Any]:
    shown = asdict(loss)
    shown["conversations"] = [one | {"conversation": str(one["conversation"])} for one in shown["conversations"]]
    return shown | {"accepted": accepted}


def _show(loss: Loss) -> None:
    typer.echo(
        f"partition {loss.partition} of queue {loss.queue!r}: the records {loss.first} to {loss.last} are lost. Those "
        f"before {loss.log_begins} were deleted, and {loss.commits:,} decisions of the journal rest on them"
    )
    columns = ("conversation", "side", "service", "talks to", "then")
    rows = [
        (one.conversation, one.role, one.service or "unknown", one.far_service or "unknown", _then(one))
        for one in loss.conversations
    ]
    print_table(f"{len(rows):,} conversation{'' if len(rows) == 1 else 's'} as far as known", columns, rows)


def _then(one: LostConversation) -> str:
    if not one.known:
        return "is forgotten"
    if not one.waiting:
        return "fails"
    return f"fails, {one.waiting:,} message{'' if one.waiting == 1 else 's'} given up"
