"""Parses the diagrams of a page: the part of Mermaid that the documentation uses, so that tests can check them.

A flowchart, a state diagram or a sequence diagram. Every line must be of a known form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_SHAPE: Final = r'(?:\[\("[^"]+"\)\]|\["[^"]+"\]|\("[^"]+"\)|\{"[^"]+"\})'
_NODE: Final = re.compile(rf"(\w+)({_SHAPE})?")
_EDGE: Final = re.compile(r'\s*-->(?:\|"([^"|]+)"\|)?\s*')
_SUBGRAPH: Final = re.compile(rf"subgraph \w+{_SHAPE}")
_TRANSITION: Final = re.compile(r"(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: ([^:;#]+))?")
_PARTICIPANT: Final = re.compile(r"participant (\w+) as ([^:;#]+)")
_SIGNAL: Final = re.compile(r"(\w+)(?:->>|-->>|-\)|--\))(\w+): ([^:;#]+)")
_NOTE: Final = re.compile(r"Note over (\w+)(?:,(\w+))?: ([^:;#]+)")


@dataclass
class Diagram:
    """A diagram."""

    kind: str
    """`flowchart`, `stateDiagram-v2` or `sequenceDiagram`."""
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    """From, to, text."""
    faults: list[str] = field(default_factory=list)
    """Lines of unknown form and other faults."""


def diagrams(page: str) -> list[Diagram]:
    """The diagrams of a page."""
    return [parse(found.group(1)) for found in BLOCK.finditer(page)]


def parse(text: str) -> Diagram:
    """Parse the text of a diagram."""
    first, *lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    kind = first.split(" ")[0]
    diagram = Diagram(kind)
    reader = _READERS.get(kind)
    if reader is None or not re.fullmatch(r"flowchart (?:LR|RL|TB|BT|TD)|stateDiagram-v2|sequenceDiagram", first):
        diagram.faults.append(f"unknown picture: {first!r}")
        return diagram
    diagram.faults += reader(diagram, lines)
    if not diagram.edges:
        diagram.faults.append("nothing leads anywhere")
    return diagram


def _flowchart(diagram: Diagram, lines: list[str]) -> Iterator[str]:
    depth = 0
    labelled: set[str] = set()
    named: set[str] = set()
    for line in lines:
        if line == "end":
            depth -= 1
            if depth < 0:
                yield "an `end` too many"
        elif _SUBGRAPH.fullmatch(line):
            depth += 1
        elif not _chain(diagram, line, labelled, named):
            yield f"not understood: {line!r}"
    if depth > 0:
        yield "a subgraph without `end`"
    yield from (f"{name} has no text" for name in sorted(named - labelled))


def _chain(diagram: Diagram, line: str, labelled: set[str], named: set[str]) -> bool:
    """Parse nodes with arrows between them. False when the line is more than such a chain."""
    at, before, text = 0, "", ""
    while True:
        node = _NODE.match(line, at)
        if node is None:
            return False
        name = node.group(1)
        named.add(name)
        if node.group(2):
            labelled.add(name)
        if before:
            diagram.edges.append((before, name, text))
        edge = _EDGE.match(line, node.end())
        if edge is None:
            return node.end() == len(line)
        at, before, text = edge.end(), name, edge.group(1) or ""


def _states(diagram: Diagram, lines: list[str]) -> Iterator[str]:
    for line in lines:
        found = _TRANSITION.fullmatch(line)
        if found is None:
            yield f"not understood: {line!r}"
        else:
            diagram.edges.append((found.group(1), found.group(2), found.group(3) or ""))


def _sequence(diagram: Diagram, lines: list[str]) -> Iterator[str]:
    known: set[str] = set()
    for line in lines:
        participant, signal, note = _PARTICIPANT.fullmatch(line), _SIGNAL.fullmatch(line), _NOTE.fullmatch(line)
        if participant:
            known.add(participant.group(1))
            continue
        if signal:
            diagram.edges.append((signal.group(1), signal.group(2), signal.group(3)))
        found = signal or note
        if found is None:
            yield f"not understood: {line!r}"
            continue
        yield from (f"{name} takes no part" for name in found.groups()[:2] if name and name not in known)


_READERS: Final[dict[str, Callable[[Diagram, list[str]], Iterator[str]]]] = {
    "flowchart": _flowchart,
    "stateDiagram-v2": _states,
    "sequenceDiagram": _sequence,
}
