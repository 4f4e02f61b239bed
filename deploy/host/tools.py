"""Runs a build tool and reads its output line by line; an interruption ends the tool and all its children."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .faults import filesystem_faults


@dataclass(frozen=True)
class ToolResult:
    """Output and exit code of a tool."""

    exit_code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole output."""
        return "\n".join(self.lines)


def run_tool(
    argv: list[str], folder: Path, environ: Mapping[str, str], on_line: Callable[[str], None] = lambda _: None
) -> ToolResult:
    """Run a tool in a folder until it ends; `on_line` gets each line of its output at once."""
    lines: list[str] = []
    with (
        filesystem_faults(Path(argv[0])),
        subprocess.Popen(
            argv,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                on_line(lines[-1])
            process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return ToolResult(process.returncode, tuple(lines))
