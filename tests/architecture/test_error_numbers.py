"""For a behaviour that names an error number, some test asserts the number, not only the type."""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.kit.conformance_page import FOLDER, Behaviour, behaviours, shown_by_number

NUMBER: Final = re.compile(r"(?<![\d,.])(?:8[34]\d\d|9[67]\d\d|28\d{3})\b")

ONE_OF: Final = {
    52: (8426, 8429),
    118: (8426, 8427),
}
"""Behaviours in which Service Broker raises one of several numbers."""

OTHERWISE: Final = {
    39: {8406: "LIFETIME NULL is no LIFETIME"},
    80: {8447: "RECEIVE has one form", 8450: "RECEIVE has one form"},
    135: {8494: "Kafka's ACLs keep what may not be sent at its sender"},
    137: {8495: "two copies of a service cannot answer"},
}
"""Numbers that konverse does not raise, with the reason. The page shows it as a note of the test."""

SHOWN: Final = shown_by_number()
TREES: Final = {path.name: ast.parse(path.read_text("utf-8")) for path in FOLDER.glob("test_*.py")}


def numbers_in(module: str, test: str) -> set[int]:
    """Integers in the source of a test, its decorators, and the functions and constants of its module that it uses."""
    known: dict[str, ast.stmt] = {}
    for node in TREES[module].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            known[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            known[node.target.id] = node
    found, seen, names = set[int](), set[str](), [test]
    while names:
        name = names.pop()
        if name in known and name not in seen:
            seen.add(name)
            for part in ast.walk(known[name]):
                if isinstance(part, ast.Constant) and type(part.value) is int:
                    found.add(part.value)
                elif isinstance(part, ast.Name):
                    names.append(part.id)
    return found


def unasserted(behaviour: Behaviour) -> set[int]:
    """Numbers that a behaviour names and none of its tests asserts."""
    named = {int(number) for number in NUMBER.findall(behaviour.text)} - set(OTHERWISE.get(behaviour.number, ()))
    shown = SHOWN.get(behaviour.number, [])
    asserted = set[int]().union(*(numbers_in(test.module, test.name) for test in shown)) if shown else named
    if behaviour.number in ONE_OF and asserted.intersection(ONE_OF[behaviour.number]):
        named -= set(ONE_OF[behaviour.number])
    return named - asserted


def test_every_number_that_a_behaviour_names_is_asserted_by_a_test_of_it() -> None:
    missing = {each.number: left for each in behaviours() if (left := unasserted(each))}
    assert missing == {}, "assert error.number or the code of the Error; for a number that is not raised say why above"


def test_behaviours_with_error_numbers_that_konverse_does_not_raise_have_a_note_on_the_page() -> None:
    assert [number for number in OTHERWISE if not all(test.note for test in SHOWN[number])] == []
