"""Generates docs/conformance.md from the tests: every behaviour of Service Broker, and the tests that show it.

python -m tests.kit.conformance_page > docs/conformance.md

A test under tests/conformance has the number of its behaviour in its name, `test_071_…`; "And 72" in its docstring
names a further one, "Deviates: …" describes konverse's behaviour instead, and "In part: …" the missing part. "Our
choice: …" says what konverse does where no published text decides; the behaviour counts as kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parents[1] / "conformance"
BEHAVIOURS: Final = FOLDER / "behaviours.txt"

CHOICE: Final = "Our choice"

HEAD: Final = """# Conformance

Look up each behaviour of Service Broker, and the tests that show it in konverse on a real Kafka. Notes in brackets name
deviations, and our choices where no published text decides. A behaviour without a test is not promised yet. Generated
by `python -m tests.kit.conformance_page`; a test checks that.

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
    """The deviation, the missing part or the choice; empty when there is none."""

    @property
    def kept(self) -> bool:
        """Whether konverse behaves as published, or chooses where no published text decides."""
        return not self.note or self.note.startswith(CHOICE)


def behaviours() -> list[Behaviour]:
    """All behaviours, in the order of the file."""
    found: list[Behaviour] = []
    area = ""
    for line in BEHAVIOURS.read_text("utf-8").splitlines():
        if line.startswith("["):
            area = line[1:-1]
        elif match := re.fullmatch(r"(\d+)\. (.+)", line):
            found.append(Behaviour(int(match[1]), area, match[2]))
    return found


def shown_by_number() -> dict[int, list[Shown]]:
    """Number of a behaviour → tests that show it."""
    found: dict[int, list[Shown]] = {}
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = " ".join((ast.get_docstring(node) or "").split())
                note = re.search(rf"(Deviates|In part|{CHOICE}): .+", said)
                shown = Shown(path.name, node.name, note[0] if note else "")
                for number in numbers_of(node.name, said):
                    found.setdefault(number, []).append(shown)
    return found


def numbers_of(name: str, docstring: str) -> Iterator[int]:
    """Numbers of the behaviours that a test shows. ValueError for a name without a number."""
    match = re.match(r"test_(\d{3})_", name)
    if match is None:
        raise ValueError(f"{name} has no number of a behaviour in its name")
    yield int(match[1])
    yield from (int(number) for number in re.findall(r"\bAnd (\d+)\b", docstring))


def page() -> str:
    """The text of docs/conformance.md."""
    known, shown = behaviours(), shown_by_number()
    whole = sum(any(each.kept for each in shown.get(behaviour.number, [])) for behaviour in known)
    parts = [HEAD, f"{whole} of {len(known)} behaviours are kept, {len(shown) - whole} in part or with a deviation.\n"]
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
