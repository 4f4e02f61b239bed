"""The `konverse` command: the one place where an error becomes a line of text and an exit code.

Commands of this package are modules beside this one, registered below. Commands of other packages announce themselves
in the entry-point group `konverse.commands`; the name of the entry point is the name of the command.
"""

from __future__ import annotations

from importlib.metadata import entry_points, version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from konverse.schemas.errors import BadInput, KonverseError, StackError

from .show import list_catalog, view
from .verify import verify

COMMANDS: Final = "konverse.commands"
_EXIT_CODES: Final[tuple[tuple[type[KonverseError], int], ...]] = ((BadInput, 2), (StackError, 3), (KonverseError, 1))


class KonverseGroup(TyperGroup):
    """Turns a `KonverseError` of any command into one line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug an error keeps its traceback."""
        try:
            return super().invoke(ctx)
        except KonverseError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"konverse: {error}", err=True)
            raise typer.Exit(exit_code(error)) from error


def exit_code(error: KonverseError) -> int:
    """Return the exit code of an error: 2 for bad input, 3 for the local stack, 1 for the rest."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"konverse {version('konverse')}")
        raise typer.Exit


app = typer.Typer(
    cls=KonverseGroup,
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or names, 3 the local stack cannot run, 130 interrupted.",
)


@app.callback()
def konverse(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Service Broker conversations on Kafka: exactly once, in order, whatever dies."""


app.command("view")(view)
app.command("list")(list_catalog)
app.command("verify")(verify)

for _command in entry_points(group=COMMANDS):
    app.add_typer(_command.load(), name=_command.name)
