"""The simulator drives the product as it is: it sets hooks, and replaces no decision of the product."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from konverse.schemas.wire import envelope, journal
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import Suffix
from konverse.schemas.wire.varint import varint
from tests.kit.simulator.choices import Choices
from tests.kit.simulator.swarm import draw
from tests.kit.simulator.tuning import (
    COUNTING,
    LOW_MASK,
    REPLACED,
    Change,
    changes_of,
    high_part,
    low_table,
    remembering,
)

from .tree import ROOT, library_files, module_of, syntax

SIMULATOR: Final = ROOT / "tests" / "kit" / "simulator"
TUNING: Final = "tuning.py"
"""Sets the limits of a run and restores them, in two places. A test below checks the values."""

PATCHING: Final = {"setattr", "delattr", "patch", "MonkeyPatch"}
LAYERS: Final = ("schemas", "dialog", "routing", "bridge")


def methods() -> set[str]:
    """Names of all methods of the product."""
    return {
        function.name
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
        for owner in ast.walk(syntax(path))
        if isinstance(owner, ast.ClassDef)
        for function in owner.body
        if isinstance(function, ast.FunctionDef)
    }


def attributes() -> set[str]:
    """Attributes that objects of the product or the simulator set on themselves, hooks included."""
    paths = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    found: set[str] = set()
    for path in [*paths, *SIMULATOR.glob("*.py")]:
        for node in ast.walk(syntax(path)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
    return found


def patches(source: str, forbidden: set[str]) -> Iterator[str]:
    """Assignments to private attributes or methods of other objects, and calls that patch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not own and (node.attr.startswith("_") or node.attr in forbidden):
                yield ast.unparse(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in PATCHING:
                yield ast.unparse(node)


def test_the_simulator_patches_no_method_of_the_product() -> None:
    forbidden = methods() - attributes()
    found = {path.name: [*patches(path.read_text(encoding="utf-8"), forbidden)] for path in SIMULATOR.glob("*.py")}
    patching = {name: patched for name, patched in found.items() if patched}
    assert patching == {TUNING: ["setattr"] * 2}, "give the product a hook that its own driver may use too"


def everything_changed() -> list[Change]:
    """Every change that a run can make, with all options of a swarm."""
    choices = Choices(0, ())
    swarm = draw(choices)
    every = replace(swarm, tiny_windows=True, small_mailboxes=True, short_memory=True, low_numbers=True)
    return changes_of(choices, every)


@pytest.mark.parametrize("change", everything_changed(), ids=lambda change: f"{change[0].__name__}.{change[1]}")
def test_a_simulation_changes_only_limits_and_the_listed_functions(change: Change) -> None:
    module, name, value = change
    before = getattr(module, name)
    if name in REPLACED:
        assert callable(before)
        assert callable(value)
        return
    assert type(before) is type(value) is int, f"{name} is no limit: give the product a hook"
    assert name.isupper()


def test_the_replaced_functions_are_exactly_the_listed_ones() -> None:
    assert {name for _, name, value in everything_changed() if callable(value)} == {*REPLACED}


@pytest.mark.parametrize("decode", [journal.decode, envelope._read_suffix])
def test_a_remembering_decoder_returns_the_same_results_and_errors_as_the_product(
    decode: Callable[[bytes], object],
) -> None:
    """Errors must be equal, too."""
    remembered = remembering(decode)
    commit = journal.encode_commit(journal.Commit(1, bytes(16), 1, bytes(32), 7, journal.CommitOperations()))
    known = [b"", b"\x00", b"\xff" * 9, encode_suffix(Suffix()), commit]
    for data in [*known, *known]:
        assert outcome(remembered, data) == outcome(decode, data)


def outcome(decode: Callable[[bytes], object], data: bytes) -> object:
    """The result of a decoder, or its error."""
    try:
        return decode(data)
    except Exception as error:  # noqa: BLE001  # any error
        return type(error), str(error)


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 8_191, 8_192, 1 << 20, 1 << 40])
def test_small_tables_spell_the_numbers_of_the_product(number: int) -> None:
    assert low_table(number)[number & LOW_MASK] + high_part(number) == varint(number)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("owner.staging._overtaken = mine", ["owner.staging._overtaken"]),
        ("owner.snapshots.begin = mine", ["owner.snapshots.begin"]),
        ("del owner._fold", ["owner._fold"]),
        ("setattr(owner, name, mine)", ["setattr"]),
        ("mock.patch.object(owner, name)", ["mock.patch"]),
        ("self._own = self.begin = owner.staging.judge = mine", []),
    ],
)
def test_a_patch_is_found(source: str, found: list[str]) -> None:
    assert [*patches(source, {"begin"})] == found


def test_all_that_count_by_tables_are_tuned_alike() -> None:
    """A module with tables of another size would look up wrong entries."""
    using = {module_of(path) for path in library_files() if "LOW_MASK" in path.read_text(encoding="utf-8")}
    assert using == {module.__name__ for module in COUNTING if hasattr(module, "LOW_MASK")}


PARTS: Final = {"emitter", "losing", "recovery", "snapshots", "staging", "takeover", "trial", "upkeep"}
"""Parts of an owner or a session, as attributes."""
ASKED: Final = {("upkeep", "late")}
"""Questions that only choose the next action of a calm run: the owner asks them itself before it acts."""


def calls_of_parts(source: str) -> set[tuple[str, str]]:
    """Part and method of each call of a part of an owner or session."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {
        (call.value.attr, call.attr)
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Attribute) and call.value.attr in PARTS
    }


def calls_in(paths: Iterator[Path]) -> set[tuple[str, str]]:
    return set().union(*(calls_of_parts(path.read_text("utf-8")) for path in paths))


def test_the_simulator_calls_no_part_of_an_owner_or_session_that_the_drivers_do_not_call() -> None:
    """Otherwise it would prove a path that the product does not walk."""
    called = calls_in(SIMULATOR.glob("*.py"))
    assert ("trial", "order") in called
    assert called - calls_in((ROOT / "bridge").rglob("*.py")) == ASKED
    assert calls_of_parts("self.owner.snapshots.go_on()") == {("snapshots", "go_on")}
