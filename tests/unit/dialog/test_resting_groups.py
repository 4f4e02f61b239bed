"""Groups whose handlers take nothing rest longer each time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.dialog.owner import handing_out as resting
from konverse.dialog.owner.handing_out import REST_MAX_MS, REST_MS, RestingGroups


def transaction(name: str) -> Any:
    return SimpleNamespace(dialog=SimpleNamespace(conversation=name.encode(), id=name))


def rest_of(groups: RestingGroups, one: Any, now_ms: int = 0) -> tuple[int, int]:
    """The group's rest in ms, and its number of rests when it reaches the longest one for the first time, else 0."""
    times = groups.add(one, one, now_ms)
    began = now_ms
    while not groups.due(now_ms):
        now_ms += 1
    return now_ms - began, times


def test_each_rest_of_a_group_is_longer_up_to_a_limit_that_is_reported_once() -> None:
    groups, one = RestingGroups(), transaction("a")
    rests, said = zip(*(rest_of(groups, one) for _ in range(9)), strict=True)
    assert rests[:5] == (REST_MS, 2 * REST_MS, 4 * REST_MS, 8 * REST_MS, 16 * REST_MS)
    assert set(rests[5:]) == {REST_MAX_MS}
    assert said == (0, 0, 0, 0, 0, 6, 0, 0, 0)
    groups.worked(one)
    assert rest_of(groups, one) == (REST_MS, 0)


def test_the_group_with_the_shorter_rest_is_due_first() -> None:
    groups, often, new = RestingGroups(), transaction("a"), transaction("b")
    for _ in range(4):
        rest_of(groups, often)
    groups.add(often, often, 0)
    groups.add(new, new, 0)
    assert groups.due(REST_MS) == [(new, new)]
    assert groups
    groups.clear()
    assert not groups


def test_so_many_groups_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "RESTING_ENTRIES_MAX", 2)
    groups = RestingGroups()
    for name in "abc":
        groups.add(transaction(name), transaction(name), 0)
    assert len(groups._times) == 1
    assert len(groups.due(REST_MS)) == 3


def test_a_group_of_which_nothing_is_taken_for_days_rests_on() -> None:
    groups, one = RestingGroups(), transaction("a")
    groups._times[one.dialog.conversation] = 100_000
    assert rest_of(groups, one) == (REST_MAX_MS, 0)
