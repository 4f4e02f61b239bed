"""The files of the repository and their syntax trees, for the tests in this folder."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARY: Final = ("bridge", "deploy", "dialog", "routing", "schemas", "spark")
PURE: Final = ("dialog", "routing", "schemas")
OUTSIDE: Final = ("deploy/docker/",)
"""Parts of the library's folders that only a checkout needs, to build the image."""

TYPE_CHECKING_NAMES: Final = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


@cache
def pyproject() -> dict[str, Any]:
    """The parsed `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository, sorted, without links, git's folder and the files that `.gitignore` names."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]
    return tuple(sorted(_walk(ROOT, [".git", *ignored])))


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink() or any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        else:
            yield path


def refuse(findings: Iterable[str]) -> None:
    """Fail with all findings, a line each."""
    lines = "\n".join(findings)
    if lines:
        pytest.fail(lines, pytrace=False)


def name_of(path: Path) -> str:
    """The path from the root, as messages show it."""
    return path.relative_to(ROOT).as_posix()


def python_files() -> list[Path]:
    """Every Python file of the repository."""
    return [path for path in files() if path.suffix == ".py"]


def library_files(*folders: str) -> list[Path]:
    """The Python files of the library, or of some of its folders."""
    return [path for path in shipped_files(*folders) if path.suffix == ".py"]


def shipped_files(*folders: str) -> list[Path]:
    """The files of the library's folders, or of some, that a wheel must contain: all but prose."""
    starts = tuple(f"{folder}/" for folder in folders or LIBRARY)
    names = {path: name_of(path) for path in files() if path.suffix != ".md"}
    return [path for path, name in names.items() if name.startswith(starts) and not name.startswith(OUTSIDE)]


def module_of(path: Path) -> str:
    """The dotted name under which a file of the library is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("konverse", *parts)).removesuffix(".__init__")


@cache
def syntax(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` except those that only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in TYPE_CHECKING_NAMES:
            for other in child.orelse:
                yield other
                yield from runtime_nodes(other)
            continue
        yield child
        yield from runtime_nodes(child)
