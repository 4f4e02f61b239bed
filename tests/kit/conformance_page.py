"""docs/conformance.md, made from the tests: every behaviour of Service Broker, and the tests that show it.

python -m tests.kit.conformance_page > docs/conformance.md

A test under tests/conformance has the number of its behaviour in its name, `test_071_…`; "And 72" in its docstring
names a further one, "Deviates: …" says what happens instead, and "In part: …" what of it is not there yet.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parents[1] / "conformance"
BEHAVIOURS: Final = FOLDER / "behaviours.txt"

HEAD: Final = """# Conformance

What Service Broker does, behaviour by behaviour, and the test that shows that konverse does the same on a real Kafka.
This page is made from the tests by `python -m tests.kit.conformance_page`; a test holds it to that. A behaviour without
a test is not promised yet.

"""


class Behaviour(NamedTuple):
    """A line of `behaviours.txt`."""

    number: int
    area: str
    text: str


class Shown(NamedTuple):
    """A test of a behaviour."""

    module: str
    name: str
    note: str
    """What happens instead, or is not there yet; empty when it is kept."""


def behaviours() -> list[Behaviour]:
    """All of them, in their order."""
    found: list[Behaviour] = []
    area = ""
    for line in BEHAVIOURS.read_text("utf-8").splitlines():
        if line.startswith("["):
            area = line[1:-1]
        elif match := re.fullmatch(r"(\d+)\. (.+)", line):
            found.append(Behaviour(int(match[1]), area, match[2]))
    return found


def shown_by_number() -> dict[int, list[Shown]]:
    """The tests by the numbers that they name."""
    found: dict[int, list[Shown]] = {}
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = " ".join((ast.get_docstring(node) or "").split())
                note = re.search(r"(Deviates|In part): .+", said)
                shown = Shown(path.name, node.name, note[0] if note else "")
                for number in numbers_of(node.name, said):
                    found.setdefault(number, []).append(shown)
    return found


def numbers_of(name: str, docstring: str) -> Iterator[int]:
    """The behaviours that a test shows; ValueError for a name without a number."""
    match = re.match(r"test_(\d{3})_", name)
    if match is None:
        raise ValueError(f"{name} has no number of a behaviour in its name")
    yield int(match[1])
    yield from (int(number) for number in re.findall(r"\bAnd (\d+)\b", docstring))


def page() -> str:
    """The whole page."""
    known, shown = behaviours(), shown_by_number()
    whole = sum(any(not each.note for each in shown.get(behaviour.number, [])) for behaviour in known)
    parts = [HEAD, f"{whole} of {len(known)} behaviours are kept, {len(shown) - whole} in part or otherwise.\n"]
    area = ""
    for behaviour in known:
        if behaviour.area != area:
            area = behaviour.area
            parts.append(f"\n## {area}\n\n| | Behaviour | Tests |\n|---:|---|---|\n")
        parts.append(f"| {behaviour.number} | {behaviour.text} | {_cell(shown.get(behaviour.number, []))} |\n")
    return "".join(parts)


def _cell(found: list[Shown]) -> str:
    if not found:
        return "not yet"
    links = []
    for shown in found:
        words = shown.name.removeprefix("test_")[4:].replace("_", " ")
        link = f"[{words}](../tests/conformance/{shown.module}#{shown.name})"
        links.append(f"{link} ({shown.note})" if shown.note else link)
    return "; ".join(links)


if __name__ == "__main__":
    print(page(), end="")
