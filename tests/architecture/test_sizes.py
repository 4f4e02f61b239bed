"""Limits of size: a reader can keep 70 lines of a function in mind, and 700 of a module with one subject.

A module under 40 lines is a detour, and a folder of over 12 modules is no room, unless there is a reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

from tests.architecture.tree import library_files, name_of, python_files, refuse, syntax

FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 700


FOLDER_MODULES_MAX: Final = 12
SHORT_LINES: Final = 40
HEAD_LINES: Final = range(20, 61)

LARGE_FOLDERS: Final = {
    "bridge/cli": "a module for each command",
    "bridge/client": "the parts of one session of a process, each with one driver",
    "bridge/owner": "the parts of an owner's driver, each with one client of Kafka",
    "bridge/reader": "the parts of a reader, which share its locks",
    "bridge/runtime": "small tools without a common subject; none imports another package of the bridge",
    "bridge/verifier/fold": "a second reading of `dialog/rules`, module by module",
    "dialog/owner": "a module for each duty of an owner",
    "dialog/rules": "a module for each group of record kinds",
    "dialog/state": "the parts of a partition's state",
    "schemas/wire": "a module for each format on the wire",
}
"""Folders with more modules, and why they have them."""

SHORT_MODULES: Final = {
    "bridge/cli/confirmation.py": "shared by all commands that ask",
    "bridge/cli/transmit.py": "a command",
    "bridge/client/connection.py": "what a broker's parts share; it imports none of them",
    "bridge/client/pool/context.py": "what a pool's parts share; it imports none of them",
    "bridge/kafka/headers.py": "used by each reader of records",
    "bridge/owner/alarms.py": "an effect of owners and standbys",
    "bridge/owner/closing_log.py": "one log line, for readers that end without Kafka",
    "bridge/owner/effects.py": "the one loop of effects, for owners and standbys",
    "bridge/runtime/clock.py": "the one clock of the bridge",
    "bridge/runtime/collector.py": "settings of the interpreter",
    "bridge/runtime/exit_codes.py": "a table",
    "bridge/runtime/forks.py": "hooks of the interpreter",
    "bridge/runtime/ids.py": "the one source of conversation ids",
    "routing/keys/hash.py": "a kind of rule, like its neighbours",
    "schemas/counting.py": "used by texts of every package",
    "schemas/groups.py": "used by the core and Spark",
    "schemas/levels.py": "used by the catalog and the core",
    "schemas/stack_errors.py": "errors of `deploy`, which `schemas` may not import",
    "schemas/timeouts.py": "used by every way to set a timer",
    "schemas/wire/bodies.py": "used by every way to send",
    "schemas/wire/columns.py": "the one call into C for columns",
    "spark/connection/case_rule.py": "Spark's rule for names, used by reads and writes",
    "spark/connection/choices.py": "options that reads share",
    "spark/connection/requirements.py": "runs before the packages that it checks are imported",
    "spark/connection/values.py": "values of options, used by reads and writes",
    "spark/daemon.py": "Spark starts it by name",
}
"""Modules with less behaviour than a module of its own usually needs, and why they stand alone."""


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


def test_no_folder_has_over_12_modules_without_a_reason() -> None:
    counts = Counter(name_of(path.parent) for path in library_files() if path.name != "__init__.py")
    large = {folder for folder, modules in counts.items() if modules > FOLDER_MODULES_MAX}
    assert sorted(large) == sorted(LARGE_FOLDERS), "each large folder has a reason, and no other"


def test_no_module_is_under_40_lines_without_a_reason() -> None:
    modules = {name_of(path): path for path in library_files() if path.name not in {"__init__.py", "__main__.py"}}
    short = {name for name, path in modules.items() if len(path.read_text("utf-8").splitlines()) < SHORT_LINES}
    assert sorted(short) == sorted(SHORT_MODULES), "each short module has a reason, and no other"


def test_the_docstring_of_each_package_has_20_to_60_lines() -> None:
    heads = {
        name_of(path): ast.get_docstring(syntax(path)) or "" for path in library_files() if path.stem == "__init__"
    }
    lengths = {name: len(head.splitlines()) for name, head in heads.items()}
    refuse(f"{name}: {lines} lines" for name, lines in lengths.items() if lines not in HEAD_LINES)


def test_a_long_function_is_found_wherever_it_stands() -> None:
    body = "        pass\n" * FUNCTION_LINES_MAX
    assert long_functions(ast.parse(f"class Queue:\n    async def receive(self):\n{body}")) == ["receive (71)"]
    assert long_functions(ast.parse(f"class Queue:\n    def receive(self):\n{body[:-13]}")) == []
