"""Mutants: the product without one of its rules. A mutant replaces lines of functions by other lines.

Each file of `mutants/` describes one:

    rule = "a row is void until its batch is decided (protocol.md 9b)."
    kinds = ["queries"]          # runs that can show it; without this, any run

    [[change]]
    file = "dialog/rules/batches.py"
    within = "on_pending"      # qualified name of a function or class; without this, the module
    replace = '''
    pending.put(attempt, number, row)
    '''
    by = '''
    pending.put(attempt, number, row)
    _accept(state, Decision(*detail[:3], final=True), row, timestamp_ms(record[1]))
    '''

The syntax tree locates the function. Its lines are compared without common indentation, comments and blank lines, so a
mutant still fits when its function moves or when a comment is reworded.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_Span = tuple[int, int]
"""Index of the first line, and of the line behind the last."""


class MutantDoesNotFit(Exception):
    """The sources have changed; the mutant must be written again."""


@dataclass(frozen=True, slots=True)
class Change:
    """Lines of a function, and the lines that replace them."""

    file: str
    """Path below the package, like "dialog/owner/owner.py"."""
    within: str
    """Qualified name of a function or class; empty: the module."""
    replace: tuple[str, ...]
    by: tuple[str, ...]
    """Lines without their common indentation."""

    def applied(self, source: str) -> str:
        """The source with this change. Raises MutantDoesNotFit."""
        lines = source.split("\n")
        wanted = [code for code in map(without_comment, self.replace) if code]
        places = [
            place
            for first, end in _spans(ast.parse(source), self.within.split(".") if self.within else [])
            for place in _places(lines, first, end, wanted)
        ]
        if len(places) != 1:
            where = f"{self.file}, {self.within or 'the module'}"
            raise MutantDoesNotFit(f"{where}: its lines stand there {len(places)} times: {' / '.join(self.replace)}")
        ((start, end, margin),) = places
        lines[start:end] = [margin + line if line else line for line in self.by]
        return "\n".join(lines)


def _places(lines: list[str], first: int, end: int, wanted: list[str]) -> Iterator[tuple[int, int, str]]:
    """Each occurrence of the wanted code between two lines: its first line, the line behind it, and its indentation."""
    code = [(number, text) for number in range(first, end) if (text := without_comment(lines[number]))]
    for at in range(len(code) - len(wanted) + 1):
        found = code[at : at + len(wanted)]
        margin = found[0][1].removesuffix(wanted[0])
        if not margin.strip() and [text for _, text in found] == [margin + line for line in wanted]:
            yield found[0][0], found[-1][0] + 1, margin


def without_comment(line: str) -> str:
    """A line of code without its comment and trailing blanks; empty when it has no code."""
    quote = ""
    at = 0
    while at < len(line):
        if quote:
            if line[at] == "\\":
                at += 1
            elif line.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif line[at] in "\"'":
            quote = line[at] * 3 if line.startswith(line[at] * 3, at) else line[at]
            at += len(quote) - 1
        elif line[at] == "#":
            return line[:at].rstrip()
        at += 1
    return line.rstrip()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, and the changes that switch it off."""

    name: str
    rule: str
    kinds: tuple[str, ...]
    """Kinds of runs that can show it; empty: any run."""
    changes: tuple[Change, ...]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """Read a mutant's file."""
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        changes = [
            Change(one["file"], one.get("within", ""), _lines(one["replace"]), _lines(one["by"]))
            for one in said["change"]
        ]
        return cls(path.stem, said["rule"], tuple(said.get("kinds", ())), tuple(changes))

    def apply(self, package: Path) -> None:
        """Change the package in that folder. Raises MutantDoesNotFit, and has then changed nothing."""
        files: dict[str, str] = {}
        for change in self.changes:
            source = files.get(change.file) or (package / change.file).read_text(encoding="utf-8")
            try:
                files[change.file] = change.applied(source)
            except MutantDoesNotFit as error:
                raise MutantDoesNotFit(f"{self.name} does not fit: {error}") from None
        for name, source in files.items():
            ast.parse(source, name)
            (package / name).write_text(source, encoding="utf-8")


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.removesuffix("\n").split("\n")) if text else ()


def _spans(tree: ast.Module, names: list[str]) -> Iterator[_Span]:
    """The lines of each function or class with that qualified name, decorators included."""
    if not names:
        yield 0, max((node.end_lineno or 0 for node in tree.body), default=0)
        return
    found: list[ast.AST] = [tree]
    for name in names:
        found = [node for outer in found for node in scopes(outer) if node.name == name]
    for node in found:
        yield span(node)


def scopes(outer: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes directly in a node."""
    out = []
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, _SCOPES):
            out.append(node)
        else:
            out += scopes(node)
    return out


def span(node: ast.AST) -> _Span:
    """The lines of a function or class."""
    assert isinstance(node, _SCOPES)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first - 1, node.end_lineno or node.lineno
