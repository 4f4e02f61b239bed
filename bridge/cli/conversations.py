"""`konverse conversations`: lists sides of conversations, or with `--leaked` those left open by mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import typer

from konverse.bridge.admin.leaks import SILENT_S, ConversationSide, Leaked
from konverse.bridge.broker import Broker
from konverse.bridge.views.view_result import View
from konverse.dialog.state.transitions import State
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.counting import counted

from .confirmation import check_answer, confirmed
from .connection import AsJson, Database, Kafka, opened
from .tables import ROWS_SHOWN, print_json, print_more, print_table
from .values import finite, seconds
from .view import unseen

STATES: Final = tuple(state.code for state in State if state is not State.CLOSED)


class Filter(NamedTuple):
    """The criteria for sides to list."""

    queue: str | None
    service: str | None
    state: str | None

    def check_state(self) -> None:
        """Raise typer.BadParameter for an unknown state."""
        if self.state is not None and self.state not in STATES:
            raise typer.BadParameter(f"{self.state!r} is not one of {', '.join(STATES)}", param_hint="--state")

    def check_names(self, broker: Broker) -> None:
        """Raise QueueNotFound or ServiceNotFound."""
        if self.queue is not None:
            broker.catalog.get(Queue, self.queue)
        if self.service is not None:
            broker.catalog.get(Service, self.service)

    def has(self, side: ConversationSide) -> bool:
        """Whether a side has the wanted service and state; the queue was chosen before."""
        return self.service in (None, side.service) and self.state in (None, side.state)


def conversations(
    *,
    queue: Annotated[str | None, typer.Option(help="Sides on this queue only; default: on all queues")] = None,
    service: Annotated[str | None, typer.Option(help="Sides of this service only")] = None,
    state: Annotated[str | None, typer.Option(help=f"Sides in this state only: {', '.join(STATES)}")] = None,
    leaked: Annotated[bool, typer.Option("--leaked", help="Forgotten conversations only, with the reason")] = False,
    older_than: Annotated[
        str | None, typer.Option(help="With --leaked: silent for at least 90s, 30m, 1h, 2d ...; default: 1h")
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="With --leaked: end both sides of each listed conversation")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --end: do not ask")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, callback=finite, help="With --end: seconds to wait for the workers")
    ] = 15.0,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the sides of conversations; with --leaked those left open by mistake, why, and what to do.

    The logs are read, without disturbing the owners; Redis is not needed. With --end workers of `konverse run` end the
    listed conversations WITH CLEANUP: both sides are dropped with all unread messages, without notifying either.
    """
    if (end or older_than is not None) and not leaked:
        raise typer.BadParameter(
            "--end and --older-than are for leaked conversations: add --leaked", param_hint="--leaked"
        )
    if end:
        check_answer("--end", yes=yes, asks=not as_json)
    older_than_s = SILENT_S if older_than is None else seconds(older_than)
    wanted = Filter(queue, service, state)
    wanted.check_state()
    with opened(kafka, database=database) as broker:
        wanted.check_names(broker)
        if not leaked:
            _list(_only(wanted, broker.operations.conversations(queue)), as_json=as_json)
            return
        found = _only(wanted, broker.operations.leaked(older_than=older_than_s, queue=queue))
        if not as_json:
            _print_leaked(found)
        ended = set(_end(broker, found, timeout, yes=yes)) if end and found else set()
    if as_json:
        print_json([_plain(one) | ({"ended": one.conversation in ended} if end else {}) for one in found])
    for line in unseen(found):
        typer.echo(line, err=True)


def _only(wanted: Filter, found: View[Any]) -> View[Any]:
    return View([one for one in found if wanted.has(one)], found.sources)


def _list(found: View[ConversationSide], *, as_json: bool) -> None:
    if as_json:
        print_json([_plain(one) for one in found])
    else:
        columns = ("conversation", "side", "state", "unread", "service", "in")
        print_table(
            f"{counted(len(found), 'side')} of conversations",
            columns,
            (
                (one.conversation, _short(one), one.state, one.unread, one.service, f"{one.queue}/{one.partition}")
                for one in found[:ROWS_SHOWN]
            ),
        )
        print_more(len(found))
    for line in unseen(found):
        typer.echo(line, err=as_json)


def _short(side: ConversationSide) -> str:
    return "init" if side.role == "initiator" else side.role


def _print_leaked(found: View[Leaked]) -> None:
    """Print each leaked conversation, its sides, why each is leaked, and what to do."""
    causes = Counter(one.cause for one in found)
    each = ", ".join(f"{count:,} {cause}" for cause, count in causes.most_common())
    typer.echo(f"{counted(len(found), 'forgotten side')} of conversations" + (f": {each}" if each else ""))
    for conversation, sides in _by_conversation(found[:ROWS_SHOWN]):
        typer.echo(str(conversation))
        for one in sides:
            where = f"{one.queue}/{one.partition}, talks to {one.far_service}"
            typer.echo(f"  {one.role} {one.service}, {one.state}, in {where}")
            typer.echo(f"    {one.why}")
            typer.echo(f"    {one.remedy}")
    print_more(len(found))


def _by_conversation(found: Iterable[Leaked]) -> Iterator[tuple[UUID, Iterator[Leaked]]]:
    ordered = sorted(found, key=lambda one: (one.conversation, one.role))
    return groupby(ordered, key=lambda one: one.conversation)


def _end(broker: Broker, found: View[Leaked], timeout_s: float, *, yes: bool) -> list[UUID]:
    """Ask, end the conversations, and return the ids of those that were ended."""
    count, unread = len({one.conversation for one in found}), sum(one.unread for one in found)
    what = counted(count, "conversation") + (f", and drop {counted(unread, 'unread message')}" if unread else "")
    if not confirmed(f"End {what}?", yes=yes):
        typer.echo("no conversation was ended", err=True)
        return []
    ended = broker.operations.end_leaked(found, timeout=timeout_s)
    passed = count - len(ended)
    typer.echo(f"{counted(len(ended), 'conversation')} ended", err=True)
    if passed:
        typer.echo(f"{counted(passed, 'conversation')} left open because of activity since the listing", err=True)
    return ended


def _plain(side: ConversationSide) -> dict[str, Any]:
    """A side as JSON: times as ISO 8601."""
    return {name: _text(value) for name, value in asdict(side).items()}


def _text(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
