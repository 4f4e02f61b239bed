"""The simulator drives the product as it is: it sets hooks, and replaces nothing of what the product decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .tree import ROOT, syntax

SIMULATOR: Final = ROOT / "tests" / "kit" / "simulator"
TUNING: Final = "tuning.py"
"""Changes the limits of a run, and nothing else."""

PATCHING: Final = {"setattr", "delattr", "patch", "MonkeyPatch"}
LAYERS: Final = ("schemas", "dialog", "routing", "bridge")


def methods() -> set[str]:
    """Names of all methods of the product."""
    return {
        function.name
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
        for owner in ast.walk(syntax(path))
        if isinstance(owner, ast.ClassDef)
        for function in owner.body
        if isinstance(function, ast.FunctionDef)
    }


def attributes() -> set[str]:
    """Names of what the product's objects, or those of the simulator, set themselves: hooks among them."""
    paths = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    found: set[str] = set()
    for path in [*paths, *SIMULATOR.glob("*.py")]:
        for node in ast.walk(syntax(path)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
    return found


def patches(source: str, forbidden: set[str]) -> Iterator[str]:
    """Assignments to what is private of another object, or stands in the place of a method; calls that patch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not own and (node.attr.startswith("_") or node.attr in forbidden):
                yield ast.unparse(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in PATCHING:
                yield ast.unparse(node)


@pytest.mark.parametrize("path", sorted(SIMULATOR.glob("*.py")), ids=lambda path: path.name)
def test_the_simulator_patches_no_method_of_the_product(path: Path) -> None:
    forbidden = methods() - attributes()
    found = [*patches(path.read_text(encoding="utf-8"), forbidden)]
    assert not found or path.name == TUNING, f"{found}: give the product a hook that its own driver may use too"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("owner.staging._overtaken = mine", ["owner.staging._overtaken"]),
        ("owner.snapshots.begin = mine", ["owner.snapshots.begin"]),
        ("del owner._fold", ["owner._fold"]),
        ("setattr(owner, name, mine)", ["setattr"]),
        ("mock.patch.object(owner, name)", ["mock.patch"]),
        ("self._own = self.begin = owner.staging.judge = mine", []),
    ],
)
def test_a_patch_is_found(source: str, found: list[str]) -> None:
    assert [*patches(source, {"begin"})] == found
