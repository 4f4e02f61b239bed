"""The real Maven. It needs the network."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from konverse.deploy.host.progress import Silence
from konverse.deploy.java import maven
from konverse.deploy.java.coordinates import Coordinate, JarSet
from konverse.deploy.java.jars import jar_folder
from konverse.deploy.java.java import Java, find_java
from konverse.schemas.stack_errors import JarsNotResolvable

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("local_servers")]

ABSENT = JarSet("absent", (Coordinate("org.apache.kafka", "kafka_2.13", "9.9.9"),), ("kafka_2.13-9.9.9.jar",))
SMALL = JarSet("small", (Coordinate("org.example.konverse", "small", "1.0"),), ("small-1.0.jar",))


@pytest.fixture
def java() -> Java:
    return find_java()


@pytest.mark.slow
def test_maven_names_a_coordinate_that_does_not_exist(tmp_path: Path, java: Java) -> None:
    if maven.find_maven(os.environ) is None:
        pytest.skip("mvn is not on PATH")
    with pytest.raises(JarsNotResolvable, match=r"^org\.apache\.kafka:kafka_2\.13:9\.9\.9 cannot be resolved by mvn"):
        jar_folder(ABSENT, java, tmp_path, Silence())
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.slow
def test_maven_asks_the_repositories_of_the_users_settings(
    tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    if maven.find_maven(os.environ) is None:
        pytest.skip("mvn is not on PATH")
    _publish(tmp_path / "repository")
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f"<settings><localRepository>{Path.home()}/.m2/repository</localRepository>"
        "<profiles><profile><id>ours</id><activation><activeByDefault>true</activeByDefault></activation>"
        f"<repositories><repository><id>ours</id><url>file://{tmp_path}/repository</url></repository></repositories>"
        "</profile></profiles></settings>"
    )
    monkeypatch.setenv("MAVEN_OPTS", f"-Duser.home={tmp_path / 'home'}")
    assert _names(jar_folder(SMALL, java, tmp_path / "cache", Silence())) == ["small-1.0.jar"]


def _publish(repository: Path) -> None:
    """Put the only artifact of `SMALL` into a folder with the layout of a Maven repository."""
    folder = repository / "org" / "example" / "konverse" / "small" / "1.0"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "small-1.0.jar", "w") as jar:
        jar.writestr("a", "b")
    (folder / "small-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example.konverse</groupId>"
        "<artifactId>small</artifactId><version>1.0</version></project>"
    )


def _names(folder: Path) -> list[str]:
    return sorted(jar.name for jar in folder.glob("*.jar"))
