"""`konverse accept-loss`: lets a halted partition continue without the deleted data that its journal needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from konverse.bridge.admin.loss import Loss, LostConversation
from konverse.schemas.counting import counted
from konverse.schemas.errors import InvalidState

from .confirmation import check_answer, confirmed
from .connection import AsJson, Database, Kafka, opened
from .tables import ROWS_SHOWN, print_json, print_more, print_table


def accept_loss(
    queue: Annotated[str, typer.Argument(help="Name of a queue")],
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition that halted")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the deleted data that a halted partition needs, ask for confirmation, and let it continue without the data.

    For a partition that halted because waiting data was deleted. Each of its conversations gets Error -9719 on both
    sides; the far sides of forgotten conversations get it first. Then the loss is recorded in the journal (LOST). Stop
    all readers of the queue beforehand. With --json there is no question: without --yes the command only lists.
    """
    if not as_json:
        check_answer("--yes", yes=yes)
    with opened(kafka, database=database) as broker:
        loss = broker.operations.lost(queue, partition)
        if loss is None:
            raise InvalidState(
                f"partition {partition} of queue {queue!r} has lost nothing that it needs: nothing has to be given up, "
                "and a reader can read it. Far sides that an earlier accept-loss could not read are listed by "
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
    decisions = counted(loss.commits, "decision of the journal depends", "decisions of the journal depend")
    typer.echo(
        f"partition {loss.partition} of queue {loss.queue!r}: the records {loss.first} to {loss.last} are lost. Those "
        f"before {loss.log_begins} were deleted, and {decisions} on them"
    )
    columns = ("conversation", "side", "service", "talks to", "then")
    rows = [
        (one.conversation, one.role, one.service or "unknown", one.far_service or "unknown", _then(one))
        for one in loss.conversations[:ROWS_SHOWN]
    ]
    print_table(f"{counted(len(loss.conversations), 'conversation')} as far as known", columns, rows)
    print_more(len(loss.conversations))


def _then(one: LostConversation) -> str:
    if not one.known:
        return "is forgotten"
    if not one.waiting:
        return "fails"
    return f"fails, {counted(one.waiting, 'message')} given up"
