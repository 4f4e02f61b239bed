"""Every public name of the library has a docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.architecture.tree import library_files, name_of, refuse, syntax

EXCUSED: Final = {"overload", "override", "setter", "deleter"}
"""Decorators of functions that are described elsewhere: in the base class, or at the getter."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def undocumented(tree: ast.Module) -> list[str]:
    """Public module, classes, functions and methods without a docstring, by dotted name."""
    missing = [] if ast.get_docstring(tree) or not tree.body else ["(module)"]
    return missing + list(_undocumented(tree, ""))


def _undocumented(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_") or _excused(node):
            continue
        if not ast.get_docstring(node):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node, f"{prefix}{node.name}.")


def _excused(node: ast.ClassDef | Function) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return not names.isdisjoint(EXCUSED)


def test_every_public_name_has_a_docstring() -> None:
    refuse(f"{name_of(path)}: {name}" for path in library_files() for name in undocumented(syntax(path)))


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("x = 1", ["(module)"]),
        ("'''M.'''\ndef send(): pass", ["send"]),
        ("'''M.'''\nclass Queue: pass", ["Queue"]),
        ("'''M.'''\nclass Queue:\n '''Q.'''\n async def receive(self): pass", ["Queue.receive"]),
        ("'''M.'''\nclass Queue:\n '''Q.'''\n class Item: pass", ["Queue.Item"]),
        ("'''M.'''\nclass Queue:\n '''Q.'''\n @override\n def close(self): pass", []),
        ("'''M.'''\nclass Queue:\n '''Q.'''\n def __len__(self): pass\n def _grow(self): pass", []),
        ("'''M.'''\ndef send():\n '''S.'''\n def inner(): pass", []),
    ],
)
def test_a_name_without_a_docstring_is_found(source: str, missing: list[str]) -> None:
    assert undocumented(ast.parse(source)) == missing
