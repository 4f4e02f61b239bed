"""A small memory disk for the servers' files that can be filled to the last byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SIZE_MIB: Final = 640
FILLER: Final = "filler"
PAGE_BYTES: Final = 4096


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs."""

    root: Path

    def fill(self) -> None:
        """Fill the disk."""
        with (self.root / FILLER).open("ab", buffering=0) as filler:
            with suppress(OSError):  # another process took the rest
                os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(self.root).free)
            filler.seek(0, os.SEEK_END)
            with suppress(OSError):
                while filler.write(bytes(PAGE_BYTES)):
                    pass

    def free(self) -> None:
        """Free the space."""
        (self.root / FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(root: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk at this folder while the block runs; yields None where mounting is not permitted."""
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=700", "tmpfs", str(root)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        yield None
        return
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], capture_output=True, check=False)
