"""The page about the protocol: every rule has its proof, every mutant its rule; the pictures are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from konverse.bridge.verifier.check import KINDS
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.events import Phase
from konverse.dialog.state.transitions import TRANSITIONS
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, Commit, Operations, encode_claim, encode_commit
from tests.architecture.mermaid import diagrams, parse
from tests.architecture.test_documents import FENCE, INLINE_CODE, texts
from tests.architecture.tree import ROOT, name_of, refuse, syntax
from tests.kit.builders import identifier, log_of

PAGE: Final = ROOT / "docs" / "protocol.md"
MUTANTS: Final = ROOT / "tests" / "simulation" / "mutants"

RULE: Final = re.compile(r"\*\*M(\d+)\*\* ")
PROOF: Final = re.compile(r"\[([^\]]+)\]\(\.\./(tests/[^)#]+)(?:#([^)]+))?\)")
MUST: Final = re.compile(r"\bMUST\b")
SECTION: Final = re.compile(r"^#+ (\d+(?:\.\d+|[bcd])?)", re.MULTILINE)
CITATION: Final = re.compile(r"protocol\.md(?: section)? (\d+(?:\.\d+|[bcd])?)")

INVARIANT: Final = re.compile(r"^\| ([IL]\d+) \|[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
BROKEN: Final = re.compile(r"f?\"([IL]\d+): ")

ROW: Final = re.compile(
    r"^\| (\d+) \| (CLAIM|COMMIT)\(epoch (\d+), owner (\w+)(?:, number (\d+))?\) \| (counts|void) \|", re.MULTILINE
)
"""A record of the example."""


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def paragraphs(text: str) -> list[str]:
    """The page without its pictures and other blocks, cut at empty lines."""
    return [part for part in re.split(r"\n\s*\n", FENCE.sub("", text)) if part.strip()]


def rules(text: str) -> list[tuple[int, str]]:
    """Number and text of each rule."""
    found = [(RULE.match(part), part) for part in paragraphs(text)]
    return [(int(match.group(1)), part) for match, part in found if match]


def functions_of(path: Path) -> set[str]:
    """The names of the functions in a file."""
    return {node.name for node in ast.walk(syntax(path)) if isinstance(node, ast.FunctionDef)}


def weak_proofs(part: str, root: Path) -> Iterator[str]:
    """What is wrong with the links of a rule."""
    proofs = PROOF.findall(part)
    if not proofs:
        yield "no proof"
    for words, name, test in proofs:
        path = root / name
        if not path.is_file():
            yield f"{name} does not exist"
        elif path.suffix == ".toml":
            if words.replace(" ", "_") != path.stem:
                yield f"the link to {name} says {words!r}"
        elif test not in functions_of(path) or not test.startswith("test_"):
            yield f"{name} has no test {test!r}"
        elif test.removeprefix("test_") != words.replace(" ", "_"):
            yield f"the link to {test} says {words!r}"


def weaknesses(text: str, root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the rules of a page."""
    known = rules(text)
    for expected, (number, part) in enumerate(known, 1):
        if number != expected:
            yield f"M{number} stands where M{expected} is due"
        if not MUST.search(INLINE_CODE.sub("", part)):
            yield f"M{number} does not say what MUST be"
        yield from (f"M{number}: {weakness}" for weakness in weak_proofs(part, root))
    for part in paragraphs(text):
        if MUST.search(INLINE_CODE.sub("", part)) and not RULE.match(part):
            yield f"a rule without a number: {part[:60]!r}"
    linked = {Path(name).stem for _, part in known for _, name, _ in PROOF.findall(part) if name.endswith(".toml")}
    yield from (f"no rule needs the mutant {p.stem}" for p in sorted(MUTANTS.glob("*.toml")) if p.stem not in linked)


def test_every_rule_has_its_proof_and_every_mutant_its_rule() -> None:
    refuse(weaknesses(page()))


def test_a_section_that_is_cited_exists() -> None:
    sections = {*SECTION.findall(page())}
    refuse(
        f"{name_of(path)}: section {number} of protocol.md"
        for path, text in texts()
        for number in CITATION.findall(text)
        if number not in sections and path.resolve() != Path(__file__).resolve()
    )


# --------------------------------------------------------------------------------------------------------- pictures


def test_every_picture_is_understood() -> None:
    pictures = diagrams(page())
    assert len(pictures) == page().count("```mermaid") >= 4
    refuse(f"{picture.kind}: {fault}" for picture in pictures for fault in picture.faults)


def states_of(first: str) -> set[tuple[str, str]]:
    """The edges between states in the diagram that begins with this one."""
    (edges,) = ([*d.edges] for d in diagrams(page()) if d.kind == "stateDiagram-v2" and d.edges[0][1] == first)
    return {(before, after) for before, after, _ in edges if "[*]" not in (before, after)}


def test_the_picture_of_an_endpoint_is_its_table() -> None:
    moves = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}
    assert states_of("SO") == {(before.code, after.code) for before, after in moves}


def test_the_picture_of_an_owner_has_its_phases() -> None:
    assert {name for edge in states_of("RECOVERING") for name in edge} == {phase.name for phase in Phase}


# ------------------------------------------------------------------------------------------------------- invariants


