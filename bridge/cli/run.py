"""`konverse run`: calls the handlers and routers of an application."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .values import finite


class ReaderUnit(StrEnum):
    """The unit that `max_readers` counts."""

    THREADS = "threads"
    PROCESSES = "processes"


def run(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the application is, like shop:app")],
    readers: Annotated[
        ReaderUnit, typer.Option(help="What max_readers counts: threads of one process, or processes")
    ] = ReaderUnit.THREADS,
    exit_when_drained: Annotated[
        bool, typer.Option("--exit-when-drained", help="End when the queues are empty.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, callback=finite, help="Seconds for running handlers to finish after a stop")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="The log as JSON lines")] = False,
) -> None:
    """Call the handlers and routers of an application for the messages of its queues, until SIGTERM or Ctrl-C.

    They run in processes of their own, and one that dies is started again. On SIGTERM running handlers finish and
    commit; a second SIGTERM cuts them off. A handler that raises five times on the same messages suspends their
    conversation, which is logged; see `konverse suspended`.
    """
    from konverse.bridge.runtime.logs import log_to_stderr
    from konverse.bridge.worker.app import load
    from konverse.bridge.worker.process import Job
    from konverse.bridge.worker.supervisor import Supervisor, jobs
    from konverse.schemas.errors import InvalidSettings

    loaded = load(app)
    log_to_stderr(as_json=as_json)
    if not (loaded.activations or loaded.routers):
        raise InvalidSettings(
            f"{app} has no handlers and no routers; write @{app.partition(':')[2]}.activate(queue) over a handler, or "
            f"@{app.partition(':')[2]}.router(service) over a classifier"
        )
    job = Job(app, None, exit_when_drained, grace, as_json)
    found = jobs(loaded, job, processes=readers is ReaderUnit.PROCESSES)
    if not found:
        typer.echo("konverse: max_readers is 0 everywhere: nothing is started", err=True)
        return
    raise typer.Exit(Supervisor(found, grace, ends_process=True).run())
