"""Limits of size: a reader can keep 70 lines of a function in mind, and 700 of a module with one subject."""

from __future__ import annotations

import ast
from typing import Final

from tests.architecture.tree import name_of, python_files, refuse, syntax

FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 700


def long_functions(tree: ast.Module) -> list[str]:
    """Functions and methods that are too long, with their length in lines."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    return [f"{node.name} ({lines})" for node, lines in lengths.items() if lines > FUNCTION_LINES_MAX]


def test_no_function_is_over_70_lines() -> None:
    refuse(f"{name_of(path)}: {function}" for path in python_files() for function in long_functions(syntax(path)))


def test_no_module_is_over_700_lines() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    refuse(f"{name}: {lines} lines" for name, lines in lengths.items() if lines > MODULE_LINES_MAX)


def test_a_long_function_is_found_wherever_it_stands() -> None:
    body = "        pass\n" * FUNCTION_LINES_MAX
    assert long_functions(ast.parse(f"class Queue:\n    async def receive(self):\n{body}")) == ["receive (71)"]
    assert long_functions(ast.parse(f"class Queue:\n    def receive(self):\n{body[:-13]}")) == []
