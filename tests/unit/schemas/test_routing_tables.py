"""Routing tables as values: the result of a change, and the parts of a change that count."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konverse.schemas.catalog.objects import Change, decode_change, encode_change
from konverse.schemas.catalog.routing_tables import RoutingTable, TableChange, check_entries, folded
from konverse.schemas.catalog.table_entries import Entries, Target
from konverse.schemas.errors import InvalidName, InvalidRoute
from konverse.schemas.limits import ROUTING_KEY_BYTES_MAX, ROUTING_TABLE_CHANGE_BYTES_MAX
from tests.kit.classifying import table_of

NORTH, SOUTH = Target("//n"), Target("//s")
INSTANCE = "0f8fad5b-d9cb-469f-a165-70867728950e"
KEYS = st.text("abc", min_size=1, max_size=2)


def table(**entries: Target) -> RoutingTable:
    return table_of("Regions", entries)


@given(st.lists(st.tuples(st.dictionaries(KEYS, st.sampled_from([NORTH, SOUTH])), st.lists(KEYS)), max_size=6))
def test_entries_are_a_dictionary_that_each_change_makes_anew(steps: list[tuple[dict[str, Target], list[str]]]) -> None:
    entries, model, before = Entries(), dict[str, Target](), list[tuple[Entries, dict[str, Target]]]()
    for put, remove in steps:
        before.append((entries, dict(model)))
        entries = entries.changed(put, remove)
        model = {key: target for key, target in model.items() if key not in remove} | put
    assert entries == model
    assert len(entries) == len(model)
    assert all(known == then for known, then in before), "those before it stay as they were"
    assert pickle.loads(pickle.dumps(entries)) == entries


def test_a_routing_table_change_alters_only_the_parts_that_it_names() -> None:
    first = table_of("Regions", {"a": NORTH, "b": NORTH, "c": NORTH}, SOUTH, ("//router",))
    second = first.changed(TableChange.of("Regions", {"b": SOUTH, "d": SOUTH}, ("a",)))
    assert (first.version, second.version) == (1, 2)
    assert second.entries == {"b": SOUTH, "c": NORTH, "d": SOUTH}
    assert (second.default, second.routers) == (SOUTH, ("//router",))
    assert (second.find("c"), second.find("a")) == (NORTH, SOUTH)
    third = second.changed(TableChange.of("Regions", {}, without_default=True, routers=()))
    assert (third.find("a"), third.routers, third.entries) == (None, (), second.entries)
    assert third.targets() == [NORTH, SOUTH]


@pytest.mark.parametrize(
    ("put", "more", "says"),
    [
        ({"": NORTH}, {}, "a key has 1 to 2048"),
        ({"x" * (ROUTING_KEY_BYTES_MAX + 1): NORTH}, {}, "2049 bytes"),
        ({"\ud800": NORTH}, {}, "has an invalid character"),
        ({"a": Target("//n", "an instance")}, {}, "not a valid id of a broker instance"),
        ({"a": NORTH}, {"remove": ("a",)}, "is both set and removed"),
        ({}, {"default": NORTH, "without_default": True}, "a default and also drop it"),
        ({}, {"routers": tuple(map(str, range(65)))}, "65 routers"),
    ],
)
def test_an_invalid_change_of_a_routing_table_is_refused(put: dict[str, Target], more: Any, says: str) -> None:
    with pytest.raises(InvalidRoute, match=says):
        TableChange.of("Regions", put, **more)


def test_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidName):
        table(a=Target(""))
    with pytest.raises(InvalidName):
        table_of("", {})


def test_an_instance_is_written_in_one_way() -> None:
    assert table(a=Target("//n", INSTANCE.upper())).find("a") == Target("//n", INSTANCE)


def test_more_keys_than_a_table_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.schemas.catalog.routing_tables.ROUTING_TABLE_ENTRIES_MAX", 1)
    assert check_entries(table(a=NORTH)) == table(a=NORTH)
    with pytest.raises(InvalidRoute, match=re.escape("'Regions' would have 2 keys; at most 1 are allowed")):
        check_entries(table(a=NORTH, b=NORTH))


def large(count: int = 30_000) -> TableChange:
    put = {f"key {number}": Target(f"//service {number % 7}") for number in range(count)}
    return TableChange.of("Regions", put, ("gone",), default=NORTH, creates=True)


def test_a_large_change_is_several_records_that_fit_and_joined_they_are_the_change() -> None:
    parts = large().divided(b"p" * 16)
    assert len(parts) > 1
    for part in parts:
        data = encode_change(Change(0, "d", "routing table", "Regions", part))
        assert len(data) < ROUTING_TABLE_CHANGE_BYTES_MAX + 1_024
        assert decode_change(data).value == part
    assert parts[-1].joined(parts[:-1]) == large()


def test_a_small_change_is_one_record() -> None:
    change = TableChange.of("Regions", {"a": NORTH})
    assert change.divided(b"p" * 16) == [change]
    assert TableChange.of("Regions", {}, default=NORTH).divided(b"p" * 16)[0].part == 0


def test_parts_count_when_the_last_one_is_there() -> None:
    parts = large().divided(b"p" * 16)
    waiting: list[TableChange] = []
    assert [folded(None, part, waiting) for part in parts[:-1]] == [None] * (len(parts) - 1)
    made = folded(None, parts[-1], waiting)
    assert made is not None
    assert (len(made.entries), made.default, made.version, waiting) == (30_000, NORTH, 1, [])


def test_parts_that_were_overtaken_never_count() -> None:
    mine, theirs = large().divided(b"m" * 16), large(29_000).divided(b"t" * 16)
    waiting: list[TableChange] = []
    found = None
    for part in (mine[0], theirs[0], mine[1], *theirs[1:], *mine[2:]):
        found = folded(found, part, waiting)
    assert found is not None
    assert (len(found.entries), found.version) == (29_000, 1)


@given(st.lists(st.dictionaries(KEYS, st.sampled_from([NORTH, SOUTH]), min_size=2), min_size=3, max_size=3), st.data())
def test_a_routing_table_changed_in_interleaved_parts_equals_one_changed_by_whole_changes(
    puts: list[dict[str, Target]], data: st.DataObject
) -> None:
    changes = [TableChange.of("Regions", put) for put in puts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("konverse.schemas.catalog.routing_tables.ROUTING_TABLE_CHANGE_BYTES_MAX", 1)
        written = [change.divided(bytes([number]) * 16) for number, change in enumerate(changes)]
    turns = data.draw(st.permutations([number for number, parts in enumerate(written) for _ in parts]))
    left, waiting, before = [list(parts) for parts in written], list[TableChange](), table(a=NORTH)
    found, ended = before, list[int]()
    for number in turns:
        part = left[number].pop(0)
        after = folded(found, part, waiting)
        assert after is not None
        if part.last:
            ended.append(number)
        assert part.last or after is found, "a part alone changes nothing"
        found = after
    possible = []
    for chosen in range(1 << len(ended)):
        whole = before
        for place, number in enumerate(ended):
            whole = whole.changed(changes[number]) if chosen >> place & 1 else whole
        possible.append(whole)
    assert found in possible
    assert found.version > 1, "one of them at least counts"


def test_a_table_is_created_once_and_altered_when_it_is_there() -> None:
    there = table(a=NORTH)
    assert folded(there, TableChange.of("Regions", {"b": NORTH}, creates=True), []) is there
    assert folded(None, TableChange.of("Regions", {"b": NORTH}), []) is None
