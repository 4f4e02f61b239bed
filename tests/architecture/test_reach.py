"""The library uses everything in the pure core. No code exists for tests alone, so the proven code is the running code.

A function that only tests call is dead, or it is a decision that the product makes elsewhere, without the proof.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import konverse
from tests.architecture.references import References
from tests.architecture.tree import LIBRARY, PURE, ROOT, library_files, module_of, name_of, pyproject, refuse, syntax
from tests.kit.api_page import INTERNAL, PUBLIC_CLASSES

LOADED: Final = ("check_of", "parser_of")
"""Functions of modules that are chosen at run time."""

EXCEPTIONS: Final[dict[str, str]] = {}
"""Full name → why it may exist although the library does not reach it yet."""

PLANTED: Final = """
from typing import NamedTuple, Protocol

class Met:
    def twin(self) -> int:
        return self._behind()
    def _behind(self) -> int:
        return used_by_the_dead()
    @property
    def shown(self) -> int:
        return 1

class Other:
    def twin(self) -> int:
        return used()
    @property
    def shown(self) -> int:
        return 2

class Twins(Protocol):
    def other_twin(self) -> int: ...

class Conforming:
    def other_twin(self) -> int:
        return 1

class Event(NamedTuple):
    number: int

class Unmade(NamedTuple):
    number: int

def door(other: Other, twins: Twins) -> int:
    made = [Other(), Event(1), Met, Conforming()]
    return other.twin() + other.shown + twins.other_twin() + sum(step(Event(1)) for step in TABLE.values()) + len(made)

def used() -> int:
    return 1

def used_by_the_dead() -> int:
    return 1

def called_by_tests() -> int:
    return Met().shown + _STALE[0](1)

def _on_event(event: object) -> int:
    return 1

def _stale(event: object) -> int:
    return 1

TABLE = {Event: _on_event}
_STALE = [_stale]
"""
"""A module with functions that only tests would call, and functions that the door `door` reaches."""

DEAD: Final = [
    "Met.twin", "Met._behind", "Met.shown", "used_by_the_dead", "called_by_tests", "_stale",
]  # fmt: skip


def sources() -> Iterator[tuple[str, Path]]:
    """Name and path of every shipped module."""
    for path in library_files():
        yield module_of(path), path
    yield "konverse", ROOT / ".namespace" / "konverse" / "__init__.py"
    yield "pyspark_konverse", ROOT / ".namespace" / "pyspark_konverse.py"


pytestmark = [
    pytest.mark.xdist_group("reach"),  # mypy reads the whole library once, not once in each worker
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def references() -> References:
    return References(sources(), ROOT / ".namespace" / "checkers", {"konverse.dialog.planted": PLANTED})


@pytest.fixture(scope="module")
def reached(references: References) -> set[str]:
    return references.reached([*doors(references), "konverse.dialog.planted.door"])


def doors(references: References) -> Iterator[str]:
    """The entry points of users, Python and Spark."""
    yield from ("konverse.__getattr__", "konverse.__dir__", "pyspark_konverse.DefaultSource")
    yield from (name for name in references.functions if name.rpartition(".")[0] == "konverse.spark")
    project = pyproject()["project"]
    scripts = [project["scripts"], *project["entry-points"].values()]
    yield from (target.replace(":", ".") for table in scripts for target in table.values())
    yield from (module_of(path) for path in library_files() if "__main__" in path.read_text(encoding="utf-8"))
    yield from (name for name in references.functions if name.rpartition(".")[2] in LOADED)
    public = [getattr(konverse, name) for name in konverse.__all__]
    for thing in [*public, *PUBLIC_CLASSES]:
        if inspect.isclass(thing):
            yield from _members(references, thing)
        elif callable(thing):
            yield f"{thing.__module__}.{thing.__name__}"


def _members(references: References, public: type) -> Iterator[str]:
    """A class and its members for users, inherited ones included."""
    for base in public.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in references.infos:
            yield name
            shown = [member for member in vars(base) if not member.startswith("_")]
            yield from (f"{name}.{member}" for member in shown if member not in INTERNAL.get(public.__name__, ()))


def unreached(references: References, reached: set[str], module: str = "konverse.") -> list[str]:
    """Functions and methods of the pure core that are not reached. Methods added by decorators are ignored."""
    return [
        name
        for name in references.functions
        if name.startswith(module) and name.split(".")[1] in PURE and "__mypy" not in name and name not in reached
    ]


def unmade(references: References, reached: set[str], module: str = "konverse.") -> list[str]:
    """Named tuples of the pure core that the library never makes: events that never come."""
    return [
        name
        for name, info in references.infos.items()
        if name.startswith(module)
        and name.split(".")[1] in PURE
        and info.is_named_tuple
        and not references.made[name] & reached
    ]


def test_every_function_of_the_pure_core_is_reached_from_a_public_door(
    references: References, reached: set[str]
) -> None:
    refuse(
        f"{Path(path).name}:{line}: {name} is reached by no public door. Delete it, move it under tests/kit if tests "
        "need it, or let the product call it"
        for name in unreached(references, reached)
        for path, line in [references.functions[name]]
        if name not in EXCEPTIONS and ".planted." not in name
    )


def test_every_record_event_and_effect_of_the_pure_core_is_made_by_the_library(
    references: References, reached: set[str]
) -> None:
    refuse(
        f"{name} is made by no code of the library; delete it and what handles it"
        for name in unmade(references, reached)
        if ".planted." not in name
    )


def test_exceptions_are_still_needed(references: References, reached: set[str]) -> None:
    refuse(f"{name} is reached now, or gone" for name in EXCEPTIONS if name not in unreached(references, reached))


def test_planted_code_without_callers_in_the_library_is_found(references: References, reached: set[str]) -> None:
    planted = "konverse.dialog.planted."
    assert unreached(references, reached, planted) == [planted + name for name in DEAD]
    assert unmade(references, reached, planted) == [f"{planted}Unmade"]


def test_every_function_called_through_import_module_is_listed_in_loaded() -> None:
    """Type checkers cannot see `import_module(…).name(…)`, so such functions are listed in LOADED."""
    refuse(
        f"{name_of(path)}:{node.lineno}: {node.attr} is to be listed in LOADED"
        for path in library_files(*LIBRARY)
        for node in _calls_of_loaded(path)
        if node.attr not in LOADED
    )


def _calls_of_loaded(path: Path) -> Iterator[ast.Attribute]:
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            called = node.value.func
            if getattr(called, "attr", getattr(called, "id", "")) == "import_module":
                yield node
