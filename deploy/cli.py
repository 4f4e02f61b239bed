"""`konverse stack up | status | logs | down`: Kafka and Redis on this machine, without Docker."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer

from konverse.deploy.host.folders import stack_folder
from konverse.deploy.host.progress import reporter_for
from konverse.deploy.stack.follow import follow, last_part
from konverse.deploy.stack.settings import DEFAULT_NAME, StackSettings
from konverse.deploy.stack.stack import LocalStack
from konverse.deploy.stack.status import ServerStatus
from konverse.schemas.errors import KonverseError, StackError, Unavailable

EXIT_SERVER_DEAD: Final = 4
EXIT_NO_STACK: Final = 5

app = typer.Typer(
    no_args_is_help=True,
    help="Kafka and Redis on this machine, as plain processes on free ports of 127.0.0.1. No Docker is needed.",
    epilog="Exit codes: 0 done, 2 wrong usage or names, 3 the stack cannot run (Java, jars, disk, ports: the message "
    "says which), 4 (status) a server is dead, 5 (status, logs) no such stack, 130 interrupted.",
)

Name = Annotated[str, typer.Option("--name", help="Several stacks can run side by side.")]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Where the stack keeps its files.", show_default="in the user's state folder"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.command()
def up(
    *,
    name: Name = DEFAULT_NAME,
    directory: Directory = None,
    brokers: Annotated[
        int | None,
        typer.Option(help="1, or 3 for a cluster that survives the failure of one broker.", show_default="1"),
    ] = None,
    redis: Annotated[
        bool | None,
        typer.Option("--redis/--no-redis", help="With Redis, which the view needs.", show_default="redis"),
    ] = None,
    kafka_port: Annotated[int | None, typer.Option(help="Port of the first broker.", show_default="free")] = None,
    redis_port: Annotated[int | None, typer.Option(help="Port of Redis.", show_default="free")] = None,
    redis_aof: Annotated[
        bool | None, typer.Option("--redis-aof", help="Redis keeps its data when it is killed.", show_default="no")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the servers, or find those that run; print their addresses.

    The first start downloads Kafka (44 MB) with Maven. An interrupted start leaves nothing running. Dead servers of a
    stack are started again on their ports and data. A stack keeps its servers, ports and settings: `up` with an option
    that differs from them is refused.
    """
    settings = StackSettings(
        name=name,
        directory=directory,
        brokers=brokers,
        redis=redis,
        kafka_port=kafka_port,
        redis_port=redis_port,
        redis_aof=redis_aof,
    )
    began_s = time.monotonic()
    with _signals_interrupt():
        stack, found = LocalStack.up(settings, reporter=reporter_for(sys.stderr))
    if as_json:
        _print_json({**_described(stack), "found": found})
        return
    took = "runs already" if found else f"is up after {time.monotonic() - began_s:.1f} s"
    typer.echo(f"The stack {stack.name!r} {took}:")
    _print_servers(stack.status())
    typer.echo(f"Use it with: export {_exports(stack)}")
    typer.echo(f"End it with: konverse stack down{_options(name, directory)}")


