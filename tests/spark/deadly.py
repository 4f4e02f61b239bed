"""A driver process, with Spark's processes below it, that can be killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


class Driver:
    """`python -m MODULE ARGUMENTS`, with its output in FOLDER/log."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self._log = (folder / "log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=self._log, stderr=self._log, start_new_session=True
        )

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill -9 the driver's Python and Java. Workers may live a moment longer."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
