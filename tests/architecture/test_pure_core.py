"""schemas, dialog and routing give one result for one input: no clock, randomness, I/O or set order."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.purity import impurities
from tests.architecture.tree import PURE, library_files, name_of, refuse, syntax


@pytest.mark.parametrize("folder", PURE)
def test_the_pure_core_holds_nothing_that_differs_between_two_runs(folder: str) -> None:
    refuse(f"{name_of(path)}:{what}" for path in library_files(folder) for what in impurities(syntax(path)))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import time", "imports time"),
        ("import os.path", "imports os.path"),
        ("from random import Random", "imports random"),
        ("def f():\n import logging", "imports logging"),
        ("from uuid import uuid4", "imports uuid4"),
        ("import uuid\nuuid.uuid4()", "uses uuid4"),
        ("from uuid import UUID as U\nU.uuid1", "uses uuid1"),
        ("from datetime import datetime\ndatetime.now(UTC)", "uses now"),
        ("from datetime import date\ndate.today()", "uses today"),
        ("x = hash('a')", "uses hash"),
        ("print('sent')", "uses print"),
        ("open('file')", "uses open"),
        ("for x in {1, 2}: pass", "depends on the order of the set {1, 2}"),
        ("for x in set(xs): pass", "depends on the order of the set set(xs)"),
        ("async def f():\n async for x in set(xs): pass", "depends on the order of the set set(xs)"),
        ("[x for x in {y for y in ys}]", "depends on the order of the set {y for y in ys}"),
        ("{x: 1 for x in frozenset(xs)}", "depends on the order of the set frozenset(xs)"),
        ("def f(seen: set[int]): return list(seen)", "depends on the order of the set seen"),
        ("def f(seen: 'frozenset[int] | None'): return tuple(seen)", "depends on the order of the set seen"),
        ("class C:\n seen: Final[set[int]]\n def f(self): return next(iter(self.seen))", "set self.seen"),
        ("self.seen = set()\nfor x in self.seen: pass", "depends on the order of the set self.seen"),
        ("a = set()\nb = a\nb.pop()", "depends on the order of the set b"),
        ("','.join(set(xs))", "depends on the order of the set set(xs)"),
        ("xs.extend({1})", "depends on the order of the set {1}"),
        ("dict.fromkeys({1})", "depends on the order of the set {1}"),
        ("[*{1}]", "depends on the order of the set {1}"),
        ("a, b = {1, 2}", "depends on the order of the set {1, 2}"),
        ("def f(): yield from {1}", "depends on the order of the set {1}"),
        ("for x in a.keys() - b: pass", "depends on the order of the set a.keys() - b"),
        ("for x in {1} | ys: pass", "depends on the order of the set {1} | ys"),
        ("for i, x in enumerate({1}): pass", "depends on the order of the set {1}"),
        ("max([x for x in {1}], key=f)", "depends on the order of the set {1}"),
        ("sorted({1}, key=f)", "depends on the order of the set {1}"),
    ],
)
def test_impure_code_is_found(source: str, what: str) -> None:
    assert [found for found in impurities(ast.parse(source)) if found.endswith(what)] != []


@pytest.mark.parametrize(
    "source",
    [
        "if TYPE_CHECKING:\n from random import Random",
        "from uuid import UUID",
        "for x in sorted({1, 2}): pass",
        "any(x > 1 for x in {1, 2})",
        "{x + 1 for x in {1, 2}}",
        "sorted(x + 1 for x in {1, 2})",
        "x in {1, 2}",
        "for x in {1: 2}: pass",
        "for x in mapping.keys(): pass",
        "class C:\n def __hash__(self): return hash(self.key)",
        "def f(seen: dict[str, set[int]]):\n for x in seen: pass",
        "stack.pop()",
        "def f(seen: set[int]): pass\ndef g(seen: list[int]):\n for x in seen: pass",
        "class C:\n seen: set[int]\ndef g(seen: list[int]):\n for x in seen: pass",
        "def step(event, now): return now + 1",
    ],
)
def test_pure_code_is_accepted(source: str) -> None:
    assert impurities(ast.parse(source)) == []
