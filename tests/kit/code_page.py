"""Generates docs/code.md: where to find things in the code, with diagrams drawn from the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DRAWN: Final = ("dialog", "bridge", "spark", "deploy")
"""Folders whose packages are drawn, each in a diagram of its own."""

TEXT: Final = """\
# Where things are in the code

Find the code that you want to change here. Read [how it works](how-it-works.md) first. The docstring of each package's
`__init__.py` describes its contents, its laws and its parts. Read them from the lowest package upwards.

## The path of a message

1. `dialog.send` ([bridge/client/dialog.py](../bridge/client/dialog.py)) asks the catalog whether the contract lets this
   side send that type. The session ([dialog/session](../dialog/session/__init__.py)) numbers the message and makes its
   header. A lane keeps the message until Kafka has acknowledged it ([lanes.py](../dialog/session/lanes.py)).
   [bridge/client/session_producer.py](../bridge/client/session_producer.py) hands it to the producer.
2. The record is in the data topic of the target's queue. Its header is an envelope
   ([schemas/wire/envelope.py](../schemas/wire/envelope.py)), its value the body.
3. A reader ([bridge/reader](../bridge/reader/__init__.py)) owns the partition. The driver of the owner
   ([bridge/owner/driver.py](../bridge/owner/driver.py)) reads the log, and hands columns of records to `Owner.step`
   ([dialog/owner/owner.py](../dialog/owner/owner.py)).
4. `ingest` ([dialog/fold/ingest.py](../dialog/fold/ingest.py)) accepts each record once and in order. The rule of its
   kind ([dialog/rules](../dialog/rules/__init__.py)) puts the message into the queue of its endpoint.
5. `HandingOut` ([dialog/owner/handing_out.py](../dialog/owner/handing_out.py)) chooses the partition, and `Staging`
   ([dialog/owner/staging.py](../dialog/owner/staging.py)) the next group in it. The handler gets a
   `Transaction` ([dialog/transaction/transaction.py](../dialog/transaction/transaction.py)), and its calls are staged
   there.
6. The owner encodes a COMMIT ([schemas/wire/journal.py](../schemas/wire/journal.py)) and appends it to the journal. The
   COMMIT counts when it is at the expected offset. `apply` ([dialog/fold/apply.py](../dialog/fold/apply.py)) then
   changes the state.
7. The handler's messages are in the outbox ([dialog/state/outbox.py](../dialog/state/outbox.py)). The emitter
   ([dialog/owner/emitter.py](../dialog/owner/emitter.py)) and [bridge/owner/outputs.py](../bridge/owner/outputs.py)
   deliver them to the data topics of other partitions, where the path begins again.

## Where to find

| Subject | Place |
|---|---|
| how a COMMIT is applied | [dialog/fold/apply.py](../dialog/fold/apply.py) |
| which journal records count | [dialog/fold/journal.py](../dialog/fold/journal.py) |
| where a send waits for room | [bridge/client/sender.py](../bridge/client/sender.py): `decide_with_room` |
| how the death of an owner is noticed | [bridge/reader/orphans.py](../bridge/reader/orphans.py), and the group |
| recovery after an owner dies | [dialog/owner/recovery.py](../dialog/owner/recovery.py) |
| how a message that kills its worker is found | [dialog/owner/poison.py](../dialog/owner/poison.py) |
| the error numbers of SQL Server | [schemas/errors.py](../schemas/errors.py): `number` of each class |
| the codes in Error documents | [schemas/system_messages.py](../schemas/system_messages.py) |
| the states of a conversation | [dialog/state/transitions.py](../dialog/state/transitions.py), a table |
| the bytes of a record | [schemas/wire](../schemas/wire/__init__.py) |
| every bound | [schemas/limits.py](../schemas/limits.py) |
| the second implementation of the fold | [bridge/verifier/fold](../bridge/verifier/fold/__init__.py) |
| the simulator | `tests/kit/simulator`, with the mutants in `tests/simulation/mutants` |

## Imports

Each arrow points from a package to a package that it imports. Import-linter checks the layers (`pyproject.toml`).
Arrows are left out where a path over others exists.
"""


def arrows(folder: str) -> dict[str, set[str]]:
    """Package or standalone module of a folder → packages and modules that it imports, imports for types included."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        here = _room(path.relative_to(ROOT / folder))
        if here is None:
            continue
        targets = found.setdefault(here, set())
        for name in _imported(path, folder):
            if name != here and ((ROOT / folder / name).is_dir() or (ROOT / folder / f"{name}.py").exists()):
                targets.add(name)
    return found


def _room(path: Path) -> str | None:
    """The package of a module, or the module itself outside packages; None for the `__init__.py` of the folder."""
    return path.parts[0] if len(path.parts) > 1 else None if path.stem == "__init__" else path.stem


def _imported(path: Path, folder: str) -> Iterator[str]:
    depth = len(path.relative_to(ROOT / folder).parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = (node.module or "").split(".")
        if not node.level and source[:2] == ["konverse", folder]:
            yield source[2] if len(source) > 2 else node.names[0].name  # in both forms of import
        elif node.level and node.level >= depth:
            yield source[0] or node.names[0].name


def shortest(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without each arrow for which a path over other arrows exists."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [*graph.get(start, ())]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph.get(name, ())
        return seen

    return {
        name: {to for to in targets if not any(to in reached(other) for other in targets - {to})}
        for name, targets in graph.items()
    }


def picture(folder: str) -> str:
    """The arrows as a Mermaid diagram."""
    lines = [f"    {name} --> {to}" for name, targets in shortest(arrows(folder)).items() for to in sorted(targets)]
    return "\n".join(["```mermaid", "flowchart TD", *sorted(lines), "```"])


def page() -> str:
    """The text of docs/code.md."""
    pictures = "\n".join(f"\n### {folder}\n\n{picture(folder)}\n" for folder in DRAWN)
    return f"{TEXT}{pictures}"


if __name__ == "__main__":
    print(page(), end="")
