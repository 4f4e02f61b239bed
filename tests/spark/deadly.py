"""A driver in a process of its own, with Spark's processes below it, that is killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


class Driver:
    """`python -m MODULE ARGUMENTS`, whose output goes to FOLDER/log."""

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
        """Kill -9 the driver: its Python and its Java. Workers may live on for a moment."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
