"""The `konverse stack` command as users run it, and its traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.kit.commands import run

KONVERSE = Path(sys.executable).with_name("konverse")


@dataclass
class StackCommand:
    """Runs the command with a state folder of its own and the user's cache."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Folder of the stack named "default"."""
        return self.folder / "konverse" / "stack" / "default"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command without waiting for it."""
        environ = {**os.environ, "XDG_STATE_HOME": str(self.folder), **self.environ}
        command = [str(KONVERSE), "stack", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run the command to its end: exit code, standard output, standard error."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=110)
        return process.returncode, out, err

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """As `run`, but in this process, which is quicker: for refusals, and for what a test does on the side."""
        return run("stack", *arguments, XDG_STATE_HOME=str(self.folder), **self.environ)

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run the command, which must succeed, and read its JSON."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        answer: dict[str, Any] = json.loads(out)
        return answer


def processes_naming(folder: Path) -> list[str]:
    """Command lines that name a folder. Every server of a stack names its folder, and so does its guard."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.info["pid"] != os.getpid():
            found.append(line)
    return found


def files_in(folder: Path) -> list[Path]:
    """List the files below a folder."""
    return [path for path in folder.rglob("*") if not path.is_dir()]
