"""The imports of the library form no circle, and name only distributions that `pyproject.toml` declares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.tree import LIBRARY, library_files, module_of, name_of, pyproject, refuse, runtime_nodes, syntax

EXTRAS_OF_FOLDER: Final = {"spark": ["spark"]}
"""Extras that the modules of a folder need for their import. All other modules need none."""


def imported(
    tree: ast.AST, package: str = "", modules: Collection[str] = (), *, checkers: bool = False
) -> Iterator[str]:
    """Dotted names of the modules that a module of `package` imports.

    With `checkers` the imports that only type checkers see are among them.
    """
    for node in ast.walk(tree) if checkers else runtime_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else source for name in names)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def imports_between(
    sources: dict[str, ast.Module], packages: Collection[str], *, checkers: bool = False
) -> dict[str, set[str]]:
    """Module → modules that it imports, anywhere in its code."""
    return {
        module: {
            name
            for name in imported(
                tree, module if module in packages else module.rpartition(".")[0], sources, checkers=checkers
            )
            if name in sources
        }
        for module, tree in sources.items()
    }


def test_the_library_has_no_circle_of_imports() -> None:
    """Imports for type checkers are among them."""
    sources = {module_of(path): syntax(path) for path in library_files()}
    packages = [module_of(path) for path in library_files() if path.name == "__init__.py"]
    assert circle(imports_between(sources, packages, checkers=True)) == []


def test_no_module_has_the_name_of_a_function_or_class_of_its_package() -> None:
    """An import of such a module would return the function or class of that name."""
    for head in (path for path in library_files() if path.name == "__init__.py"):
        defined = {node.name for node in syntax(head).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        beside = {path.stem for path in head.parent.iterdir() if path.is_dir() or path.suffix == ".py"}
        assert not defined & beside, name_of(head)


@pytest.mark.parametrize(
    ("states", "fold"),
    [
        ("from .fold import Fold", "from .states import State"),
        ("from . import fold", "import konverse.dialog.states"),
        ("def load():\n    from .fold import Fold", "from konverse.dialog import states"),
    ],
)
def test_a_circle_is_found(states: str, fold: str) -> None:
    sources = {"konverse.dialog.states": ast.parse(states), "konverse.dialog.fold": ast.parse(fold)}
    assert len(circle(imports_between(sources, []))) == 3


def test_a_package_that_imports_its_modules_is_part_of_a_circle_only_when_they_import_it() -> None:
    package, module = "konverse.dialog", "konverse.dialog.states"
    gather = ast.parse("from .states import State")
    assert circle(imports_between({package: gather, module: ast.parse("import json")}, [package])) == []
    assert circle(imports_between({package: gather, module: ast.parse("from . import State")}, [package])) != []


def test_an_import_for_type_checkers_closes_no_circle() -> None:
    assert list(imported(ast.parse("if TYPE_CHECKING:\n    from .fold import Fold\nelse:\n    import json"))) == [
        "json"
    ]


def test_an_import_for_type_checkers_closes_a_circle_in_the_core() -> None:
    states = ast.parse("if TYPE_CHECKING:\n    from .fold import Fold")
    sources = {"konverse.dialog.states": states, "konverse.dialog.fold": ast.parse("from .states import State")}
    assert circle(imports_between(sources, [])) == []
    assert len(circle(imports_between(sources, [], checkers=True))) == 3


# ------------------------------------------------------------------------------------------------------- declarations


def requirements(*extras: str) -> set[str]:
    """Names of the distributions that an installation with these extras declares."""
    project = pyproject()["project"]
    lines = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def undeclared(tree: ast.Module, declared: set[str]) -> list[str]:
    """Third-party names that are imported without being declared."""
    tops = {name.partition(".")[0] for name in imported(tree, "konverse")}
    tops -= {"konverse", *sys.stdlib_module_names}
    return sorted(top for top in tops if declared.isdisjoint(providers().get(top, [top])))


@cache
def providers() -> dict[str, list[str]]:
    """Import name → installed distributions that provide it."""
    return {top: [canonicalize_name(name) for name in names] for top, names in packages_distributions().items()}


def at_import_time(tree: ast.Module) -> ast.Module:
    """A copy of the module without the bodies of its functions."""
    copy = ast.parse(ast.unparse(tree))
    for node in ast.walk(copy):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return copy


@pytest.mark.parametrize("folder", LIBRARY)
def test_every_imported_distribution_is_declared(folder: str) -> None:
    always = requirements(*EXTRAS_OF_FOLDER.get(folder, []))
    sometimes = requirements("spark", "server", "validation", "routing")
    for path in library_files(folder):
        missing = undeclared(at_import_time(syntax(path)), always) + undeclared(syntax(path), sometimes)
        refuse(f"{name_of(path)}: {name}" for name in missing)


def test_an_undeclared_distribution_is_found() -> None:
    tree = ast.parse("import json, click\nfrom redis import Redis\ndef start():\n    import pytest")
    assert undeclared(tree, requirements()) == ["click", "pytest"]
    assert undeclared(at_import_time(tree), requirements()) == ["click"]
