"""One name, one class; and a class is whole: it sets what it declares, and no base exists to split it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.tree import LIBRARY, ROOT, name_of, refuse, syntax

VALUES: Final = {"NamedTuple", "Protocol", "TypedDict"}
"""Bases whose annotations are the fields of a value, or the members of a protocol."""


def library() -> list[Path]:
    return sorted(path for folder in LIBRARY for path in (ROOT / folder).rglob("*.py"))


def classes_of(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def base_name(base: ast.expr) -> str:
    """The last name of a base, without type arguments."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def unset(node: ast.ClassDef) -> list[str]:
    """Attributes that a class declares and no method of it sets; a dataclass, a value or a protocol has none."""
    if node.decorator_list or VALUES & {base_name(base) for base in node.bases}:
        return []
    bare = (one.target for one in node.body if isinstance(one, ast.AnnAssign) and _is_bare(one))
    declared = [target.id for target in bare if isinstance(target, ast.Name)]
    stored = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
    return [name for name in declared if name not in stored]


def _is_bare(node: ast.AnnAssign) -> bool:
    return node.value is None and "ClassVar" not in ast.unparse(node.annotation)


def test_a_class_of_the_library_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in library():
        for node in classes_of(syntax(path)):
            if not node.name.startswith("_"):
                places[node.name].append(name_of(path))
    refuse(f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1)


def test_every_class_sets_its_declared_attributes() -> None:
    refuse(
        f"{name_of(path)}: {node.name} declares {', '.join(names)} and sets none of it"
        for path in library()
        for node in classes_of(syntax(path))
        if (names := unset(node))
    )


def test_attributes_that_a_class_never_sets_are_found() -> None:
    (part,) = classes_of(
        ast.parse("class Part:\n    lock: Lock\n    count: int\n    def add(self):\n        self.count = 1")
    )
    assert unset(part) == ["lock"]
    for value in (
        "class Row(NamedTuple):\n    a: int",
        "class Host(Protocol[T]):\n    a: int",
        "@dataclass\nclass A:\n    a: int",
    ):
        (node,) = classes_of(ast.parse(value))
        assert unset(node) == []