def checked_by(column: int) -> set[str]:
    """The invariants that the table says are checked by the simulator, the model, the verifier or chaos: 0 to 3."""
    return {row[0] for row in INVARIANT.findall(page()) if row[1 + column].strip()}


def named_in(folder: str) -> set[str]:
    """The invariants that modules of a folder say are broken."""
    modules = (ROOT / folder).glob("*.py")
    return {name for module in modules for name in BROKEN.findall(module.read_text(encoding="utf-8"))}


def test_the_table_of_invariants_says_who_checks_them() -> None:
    assert named_in("tests/kit/simulator") <= checked_by(0)
    assert named_in("tests/simulation/exhaustive") == checked_by(1)
    assert {rule for rule in KINDS if re.fullmatch(r"[IL]\d+", rule)} == checked_by(2)
    assert checked_by(3) <= checked_by(0)


# ------------------------------------------------------------------------------------------------------ the example


def test_the_zombie_of_the_example_is_judged_as_the_page_says() -> None:
    rows = ROW.findall(page())
    assert [int(row[0]) for row in rows] == [*range(40, 45)]
    identity = log_of()
    ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
    head = JournalHead(identity, epoch=2, owner=identifier("before A"), number=16, offset=39)
    hashes = {17: head.hash}
    for offset, kind, epoch, name, number, verdict in rows:
        record: Claim | Commit
        if kind == "CLAIM":
            record = Claim(int(epoch), identifier(name), FOLD_VERSION, *ids, clean=False)
            data = encode_claim(record)
        else:
            previous = hashes[int(number)]
            record = Commit(int(epoch), identifier(name), int(number), previous, 0, Operations())
            data = encode_commit(record)
        assert head.accepts(record) is (verdict == "counts"), offset
        if verdict == "counts":
            head.take(record, data, int(offset), 0)
            hashes[head.number + 1] = head.hash
        else:
            head.skip(int(offset))
    assert (head.epoch, head.owner, head.number) == (4, identifier("B"), 18)


# ------------------------------------------------------------------------------------------------- the check itself

GOOD: Final = "**M1** It MUST be.\n*Test:* [it is](../tests/test_it.py#test_it_is)"


@pytest.mark.parametrize(
    ("text", "weakness"),
    [
        ("**M2** It MUST be.\n[it is](../tests/test_it.py#test_it_is)", "M2 stands where M1 is due"),
        (GOOD + "\n\n" + GOOD, "M1 stands where M2 is due"),
        ("**M1** It MUST be.", "M1: no proof"),
        ("**M1** It is.\n[it is](../tests/test_it.py#test_it_is)", "M1 does not say what MUST be"),
        ("**M1** It MUST be.\n[it is](../tests/gone.py#test_it_is)", "M1: tests/gone.py does not exist"),
        (
            "**M1** It MUST be.\n[it was](../tests/test_it.py#test_it_was)",
            "M1: tests/test_it.py has no test 'test_it_was'",
        ),
        ("**M1** It MUST be.\n[it](../tests/test_it.py)", "M1: tests/test_it.py has no test ''"),
        ("**M1** It MUST be.\n[that](../tests/test_it.py#test_it_is)", "M1: the link to test_it_is says 'that'"),
        ("**M1** It MUST be.\n[that](../tests/it_is.toml)", "M1: the link to tests/it_is.toml says 'that'"),
        (GOOD + "\n\nAnd this MUST be too.", "a rule without a number: 'And this MUST be too.'"),
        (GOOD, f"no rule needs the mutant {min(MUTANTS.glob('*.toml')).stem}"),
    ],
)
def test_a_weak_rule_is_found(text: str, weakness: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_it_is() -> None: ...\n", encoding="utf-8")
    (tmp_path / "tests" / "it_is.toml").write_text("", encoding="utf-8")
    assert weakness in [*weaknesses(text, tmp_path)]
    assert not [found for found in weaknesses(GOOD, tmp_path) if not found.startswith("no rule needs the mutant")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pie", "unknown picture: 'pie'"),
        ("", "unknown picture: ''"),
        ('flowchart XY\na["a"] --> b["b"]', "unknown picture: 'flowchart XY'"),
        ('flowchart LR\na["a"] -> b["b"]', 'not understood: \'a["a"] -> b["b"]\''),
        ('flowchart LR\na["a] --> b["b"]', 'not understood: \'a["a] --> b["b"]\''),
        ('flowchart LR\na["a"] --> b', "b has no text"),
        ('flowchart LR\nsubgraph s["s"]\na["a"] --> b["b"]', "a subgraph without `end`"),
        ('flowchart LR\na["a"] --> b["b"]\nend', "an `end` too many"),
        ('flowchart LR\na["a"]', "nothing leads anywhere"),
        ("stateDiagram-v2\nA -> B", "not understood: 'A -> B'"),
        ("sequenceDiagram\nparticipant A as a\nA->>B: hello", "B takes no part"),
        ("sequenceDiagram\nparticipant A as a\nA->>A: hello\nNote A: hello", "not understood: 'Note A: hello'"),
    ],
)
def test_a_broken_picture_is_found(text: str, fault: str) -> None:
    assert fault in parse(text).faults
