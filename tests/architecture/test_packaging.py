"""The wheel has every file that the library needs, and works in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.tree import (
    LIBRARY,
    ROOT,
    files,
    library_files,
    module_of,
    name_of,
    pyproject,
    refuse,
    shipped_files,
)

CONSTRAINTS: Final = ROOT / "constraints.txt"
PIN: Final = re.compile(r"^([\w.-]+)==[\w.!+]+\s*(?:;.*)?$", re.MULTILINE)
IMPORT_ALL: Final = """
import importlib, pathlib, sys
site, *names = sys.argv[1:]
for name in names:
    module = importlib.import_module(name)
    assert pathlib.Path(module.__file__).is_relative_to(site), f"{name} comes from {module.__file__}"
"""

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(300)]


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Output of a program, which must succeed."""
    done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, capture_output=True)
    if done.returncode:
        pytest.fail(
            f"{command[0]} {command[1]} ended with {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False
        )
    return done.stdout


def public_modules() -> set[str]:
    """Dotted names of the library's modules without an underscore in front."""
    return {name for name in map(module_of, library_files()) if not re.search(r"\._", name)} | {"konverse"}


def unpinned(names: Iterable[str], constraints: str) -> list[str]:
    """Distributions that the constraints do not pin to one version."""
    pinned = {canonicalize_name(name) for name in PIN.findall(constraints)}
    return sorted({canonicalize_name(name) for name in names} - pinned)


def reachable(*extras: str) -> set[str]:
    """Every distribution that konverse with these extras needs under one of the supported versions of Python."""
    seen = {("konverse", extra) for extra in ("", *extras)}
    waiting = list(seen)
    while waiting:
        name, extra = waiting.pop()
        for requirement in map(Requirement, requires(name)):
            if is_needed(requirement, extra):
                found = {(canonicalize_name(requirement.name), wanted) for wanted in ("", *requirement.extras)} - seen
                seen |= found
                waiting += found
    return {name for name, _ in seen} - {"konverse"}


def requires(name: str) -> list[str]:
    """The requirements of a distribution; none when it is not installed, because other versions of Python need it."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def is_needed(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement holds for one of the supported versions of Python."""
    versions = [{"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in (11, 12, 13)]
    marker = requirement.marker
    return marker is None or any(marker.evaluate(version | {"extra": extra}) for version in versions)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for path in files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--constraint", CONSTRAINTS, wheel, cwd=folder)
    run(*pip, "check", cwd=folder)
    return folder


def test_pyproject_lists_every_package() -> None:
    found = {module_of(path) for path in library_files() if path.name == "__init__.py"}
    assert set(pyproject()["tool"]["setuptools"]["packages"]) == found | {"konverse"}


def test_pyproject_maps_every_package_to_its_folder() -> None:
    found = {module_of(path): name_of(path.parent) for path in library_files() if path.name == "__init__.py"}
    assert pyproject()["tool"]["setuptools"]["package-dir"] == found | {"": ".namespace"}


def test_every_folder_with_modules_is_a_package() -> None:
    refuse(sorted({name_of(path) for path in library_files() if not (path.parent / "__init__.py").exists()}))


def test_every_folder_of_the_library_has_its_link_for_the_checkers() -> None:
    links = {path.name: path.resolve() for path in (ROOT / ".namespace" / "checkers" / "konverse").iterdir()}
    modules = {path.name: path for path in (ROOT / ".namespace" / "konverse").iterdir() if path.is_file()}
    assert links == {name: ROOT / name for name in LIBRARY} | modules


def test_make_installs_one_version_of_each_distribution() -> None:
    refuse(unpinned({"pip", *reachable("dev")}, CONSTRAINTS.read_text(encoding="utf-8")))


def test_an_unpinned_distribution_is_found() -> None:
    assert {"hiredis", "iniconfig", "py4j", "pyspark"} <= reachable("dev")
    assert "pytest" not in reachable("spark")
    assert "docker" not in reachable()
    assert "async-timeout" in reachable(), "redis needs it before Python 3.11.3"
    assert unpinned(["redis", "Py_Yaml", "rich"], "redis>=8\npy-yaml==6.0\nrich==15.*") == ["redis", "rich"]


def test_the_wheel_holds_every_file_of_the_library_and_nothing_else(wheel: Path) -> None:
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    namespace = ROOT / ".namespace"
    needed = {f"konverse/{name_of(path)}" for path in shipped_files()}
    needed |= {path.relative_to(namespace).as_posix() for path in files() if path.is_relative_to(namespace)}
    needed.discard("README.md")
    refuse(f"missing: {name}" for name in sorted(needed - held))
    refuse(f"foreign: {name}" for name in sorted(held - needed))


@pytest.mark.parametrize(
    "pattern",
    [
        r"konverse/schemas/envelope\.avsc",
        r"konverse/bridge/scripts/\w+\.lua",
        r"konverse/deploy/compose\.yaml",
        r"konverse/py\.typed",
        r"pyspark_konverse\.py",
        r"konverse-[\d.]+\.dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_contains_the_files_that_are_not_code(wheel: Path, pattern: str) -> None:
    assert [name for name in ZipFile(wheel).namelist() if re.fullmatch(pattern, name)] != []


def test_every_public_module_imports_in_an_empty_environment(environment: Path) -> None:
    names = sorted(name for name in public_modules() if not name.startswith("konverse.spark"))
    run(environment / "bin" / "python", "-I", "-c", IMPORT_ALL, environment, *names, cwd=environment)


def test_every_module_for_spark_imports_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, wheel, cwd=tmp_path)
    names = sorted(name for name in public_modules() if name.startswith("konverse.spark"))
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    run(sys.executable, "-c", IMPORT_ALL, tmp_path, *names, "pyspark_konverse", cwd=tmp_path, env=env)


def test_the_door_and_the_commands_open_in_an_empty_environment(environment: Path) -> None:
    run(environment / "bin" / "python", "-I", "-c", "from konverse import Broker, connect", cwd=environment)
    commands = ["", *pyproject()["project"]["entry-points"]["konverse.commands"]]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # a Spark session may set it
    for command in commands:
        said = run(environment / "bin" / "konverse", *command.split(), "--help", cwd=environment, env=bare)
        assert "Usage" in said


def test_the_package_has_the_version_of_the_distribution() -> None:
    root = (ROOT / ".namespace" / "konverse" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{pyproject()["project"]["version"]}"' in root
