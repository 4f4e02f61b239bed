"""Where files are kept: the cache of jars and class archives, and the folder of one stack.

    <cache>/konverse/kafka-4.3.1/          the jars of the broker
    <cache>/konverse/archives/             class archives (AppCDS), one for each Java and Kafka
    <state>/konverse/stack/<name>/         one stack:
        stack.json                         ports and pids
        kept.json                          ports of a stack that is down but has kept its data
        lock                               held while a command changes the stack
        .konverse-stack                    marks the folder as a stack's
        config/<server>.properties  data/<server>/  logs/<server>.log  tmp/

`<cache>` is XDG_CACHE_HOME or ~/.cache, `<state>` is XDG_STATE_HOME or ~/.local/state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from konverse.schemas.errors import InvalidSettings

from .faults import filesystem_faults

KEPT: Final = "data"
KEPT_STATE: Final = "kept.json"
REMOVED: Final = ("config", "logs", "tmp", "stack.json")
LOCK: Final = "lock"
MARK: Final = ".konverse-stack"
"""Marks a folder as a stack's own."""


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for files that can be downloaded or made again."""
    return _base(os.environ if environ is None else environ, "XDG_CACHE_HOME", ".cache") / "konverse"


def stack_folder(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the stack of this name."""
    base = _base(os.environ if environ is None else environ, "XDG_STATE_HOME", ".local/state")
    return base / "konverse" / "stack" / name


def make_folder(path: Path) -> Path:
    """Make a folder and its parents. Raises `DiskFull` or `StackError`."""
    with filesystem_faults(path):
        while True:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except FileExistsError:  # a file is there; or another command has just removed the folder: try again
                if os.path.lexists(path) and not path.is_dir():
                    raise
            else:
                return path


def _base(environ: Mapping[str, str], variable: str, otherwise: str) -> Path:
    value = environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / otherwise


@dataclass(frozen=True)
class StackHome:
    """The folder of one stack. Only entries that the stack itself made are ever removed from it."""

    root: Path

    @property
    def state(self) -> Path:
        """The file with ports and pids."""
        return self.root / "stack.json"

    @property
    def kept(self) -> Path:
        """The file with the ports of a stack that is down but has kept its data."""
        return self.root / KEPT_STATE

    @property
    def lock(self) -> Path:
        """The file that a command locks while it changes the stack."""
        return self.root / LOCK

    @property
    def tmp(self) -> Path:
        """Temporary files of the servers, so that a killed server leaves none in the system's folder."""
        return self.root / "tmp"

    def config(self, server: str) -> Path:
        """Return the settings file of a server."""
        return self.root / "config" / f"{server}.properties"

    def data(self, server: str) -> Path:
        """Return the data folder of a server."""
        return self.root / "data" / server

    def log(self, server: str) -> Path:
        """Return the log of a server."""
        return self.root / "logs" / f"{server}.log"

    def refuse_if_foreign(self) -> None:
        """Raise `InvalidSettings` if the folder has files but is not a stack's: `remove` would remove them."""
        names = self._names()
        if MARK not in names and names - {LOCK}:
            raise InvalidSettings(f"{self.root} is not empty and not the folder of a stack. Choose a new or empty one.")

    def create(self) -> None:
        """Make the folder and its parts; only its user may enter it."""
        make_folder(self.root.parent)
        with filesystem_faults(self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            (self.root / MARK).touch()  # made first and removed last: another command may look at any moment
        for part in ("config", "data", "logs", "tmp"):
            make_folder(self.root / part)

    def has_data(self) -> bool:
        """Return whether an earlier stack has kept its data here."""
        return (self.root / KEPT).is_dir()

    def entries(self, *, keep_data: bool = False) -> list[Path]:
        """Return the paths that `remove` removes."""
        names = REMOVED if keep_data else (*REMOVED, KEPT, KEPT_STATE, MARK)
        return [self.root / name for name in names]

    def remove(self, *, keep_data: bool = False) -> None:
        """Remove the files that the stack made, except its lock; then the folder itself, if it is empty."""
        for entry in self.entries(keep_data=keep_data):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or a mount point
            self.root.rmdir()

    def remove_if_empty(self) -> None:
        """Remove the lock and the folder, if there is no stack in it."""
        if not self.state.exists():
            self.lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.root.rmdir()

    def _names(self) -> set[str]:
        with filesystem_faults(self.root):
            try:
                return {entry.name for entry in self.root.iterdir()}
            except FileNotFoundError:
                return set()
