"""The page about the protocol: every rule has a proof, every mutant a rule, and the diagrams match the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from konverse.bridge.verifier.check import KINDS
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.events import Phase
from konverse.dialog.state.transitions import TRANSITIONS
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, Commit, CommitOperations, encode_claim, encode_commit
from tests.architecture.mermaid import diagrams, parse
from tests.architecture.test_documents import INLINE_CODE, texts
from tests.architecture.tree import ROOT, name_of, refuse, syntax
from tests.kit import rules_page
from tests.kit.builders import identifier, log_of
from tests.kit.rules_page import RULE, paragraphs, proofs

PAGE: Final = ROOT / "docs" / "protocol.md"
PAGE_BYTES_MAX: Final = 90_000
MUTANTS: Final = Path("tests") / "simulation" / "mutants"

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


def rules(text: str) -> list[tuple[int, str]]:
    """Number and text of each rule."""
    found = [(RULE.match(part), part) for part in paragraphs(text)]
    return [(int(match.group(1)), part) for match, part in found if match]


def functions_of(path: Path) -> set[str]:
    """The names of the functions in a file."""
    return {node.name for node in ast.walk(syntax(path)) if isinstance(node, ast.FunctionDef)}


def weak_rules(text: str, known: Collection[str]) -> Iterator[str]:
    """Faults in the rules of a page, and proofs of rules that do not exist."""
    numbers = [number for number, _ in rules(text)]
    for expected, (number, part) in enumerate(rules(text), 1):
        if number != expected:
            yield f"M{number} stands where M{expected} is due"
        if not MUST.search(INLINE_CODE.sub("", part)):
            yield f"M{number} does not say what MUST be"
        if f"M{number}" not in known:
            yield f"M{number}: no proof"
    for part in paragraphs(text):
        if MUST.search(INLINE_CODE.sub("", part)) and not RULE.match(part):
            yield f"a rule without a number: {part[:60]!r}"
    yield from (f"{name}: no such rule" for name in known if name not in {f"M{number}" for number in numbers})


def weak_proofs(known: Mapping[str, Mapping[str, list[str]]], root: Path = ROOT) -> Iterator[str]:
    """Faults in the proofs, and mutants that prove no rule."""
    mutants = {path.stem for path in (root / MUTANTS).glob("*.toml")}
    for rule, by in known.items():
        if not any(by.values()) or by.keys() - {"mutants", "tests"}:
            yield f"{rule}: no proof, or one of an unknown kind"
        yield from (f"{rule}: no mutant {name!r}" for name in by.get("mutants", ()) if name not in mutants)
        for test in by.get("tests", ()):
            name, _, function = test.partition("::")
            if not (root / name).is_file():
                yield f"{rule}: {name} does not exist"
            elif not function.startswith("test_") or function not in functions_of(root / name):
                yield f"{rule}: {name} has no test {function!r}"
    needed = {name for by in known.values() for name in by.get("mutants", ())}
    yield from (f"no rule needs the mutant {name}" for name in sorted(mutants - needed))


def test_every_rule_has_its_proof_and_every_mutant_its_rule() -> None:
    refuse([*weak_rules(page(), proofs()), *weak_proofs(proofs())])


def test_the_page_of_rules_is_made_from_the_protocol_and_its_proofs() -> None:
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == rules_page.page(), (
        "run: python -m tests.kit.rules_page > docs/rules.md"
    )


def test_the_protocol_can_be_read_in_an_hour() -> None:
    assert len(page().encode()) <= PAGE_BYTES_MAX


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
    """The edges between states in the state diagram that begins with this state."""
    (edges,) = ([*d.edges] for d in diagrams(page()) if d.kind == "stateDiagram-v2" and d.edges[0][1] == first)
    return {(before, after) for before, after, _ in edges if "[*]" not in (before, after)}


def test_the_picture_of_an_endpoint_is_its_table() -> None:
    moves = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}
    assert states_of("SO") == {(before.code, after.code) for before, after in moves}


def test_the_picture_of_an_owner_has_its_phases() -> None:
    assert {name for edge in states_of("RECOVERING") for name in edge} == {phase.name for phase in Phase}


# ------------------------------------------------------------------------------------------------------- invariants


def checked_by(column: int) -> set[str]:
    """The invariants that a column of the table marks as checked: 0 simulator, 1 model, 2 verifier, 3 chaos."""
    return {row[0] for row in INVARIANT.findall(page()) if row[1 + column].strip()}


def named_in(folder: str) -> set[str]:
    """The invariants that modules of a folder report as broken."""
    modules = (ROOT / folder).glob("*.py")
    return {name for module in modules for name in BROKEN.findall(module.read_text(encoding="utf-8"))}


def test_the_table_of_invariants_names_the_checkers_of_each_invariant() -> None:
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
            record = Commit(int(epoch), identifier(name), int(number), previous, 0, CommitOperations())
            data = encode_commit(record)
        assert head.accepts(record) is (verdict == "counts"), offset
        if verdict == "counts":
            head.take(record, data, int(offset), 0)
            hashes[head.number + 1] = head.hash
        else:
            head.skip(int(offset))
    assert (head.epoch, head.owner, head.number) == (4, identifier("B"), 18)


# ------------------------------------------------------------------------------------------------- the check itself

RULED: Final = "**M1** It MUST be."
PROVED: Final = {"M1": {"tests": ["tests/test_it.py::test_it_is"], "mutants": ["it_is_not"]}}


@pytest.mark.parametrize(
    ("text", "weakness"),
    [
        ("**M2** It MUST be.", "M2 stands where M1 is due"),
        (RULED + "\n\n" + RULED, "M1 stands where M2 is due"),
        ("**M2** It MUST be.", "M2: no proof"),
        ("**M2** It MUST be.", "M1: no such rule"),
        ("**M1** It is.", "M1 does not say what MUST be"),
        (RULED + "\n\nAnd this MUST be too.", "a rule without a number: 'And this MUST be too.'"),
    ],
)
def test_a_weak_rule_is_found(text: str, weakness: str) -> None:
    assert weakness in [*weak_rules(text, PROVED)]
    assert not [*weak_rules(RULED, PROVED)]


@pytest.mark.parametrize(
    ("by", "weakness"),
    [
        ({}, "M1: no proof, or one of an unknown kind"),
        ({"mutants": []}, "M1: no proof, or one of an unknown kind"),
        ({"test": ["tests/test_it.py::test_it_is"]}, "M1: no proof, or one of an unknown kind"),
        ({"tests": ["tests/gone.py::test_it_is"]}, "M1: tests/gone.py does not exist"),
        ({"tests": ["tests/test_it.py::test_it_was"]}, "M1: tests/test_it.py has no test 'test_it_was'"),
        ({"tests": ["tests/test_it.py::it_is"]}, "M1: tests/test_it.py has no test 'it_is'"),
        ({"tests": ["tests/test_it.py"]}, "M1: tests/test_it.py has no test ''"),
        ({"mutants": ["it_was_not"]}, "M1: no mutant 'it_was_not'"),
        ({"tests": ["tests/test_it.py::test_it_is"]}, "no rule needs the mutant it_is_not"),
    ],
)
def test_a_weak_proof_is_found(by: dict[str, list[str]], weakness: str, tmp_path: Path) -> None:
    (tmp_path / MUTANTS).mkdir(parents=True)
    (tmp_path / MUTANTS / "it_is_not.toml").write_text("", encoding="utf-8")
    test = "def test_it_is() -> None: ...\ndef it_is() -> None: ...\n"
    (tmp_path / "tests" / "test_it.py").write_text(test, encoding="utf-8")
    assert weakness in [*weak_proofs({"M1": by}, tmp_path)]
    assert not [*weak_proofs(PROVED, tmp_path)]


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
