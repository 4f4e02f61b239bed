"""Ivy's settings and output; the real Ivy is in tests/integration/test_stack_downloads.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from konverse.deploy.host.tools import ToolResult
from konverse.deploy.java.ivy import central_mirror, find_ivy, missing
from konverse.schemas.errors import StackError


def settings(folder: Path, *mirrors: str) -> Path:
    path = folder / "settings.xml"
    namespace = "http://maven.apache.org/SETTINGS/1.0.0"
    path.write_text(f'<settings xmlns="{namespace}"><mirrors>{"".join(mirrors)}</mirrors></settings>')
    return path


def mirror(of: str, url: str, more: str = "") -> str:
    return f"<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url> {url} </url>{more}</mirror>"


@pytest.mark.parametrize("of", ["central", "*", "external:*", "other, central", "*,!other"])
def test_a_mirror_of_central_is_used(tmp_path: Path, of: str) -> None:
    assert central_mirror(settings(tmp_path, mirror(of, "https://m.example/repo")), {}) == "https://m.example/repo"


@pytest.mark.parametrize("of", ["other", "*,!central", "external:http:*", ""])
def test_a_mirror_of_something_else_is_not(tmp_path: Path, of: str) -> None:
    assert central_mirror(settings(tmp_path, mirror(of, "https://m.example/repo")), {}) is None


def test_a_mirror_of_exactly_central_comes_before_a_wildcard(tmp_path: Path) -> None:
    path = settings(tmp_path, mirror("*", "https://all.example"), mirror("central", "https://one.example"))
    assert central_mirror(path, {}) == "https://one.example"


def test_a_blocked_mirror_is_passed_over(tmp_path: Path) -> None:
    path = settings(tmp_path, mirror("*", "https://no.example", "<blocked>true</blocked>"))
    assert central_mirror(path, {}) is None


def test_environment_variables_in_an_address_are_filled_in(tmp_path: Path) -> None:
    path = settings(tmp_path, mirror("*", "https://${env.PROXY_HOST}/repo"))
    assert central_mirror(path, {"PROXY_HOST": "m.example"}) == "https://m.example/repo"


def test_no_settings_mean_no_mirror_and_damaged_ones_are_an_error(tmp_path: Path) -> None:
    assert central_mirror(tmp_path / "settings.xml", {}) is None
    (tmp_path / "settings.xml").write_text("<settings>")
    with pytest.raises(StackError, match=r"settings\.xml cannot be read"):
        central_mirror(tmp_path / "settings.xml", {})


@pytest.mark.parametrize(
    "line",
    [
        "\t\tmodule not found: org.apache.kafka#kafka_2.13;9.9.9",
        "\t\t:: org.apache.kafka#kafka_2.13;9.9.9: not found",
        "\t\t[FAILED     ] download failed: org.apache.kafka#kafka_2.13;9.9.9!kafka_2.13.jar",
    ],
)
def test_the_missing_artifact_is_read_from_the_output(line: str) -> None:
    assert str(missing(ToolResult(1, (":: resolving dependencies ::", line)))) == "org.apache.kafka:kafka_2.13:9.9.9"


def test_output_without_an_artifact_names_none() -> None:
    assert missing(ToolResult(1, ("Exception in thread main",))) is None


def test_ivy_is_found_inside_pyspark_without_importing_it() -> None:
    pytest.importorskip("pyspark")
    jars = find_ivy()
    assert jars is not None
    assert [jar.name.rpartition("-")[0] for jar in jars] == ["ivy", "oro", "commons-cli"]
