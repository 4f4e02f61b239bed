"""Sets of jars in the user's cache: each is there whole or not at all.

1. Take the lock of the set, so that two downloads never meet, and look again: another one may have finished.
2. Download into a new folder beside the final place, with the `mvn` on PATH.
3. Check that the main jars are there and that every jar is a whole archive.
4. Rename the folder to its final place. A failure before that leaves nothing. Only kill -9 leaves the folder of step 2,
   which the next download removes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from konverse.deploy.host.faults import disk_full, filesystem_faults, reports_full_disk, require_room
from konverse.deploy.host.folders import cache_folder, make_folder
from konverse.deploy.host.locks import locked
from konverse.deploy.host.progress import Advance, Reporter, Silence
from konverse.deploy.host.tools import ToolResult
from konverse.schemas.errors import NotInstalled
from konverse.schemas.stack_errors import JarsNotResolvable

from . import maven
from .coordinates import KAFKA, SPARK_CONNECTOR, JarSet
from .java import Java

_LOCK_DEADLINE_S: Final = 900.0
_ERROR_LINES_MAX: Final = 8
_ERROR_MARKS: Final = ("ERROR", "not found", "Exception")


def kafka_jars(java: Java, cache: Path | None = None, reporter: Reporter | None = None) -> Path:
    """Return the folder with the jars of the broker; download them if the cache does not have them."""
    return jar_folder(KAFKA, java, cache or cache_folder(), reporter or Silence())


def spark_connector_jars(java: Java, cache: Path | None = None, reporter: Reporter | None = None) -> Path:
    """Return the folder with Spark's own Kafka source; only tests and benchmarks use it, to compare."""
    return jar_folder(SPARK_CONNECTOR, java, cache or cache_folder(), reporter or Silence())


def class_path(folder: Path) -> str:
    """Return the jars of a folder as a class path, always in the same order: a class archive depends on it."""
    return os.pathsep.join(sorted(str(jar) for jar in folder.glob("*.jar")))


def jar_folder(jars: JarSet, java: Java, cache: Path, reporter: Reporter) -> Path:
    """Return the folder of a whole set in the cache; download the set if need be.

    Raises `JarsNotResolvable` with the artifact, `NotInstalled` without Maven, `DiskFull`, or `StackError`.
    """
    place = cache / jars.name
    if _complete(jars, place):
        return place
    with (
        reporter.step(f"Downloading {jars.name}", jars.jars_about) as advance,
        locked(cache / f".{jars.name}.lock", deadline_s=_LOCK_DEADLINE_S),
        filesystem_faults(place),
    ):
        if not _complete(jars, place):
            _download_to(place, jars, java, advance)
    return place


def _download_to(place: Path, jars: JarSet, java: Java, advance: Advance) -> None:
    prefix = f".{jars.name}.partial-"
    for left_over in place.parent.glob(f"{prefix}*"):  # left by a killed download; the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    require_room(place.parent, jars.room_bytes)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=make_folder(place.parent)))
    try:
        fresh = _download(jars, partial, java, advance)
        if place.exists():  # incomplete: a jar was deleted
            place.rename(partial / "replaced")
        fresh.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(jars: JarSet, folder: Path, java: Java, advance: Advance) -> Path:
    mvn = maven.find_maven(os.environ)
    if mvn is None:
        raise NotInstalled(
            f"Maven downloads {jars.name}, and mvn is not on PATH. Install it; on Debian: apt-get install maven."
        )
    result = maven.download(jars, folder, java, mvn, advance)
    fresh = folder / "jars"
    if result.exit_code == 0 and _complete(jars, fresh) and not _broken(fresh):
        return fresh
    if reports_full_disk(result.text):
        raise disk_full(folder.parent)
    culprit = maven.missing(result)
    names = str(culprit) if culprit else " and ".join(map(str, jars.coordinates))
    raise JarsNotResolvable(
        f"{names} cannot be resolved by {maven.NAME} (exit code {result.exit_code}). Is the network up, and does the "
        f"mirror in ~/.m2/settings.xml, if any, have it? {maven.NAME} said:\n{_said(result)}"
    )


def _complete(jars: JarSet, folder: Path) -> bool:
    return all((folder / name).is_file() for name in jars.main_jars)


def _broken(folder: Path) -> list[str]:
    return [jar.name for jar in folder.glob("*.jar") if not zipfile.is_zipfile(jar)]


def _said(result: ToolResult) -> str:
    telling = [line for line in result.lines if any(sign in line for sign in _ERROR_MARKS)] or list(result.lines)
    return "\n".join(f"  {line.strip()}" for line in telling[:_ERROR_LINES_MAX]) or "  (nothing)"
