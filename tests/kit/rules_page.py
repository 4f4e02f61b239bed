"""Makes docs/rules.md from `tests/rules.toml`: each rule of the protocol with the mutants and tests that prove it.

python -m tests.kit.rules_page > docs/rules.md
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PROTOCOL: Final = ROOT / "docs" / "protocol.md"
PROOFS: Final = ROOT / "tests" / "rules.toml"

RULE: Final = re.compile(r"\*\*M(\d+)\*\* ")
BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING: Final = re.compile(r"^#+ (.+)$")
LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")

INTRODUCTION: Final = """\
# Rules and their proofs

Generated from [tests/rules.toml](../tests/rules.toml); do not edit. Each rule of [the protocol](protocol.md) is listed
with its proofs. A **mutant** is the product with that one rule switched off: the simulator must fail on it
(`make mutants`). A **test** shows the rule on a class, in the simulator or on real servers.
"""


def paragraphs(text: str) -> list[str]:
    """Paragraphs of a page, without code blocks and diagrams."""
    return [part.strip() for part in re.split(r"\n\s*\n", BLOCK.sub("", text)) if part.strip()]


def proofs() -> Mapping[str, Mapping[str, list[str]]]:
    """Rule (`"M1"`) → names of its `mutants` and ids of its `tests` (`path::function`)."""
    return tomllib.loads(PROOFS.read_text(encoding="utf-8"))


def page() -> str:
    """The text of docs/rules.md."""
    return "\n".join([INTRODUCTION, *_sections(PROTOCOL.read_text(encoding="utf-8"))])


def _sections(protocol: str) -> Iterator[str]:
    known = proofs()
    heading = written = ""
    for part in paragraphs(protocol):
        if found := HEADING.match(part):
            heading = found.group(1)
        elif rule := RULE.match(part):
            if heading != written:
                written = heading
                yield f"## [{heading}](protocol.md#{anchor(heading)})\n"
            yield from _rule(LINK.sub(r"\1", part), known.get(f"M{rule.group(1)}", {}))


def _rule(text: str, by: Mapping[str, list[str]]) -> Iterator[str]:
    yield text + "\n"
    for name in by.get("mutants", ()):
        yield f"- mutant [{name.replace('_', ' ')}](../tests/simulation/mutants/{name}.toml)"
    for test in by.get("tests", ()):
        path, _, function = test.partition("::")
        yield f"- [{function.removeprefix('test_').replace('_', ' ')}](../{path})"
    yield ""


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    print(page(), end="")
