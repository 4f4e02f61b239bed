"""`konverse router watch SERVICE`: the traffic of a router, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from konverse.bridge.router.figures import Figures, plain_failure, read_figures
from konverse.routing.routed import Routed
from konverse.schemas.counting import counted

from .connection import Database, Kafka, RedisUrl, connected
from .tables import Page
from .values import finite

BAR_CHARACTERS: Final = 30
NUMBERS_CHARACTERS: Final = 30
"""Width of the two columns of counts beside a target's name."""

router = typer.Typer(no_args_is_help=True, help="Routers: services that route by the content of first messages.")


class Flow(NamedTuple):
    """The traffic of a router between two readings of its figures."""

    figures: Figures
    per_s: dict[str, float]
    """Target -> messages per second."""
    messages_per_s: float
    """Messages received and handled per second."""


@router.command("watch")
def watch(  # noqa: PLR0917  # the options of a command
    service: Annotated[str, typer.Argument(help="Service of the router")],
    every: Annotated[float, typer.Option(min=0.1, callback=finite, help="Seconds between two readings")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many readings")] = None,
    kafka: Kafka = None,
    redis_url: RedisUrl = None,
    database: Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each reading")] = False,
) -> None:
    """Show the traffic of a router: messages per second and in total for each target, and the latest failures.

    The figures are totals of all its processes since they were started. The processes write them to Redis each second.
    On a terminal this is a picture, else one line per reading, until Ctrl-C.
    """
    with connected(kafka, redis=redis_url, database=database) as broker:
        flows = _flows(lambda: read_figures(broker, service), every, count)
        if as_json:
            for flow in flows:
                typer.echo(json.dumps(_plain(service, flow), ensure_ascii=False))
        elif not sys.stdout.isatty():
            for flow in flows:
                typer.echo(line(service, flow))
        else:
            with Live(console=Page(), auto_refresh=False) as live:
                for flow in flows:
                    live.update(picture(service, flow, live.console.width), refresh=True)


def _flows(look: Callable[[], Figures], every_s: float, count: int | None) -> Iterator[Flow]:
    before: Figures | None = None
    looks = 0
    while True:
        figures = look()
        yield flow_of(before, figures)
        before, looks = figures, looks + 1
        if looks == count:
            return
        time.sleep(every_s)


def flow_of(before: Figures | None, now: Figures) -> Flow:
    """The traffic since the last reading. Rates are never below 0, even if a process has ended since then."""
    seconds = 0.0 if before is None else (now.at_ms - before.at_ms) / 1_000
    if before is None or seconds <= 0:
        return Flow(now, {}, 0.0)
    was = before.routed.targets
    per_s = {name: max(0, count - was.get(name, 0)) / seconds for name, count in now.routed.targets.items()}
    return Flow(now, per_s, max(0, now.routed.messages - before.routed.messages) / seconds)


def line(service: str, flow: Flow) -> str:
    """The traffic in one line."""
    routed = flow.figures.routed
    targets = ", ".join(
        f"{name} {count:,} (+{flow.per_s.get(name, 0):,.0f}/s)" for name, count in sorted(routed.targets.items())
    )
    text = (
        f"{service}: {_processes(flow)}, {counted(routed.messages, 'message')} (+{flow.messages_per_s:,.0f}/s), "
        f"{counted(routed.replied, 'reply', 'replies')}, {routed.rejected:,} rejected, {routed.failed:,} failed; "
        f"{targets or 'no target yet'}"
    )
    errors = flow.figures.last_errors
    return f"{text}; last error: {errors[0].text}" if errors else text


def picture(service: str, flow: Flow, width: int) -> Group:
    """The traffic as a picture: a bar for each target in proportion to its rate, if there is room for bars."""
    figures = flow.figures
    messages = counted(figures.routed.messages, "message")
    title = Text(f"{service}   {_processes(flow)}   {messages}, {flow.messages_per_s:,.0f}/s")
    rows = [(name, f"{total:,}", flow.per_s.get(name, 0.0)) for name, total in sorted(figures.routed.targets.items())]
    room = width - max((cell_len(name) for name, _, _ in rows), default=0) - NUMBERS_CHARACTERS
    shown = _bars(rows, min(BAR_CHARACTERS, room)) if room >= 0 else Text("\n".join(map(_in_lines, rows)))
    counts = Text(
        "   ".join(f"{name} {getattr(figures.routed, name):,}" for name in _COUNTS if getattr(figures.routed, name))
    )
    errors = [
        Text(f"{one.at:%H:%M:%S} {one.conversation} {one.message_type}: {one.text}", style="red")
        for one in figures.last_errors
    ]
    return Group(title, shown, counts, *errors)


def _bars(rows: list[tuple[str, str, float]], longest: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("to", no_wrap=True)
    for name in ("in all", "per s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    most = max((rate for _, _, rate in rows), default=0.0)
    for name, total, rate in rows:
        table.add_row(escape(name), total, f"{rate:,.0f}", "━" * round(longest * rate / most) if most else "")
    return table


def _in_lines(row: tuple[str, str, float]) -> str:
    """Two lines for a target whose name leaves no room beside it."""
    name, total, rate = row
    return f"{name}\n  {total} in all, {rate:,.0f}/s"


_COUNTS: Final = ("forwarded", "followed", "replied", "redirected", "rejected", "ended", "dropped", "failed")


def _processes(flow: Flow) -> str:
    return counted(flow.figures.processes, "process", "processes")


def _plain(service: str, flow: Flow) -> dict[str, Any]:
    """The traffic as JSON."""
    figures = flow.figures
    routed: Routed = figures.routed
    return {
        "router": service,
        "at_ms": figures.at_ms,
        "processes": figures.processes,
        **asdict(routed),
        "messages": routed.messages,
        "messages_per_s": round(flow.messages_per_s, 1),
        "per_s": {name: round(rate, 1) for name, rate in flow.per_s.items()},
        "last_errors": [*map(plain_failure, figures.last_errors)],
    }
