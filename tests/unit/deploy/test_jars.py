"""The download with stand-ins for mvn; the real tools are in tests/integration/test_stack_downloads.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from konverse.deploy.host import faults
from konverse.deploy.host.progress import Silence
from konverse.deploy.java.coordinates import Coordinate, JarSet
from konverse.deploy.java.jars import class_path, jar_folder
from konverse.deploy.java.java import Java
from konverse.schemas.errors import NotInstalled
from konverse.schemas.stack_errors import DiskFull, JarsNotResolvable
from tests.kit import until
from tests.unit.deploy.programs import only, script

JARS = JarSet("tool-1", (Coordinate("org.example", "tool", "1"),), ("tool-1.jar",), ("slf4j-api",))
JAVA = Java(Path("/no/java"), "17", 17, "", "PATH")

FIND_THE_FOLDER = 'for a; do case $a in -DoutputDirectory=*) jars=${a#*=};; esac; done; mkdir -p "$jars"'


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with a jar to copy."""
    folder = tmp_path / "tools"
    monkeypatch.setenv("PATH", only(folder))
    with zipfile.ZipFile(folder / "tool-1.jar", "w") as jar:
        jar.writestr("a", "b")
    return folder


def mvn(tools: Path, text: str) -> None:
    script(tools / "mvn", text.replace("JAR", str(tools / "tool-1.jar")))


def left_in(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if not entry.name.endswith(".lock"))


def test_the_jars_are_downloaded_once(tools: Path, cache: Path) -> None:
    mvn(tools, f'{FIND_THE_FOLDER}; echo "$@" >> {tools}/calls; cat JAR > $jars/tool-1.jar')
    for _ in range(2):
        assert jar_folder(JARS, JAVA, cache, Silence()) == cache / "tool-1"
    calls = (tools / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert "dependency:copy-dependencies -DincludeScope=runtime" in calls[0]
    assert "-DexcludeArtifactIds=slf4j-api" in calls[0]
    assert left_in(cache) == ["tool-1"]


def test_a_deleted_jar_is_downloaded_again(tools: Path, cache: Path) -> None:
    mvn(tools, f"{FIND_THE_FOLDER}; cat JAR > $jars/tool-1.jar")
    (jar_folder(JARS, JAVA, cache, Silence()) / "tool-1.jar").unlink()
    assert (jar_folder(JARS, JAVA, cache, Silence()) / "tool-1.jar").exists()
    assert left_in(cache) == ["tool-1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "echo '[ERROR] Could not find artifact org.other:part:jar:2 in central'; exit 1",
            "org.other:part:2 cannot be",
        ),
        ("echo 'something else'; exit 1", "org.example:tool:1 cannot be resolved by mvn"),
        (f"{FIND_THE_FOLDER}; echo all done", "org.example:tool:1 cannot be resolved by mvn"),
        (f"{FIND_THE_FOLDER}; echo half > $jars/tool-1.jar", "org.example:tool:1 cannot be resolved by mvn"),
    ],
    ids=["a named artifact", "no reason", "no jar", "half a jar"],
)
def test_a_failed_download_names_the_coordinate_and_leaves_nothing(
    tools: Path, cache: Path, text: str, said: str
) -> None:
    mvn(tools, text)
    with pytest.raises(JarsNotResolvable, match=said):
        jar_folder(JARS, JAVA, cache, Silence())
    assert left_in(cache) == []


def test_a_full_disk_reported_by_the_download_tool_raises_disk_full(tools: Path, cache: Path) -> None:
    mvn(tools, "echo 'java.io.IOException: No space left on device'; exit 1")
    with pytest.raises(DiskFull, match=rf"No room left for {cache}: its file system has \d+ bytes free"):
        jar_folder(JARS, JAVA, cache, Silence())
    assert left_in(cache) == []


def test_insufficient_disk_space_is_reported_before_a_download_begins(
    tools: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mvn(tools, f"touch {tools}/called")
    monkeypatch.setattr(faults, "free_bytes", lambda _: 1000)
    jars = JarSet(JARS.name, JARS.coordinates, JARS.main_jars, room_bytes=50 * 1024 * 1024)
    with pytest.raises(DiskFull, match=r"50 MiB are needed and its file system has 1000 bytes"):
        jar_folder(jars, JAVA, cache, Silence())
    assert not (tools / "called").exists()


@pytest.mark.usefixtures("tools")
def test_without_maven_the_error_says_what_to_install(cache: Path) -> None:
    with pytest.raises(NotInstalled, match=r"mvn is not on PATH.*apt-get install maven"):
        jar_folder(JARS, JAVA, cache, Silence())


DOWNLOAD = """
    import sys
    from pathlib import Path
    from konverse.deploy.java.jars import jar_folder
    from konverse.deploy.host.progress import Silence
    from tests.unit.deploy.test_jars import JARS, JAVA
    jar_folder(JARS, JAVA, Path(sys.argv[1]), Silence())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_leaves_no_half_cache(tools: Path, cache: Path, number: signal.Signals) -> None:
    mvn(tools, f"{FIND_THE_FOLDER}; cat JAR > $jars/other.jar; echo $$ > {tools}/pid; touch {tools}/halfway; sleep 600")
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", textwrap.dedent(DOWNLOAD), str(cache)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=root) as process:
        until((tools / "halfway").exists, 30)
        process.send_signal(number)
        assert process.wait(30) != 0
    assert not (cache / "tool-1").exists()
    if number is signal.SIGINT:
        assert left_in(cache) == []
        return
    os.killpg(int((tools / "pid").read_text()), signal.SIGKILL)  # kill -9 leaves mvn, and one folder, to the next run
    mvn(tools, f"{FIND_THE_FOLDER}; cat JAR > $jars/tool-1.jar")
    jar_folder(JARS, JAVA, cache, Silence())
    assert left_in(cache) == ["tool-1"]


def test_two_downloads_at_once_are_one(tools: Path, cache: Path) -> None:
    mvn(tools, f"{FIND_THE_FOLDER}; echo x >> {tools}/calls; sleep 0.3; cat JAR > $jars/tool-1.jar")
    command = [sys.executable, "-c", textwrap.dedent(DOWNLOAD), str(cache)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root) as one, subprocess.Popen(command, cwd=root) as other:
        assert (one.wait(60), other.wait(60)) == (0, 0)
    assert (tools / "calls").read_text() == "x\n"
    assert left_in(cache) == ["tool-1"]


def test_the_class_path_is_sorted(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "note.txt"):
        (tmp_path / name).touch()
    assert class_path(tmp_path) == f"{tmp_path}/a.jar:{tmp_path}/b.jar"