@app.command()
def status(name: Name = DEFAULT_NAME, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show each server: whether it runs, its address, pid, uptime and memory. Exit code 4: one is dead; 5: no stack."""
    settings = StackSettings(name=name, directory=directory)
    stack = LocalStack.find(settings)
    if stack is None:
        if as_json:
            _print_json({"name": name, "servers": [], "data_kept": settings.home().has_data()})
        else:
            typer.echo(_no_stack(settings))
        raise typer.Exit(EXIT_NO_STACK)
    servers = stack.status()
    if as_json:
        _print_json(_described(stack))
    else:
        _print_servers(servers)
    if not all(server.running for server in servers):
        raise typer.Exit(EXIT_SERVER_DEAD)


@app.command()
def logs(
    server: Annotated[str | None, typer.Argument(help="kafka, kafka-1 ..., or redis; all if left out.")] = None,
    name: Name = DEFAULT_NAME,
    directory: Directory = None,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 100,
) -> None:
    """Show the last lines of the servers' logs."""
    settings = StackSettings(name=name, directory=directory)
    stack = LocalStack.find(settings)
    if stack is None:
        typer.echo(f"konverse: {_no_stack(settings)}", err=True)
        raise typer.Exit(EXIT_NO_STACK)
    wanted = {server: stack.log(server)} if server else {each: stack.log(each) for each in stack.servers}
    for line in follow(wanted, lines) if follow_on else last_part(wanted, lines):
        typer.echo(line)


@app.command()
def down(
    name: Name = DEFAULT_NAME,
    directory: Directory = None,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="For the next `up` with the same options.")] = False,
) -> None:
    """End the servers and remove their files. It is not an error if there is no such stack."""
    settings = StackSettings(name=name, directory=directory)
    kept = settings.home().has_data()
    ended = LocalStack.down(settings, keep_data=keep_data)
    if keep_data and (ended or kept):
        typer.echo(_no_stack(settings))
    elif ended:
        typer.echo(f"The stack {ended!r} is down.")
    else:
        typer.echo("Nothing was running. The data that were kept are deleted." if kept else "Nothing was running.")


def remedy(error: KonverseError) -> str:
    """Advice for a command that found no Kafka or Redis: the local stacks that run, and how to use them."""
    if not isinstance(error, Unavailable):
        return ""
    lines = []
    with suppress(OSError):
        for folder in sorted(stack_folder(DEFAULT_NAME).parent.iterdir()):
            with suppress(StackError):  # of a stack whose state cannot be read; others may run
                stack = LocalStack.find(StackSettings(directory=folder))
                if stack is not None and any(server.running for server in stack.status()):
                    lines.append(f"the local stack {stack.name!r} runs; use it with: export {_exports(stack)}")
    return "\n".join(lines)


def _exports(stack: LocalStack) -> str:
    return " ".join(f"{variable}={address}" for variable, address in _environment(stack).items())


def _described(stack: LocalStack) -> dict[str, Any]:
    return {
        "name": stack.name,
        "directory": str(stack.directory),
        "bootstrap": stack.bootstrap,
        "redis_url": stack.redis_url,
        "environment": _environment(stack),
        "servers": [server.as_json() for server in stack.status()],
    }


def _environment(stack: LocalStack) -> dict[str, str]:
    """Return the variables that konverse.bridge.runtime.settings reads."""
    variables = {
        "KONVERSE_KAFKA": f"kafka://{stack.bootstrap}" if stack.bootstrap else "",
        "KONVERSE_REDIS": stack.redis_url,
    }
    return {variable: address for variable, address in variables.items() if address}


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2))


def _print_servers(servers: list[ServerStatus]) -> None:
    for server in servers:
        if server.running:
            memory = f"{(server.memory_bytes or 0) / 1024 / 1024:.0f} MiB"
            typer.echo(
                f"  {server.name:<8} running  {server.address:<28} "
                f"pid {server.pid}, up {_duration(server.uptime_s or 0)}, {memory}"
            )
        else:
            typer.echo(f"  {server.name:<8} dead     {server.address:<28} log: {server.log}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _no_stack(settings: StackSettings) -> str:
    start = f"konverse stack up{_options(settings.name, settings.directory)}"
    where = f"in {settings.directory}" if settings.directory else f"{settings.name!r}"
    if settings.home().has_data():
        return f"The stack {where} is stopped, its data are kept. Start it again with: {start}"
    return f"There is no stack {where}. Start one with: {start}"


def _options(name: str, directory: Path | None) -> str:
    if directory is not None:
        return f" --directory {shlex.quote(str(directory))}"
    return "" if name == DEFAULT_NAME else f" --name {name}"


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP exit like Ctrl-C, so that everything is cleaned up."""

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
