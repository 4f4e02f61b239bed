"""Stand-ins for programs: shell scripts that answer like java, mvn and redis-server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'


def script(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(path: Path, answer: str = JAVA_17) -> Path:
    """Write a java that answers any call with a version."""
    return script(path, f"cat >&2 <<'END'\n{answer}\nEND")


def only(folder: Path) -> str:
    """Return a PATH of one folder, which also has the shell's own tools."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sh", "cat", "sleep", "mkdir", "env", "touch"):
        link = folder / name
        if not link.exists():
            link.symlink_to(shutil.which(name, path=os.defpath) or f"/bin/{name}")
    return str(folder)


def sleeper() -> tuple[str, ...]:
    """Return the command line of a program that sleeps for long."""
    return (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")
