from __future__ import annotations

from pathlib import Path

import pytest

from konverse.deploy.host.tools import ToolResult
from konverse.deploy.java.coordinates import KAFKA
from konverse.deploy.java.maven import find_maven, missing
from tests.unit.deploy.programs import only, script

KAFKA_9 = "org.apache.kafka:kafka_2.13:9.9.9"


PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


@pytest.mark.parametrize(
    ("line", "coordinate"),
    [
        (
            "dependencies for project k:k:pom:1: Could not find artifact org.apache.kafka:kafka_2.13:jar:9.9.9 in c",
            KAFKA_9,
        ),
        ("Could not transfer artifact org.apache.kafka:kafka_2.13:pom:9.9.9 from/to mirror (u): refused", KAFKA_9),
        ("Failure to find org.apache.kafka:kafka_2.13:jar:9.9.9 in https://repo.example was cached", KAFKA_9),
        ("org.apache.kafka:kafka_2.13:jar:9.9.9 was not found in https://repo.example during a previous", KAFKA_9),
        ("The following artifacts could not be resolved: org.apache.kafka:kafka_2.13:jar:9.9.9 (absent)", KAFKA_9),
        ("Could not find artifact org.example:native:jar:linux-x86_64:1.0 in central", "org.example:native:1.0"),
        (f"[ERROR] Plugin {PLUGIN} or one of its dependencies could not be resolved: ", PLUGIN),
    ],
)
def test_the_missing_artifact_is_read_from_the_output(line: str, coordinate: str) -> None:
    assert str(missing(ToolResult(1, ("[INFO] Scanning for projects...", line)))) == coordinate


def test_output_without_an_artifact_names_none() -> None:
    lines = ("[ERROR] Unknown lifecycle phase", "[INFO] Building k 1", "at 10:30:15")
    assert missing(ToolResult(1, lines)) is None


def test_maven_is_looked_for_on_path(tmp_path: Path) -> None:
    assert find_maven({"PATH": only(tmp_path)}) is None
    program = script(tmp_path / "mvn", "exit 0")
    assert find_maven({"PATH": only(tmp_path)}) == program


def test_the_broker_is_resolved_with_a_binding_for_its_log() -> None:
    assert [str(coordinate) for coordinate in KAFKA.coordinates] == [
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ]
