"""The `konverse` command: the one place where an error becomes a line of text and an exit code.

The commands of this package are registered at the end of the module. Those of other packages are found in the
entry-point group `konverse.commands`; the name of an entry point is the name of its command.
"""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import entry_points, version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from konverse.bridge.runtime.exit_codes import BUG, exit_code
from konverse.schemas.errors import KafkaUnavailable, KonverseError, RedisUnavailable

from .accept_loss import accept_loss
from .acl import acl
from .conversations import conversations
from .explain import explain
from .lag import lag
from .operate import end, error_broker_conversations, resume, skip, suspend, suspended
from .output import escape_unknown_characters, failures_of_output, hinders_output
from .route import route
from .router import router
from .routing_table import table
from .run import run
from .show import list_catalog
from .transmit import transmit
from .verify import verify
from .view import view
from .why import why

COMMANDS: Final = "konverse.commands"
_OPTIONS: Final[dict[type[KonverseError], str]] = {
    KafkaUnavailable: "the address is that of --kafka, else of KONVERSE_KAFKA or konverse.toml",
    RedisUnavailable: "the address is that of --redis, else of KONVERSE_REDIS or konverse.toml",
}


class KonverseGroup(TyperGroup):
    """Turns a `KonverseError` of any command into one line on standard error and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line."""
        escape_unknown_characters()
        try:
            with failures_of_output():  # messages about wrong usage are output, too
                return super().main(*args, **kwargs)
        except typer.Exit as ended:
            sys.exit(ended.exit_code)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the command line; --help and --version print here."""
        with failures_of_output():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug an error keeps its traceback."""
        with failures_of_output():
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KonverseError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"konverse: {error}", err=True)
            for remedy in _remedies(error):
                typer.echo(f"konverse: {remedy}", err=True)
            raise typer.Exit(exit_code(error)) from error
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or hinders_output(error):
                raise  # wrong usage and other exits that typer handles
            if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C inside Kafka's client can end as SystemError
                raise error.__cause__ from None
            traceback.print_exc()
            raise typer.Exit(BUG) from error


def _remedies(error: KonverseError) -> list[str]:
    """Advice on an error: which option to check, and the advice of other packages' command modules (`remedy`)."""
    own = [text for kind, text in _OPTIONS.items() if isinstance(error, kind)]
    found = (getattr(sys.modules[command.module], "remedy", None) for command in entry_points(group=COMMANDS))
    return own + [text for remedy in found if remedy is not None and (text := remedy(error))]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"konverse {version('konverse')}")
        raise typer.Exit


app = typer.Typer(
    cls=KonverseGroup,
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 (verify) refuted, 2 wrong usage or names, 3 the local stack cannot run, 4 (stack) a "
    "server is dead, 5 (stack) no such stack, 6 Kafka or Redis does not answer, 7 another failure, 8 (run) handlers "
    "were cut off, 70 a bug, 130 interrupted, 141 the reader of the output has stopped.",
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
app.command("conversations")(conversations)
app.command("why")(why)
app.command("lag")(lag)
app.command("verify")(verify)
app.command("run")(run)
app.command("suspended")(suspended)
app.command("suspend")(suspend)
app.command("resume")(resume)
app.command("error-broker-conversations")(error_broker_conversations)
app.command("skip")(skip)
app.command("accept-loss")(accept_loss)
app.command("acl")(acl)
app.command("end")(end)
app.command("transmit")(transmit)
router.command("explain")(explain)
app.add_typer(route, name="route")
app.add_typer(router, name="router")
app.add_typer(table, name="table")

for _command in entry_points(group=COMMANDS):
    app.add_typer(_command.load(), name=_command.name)
