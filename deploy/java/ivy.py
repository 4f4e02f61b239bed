"""Downloads jars without Maven: with the Ivy in pyspark, from the mirror in the user's Maven settings."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.progress import Advance
from konverse.deploy.host.tools import ToolResult, run_tool
from konverse.schemas.errors import StackError

from .coordinates import Coordinate, JarSet
from .java import Java

NAME: Final = "Ivy"
_CENTRAL: Final = "central"
_NEEDED_JARS: Final = ("ivy-*.jar", "oro-*.jar", "commons-cli-*.jar")
_REVISION: Final = r"(?P<group>[\w.-]+)#(?P<artifact>[\w.-]+);(?P<version>[\w.+-]+)"
_FAILURES: Final = tuple(
    re.compile(pattern)
    for pattern in (rf"module not found: {_REVISION}", rf":: {_REVISION}: not found", rf"download failed: {_REVISION}")
)
_DOWNLOADING: Final = re.compile(r"^downloading .*/([^/ ]+)\.jar\b")


def find_ivy() -> list[Path] | None:
    """Return the jars of the Ivy in pyspark; None if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = [next((Path(place) / "jars").glob(pattern), None) for pattern in _NEEDED_JARS]
        present = [jar for jar in found if jar is not None]
        if len(present) == len(_NEEDED_JARS):
            return present
    return None


def download(jars: JarSet, folder: Path, java: Java, ivy: list[Path], advance: Advance) -> ToolResult:
    """Download the jars into `folder`/jars; the result tells what went wrong, if anything."""
    settings, module = folder / "ivysettings.xml", folder / "ivy.xml"
    mirror = central_mirror(Path.home() / ".m2" / "settings.xml", os.environ)
    with filesystem_faults(folder):
        settings.write_text(_settings(folder / "ivy", mirror))
        module.write_text(_module(jars))
    argv = [
        str(java.executable), "-cp", os.pathsep.join(map(str, ivy)), "org.apache.ivy.Main",
        "-settings", str(settings), "-ivy", str(module), "-confs", "default",
        "-retrieve", f"{folder}/jars/[artifact]-[revision](-[classifier]).[ext]",
        "-types", "jar", "bundle",  # snakeyaml is a `bundle`
    ]  # fmt: skip

    def see(line: str) -> None:
        if match := _DOWNLOADING.search(line):
            advance(match[1])

    return run_tool(argv, folder, os.environ, see)


def missing(result: ToolResult) -> Coordinate | None:
    """Read from Ivy's output which artifact it could not get; None if it names none."""
    for line in result.lines:
        for pattern in _FAILURES:
            if match := pattern.search(line):
                return Coordinate(match["group"], match["artifact"], match["version"])
    return None


def central_mirror(settings: Path, environ: Mapping[str, str]) -> str | None:
    """Return the mirror of Maven Central in a Maven settings file; None if it has none.

    As in Maven, a mirror of exactly "central" wins, then the first one whose list or wildcard covers it.
    """
    if not settings.is_file():
        return None
    try:
        root = ET.parse(settings).getroot()  # noqa: S314 - the user's own file, which Maven would read as well
    except (ET.ParseError, OSError) as error:
        raise StackError(f"{settings} cannot be read: {error}. Correct it as Maven would need it.") from error
    mirrors = [_fields(element, environ) for element in root.iter() if _local(element) == "mirror"]
    usable = [mirror for mirror in mirrors if mirror.get("url") and mirror.get("blocked") != "true"]
    exact = [mirror for mirror in usable if mirror.get("mirrorOf") == _CENTRAL]
    covering = [mirror for mirror in usable if _covers_central(mirror.get("mirrorOf", ""))]
    return next((mirror["url"] for mirror in (*exact, *covering)), None)


def _covers_central(mirror_of: str) -> bool:
    patterns = [pattern.strip() for pattern in mirror_of.split(",")]
    return f"!{_CENTRAL}" not in patterns and any(p in {"*", "external:*", _CENTRAL} for p in patterns)


def _fields(element: ET.Element, environ: Mapping[str, str]) -> dict[str, str]:
    def value(text: str) -> str:
        return re.sub(r"\$\{env\.(\w+)\}", lambda match: environ.get(match[1], ""), text.strip())

    return {_local(child): value(child.text or "") for child in element}


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _settings(cache: Path, mirror: str | None) -> str:
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""  # without one, Ivy knows Central itself
    return (
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        f'<resolvers><ibiblio name="central" m2compatible="true"{root}/></resolvers></ivysettings>\n'
    )


def _module(jars: JarSet) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(c.group)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        ' conf="default->default"/>'
        for c in jars.coordinates
    )
    excluded = "".join(f"<exclude module={quoteattr(name)}/>" for name in jars.excluded_artifacts)
    return (
        '<ivy-module version="2.0"><info organisation="konverse" module="stack"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{excluded}</dependencies></ivy-module>\n"
    )
