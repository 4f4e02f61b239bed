"""Groups of which a handler takes nothing rest longer each time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge import resting
from konverse.bridge.resting import REST_MAX_S, REST_S, Resting


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(resting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def transaction(name: str) -> Any:
    return SimpleNamespace(dialog=SimpleNamespace(conversation=name.encode(), id=name))


def rest_of(groups: Resting, one: Any, now: list[float]) -> float:
    """How long it rests."""
    began = now[0]
    groups.add(one, one)
    while not groups.due():
        now[0] += REST_S / 5
    return round(now[0] - began, 6)


def test_a_group_rests_longer_each_time_up_to_a_bound_and_that_is_said_once(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    groups, one = Resting("Orders"), transaction("a")
    rests = [rest_of(groups, one, now) for _ in range(9)]
    assert rests == sorted(rests)
    assert rests[0] == pytest.approx(REST_S, abs=REST_S / 4)
    assert rests[-1] == pytest.approx(REST_MAX_S, abs=REST_S / 4)
    assert len(caplog.records) == 1
    groups.worked(one)
    assert rest_of(groups, one, now) == pytest.approx(REST_S, abs=REST_S / 4)


def test_who_rests_shorter_comes_first(now: list[float]) -> None:
    groups, often, new = Resting("Orders"), transaction("a"), transaction("b")
    for _ in range(4):
        rest_of(groups, often, now)
    groups.add(often, often)
    groups.add(new, new)
    now[0] += REST_S * 1.1
    assert groups.due() == [(new, new)]
    assert groups
    groups.clear()
    assert not groups


def test_so_many_groups_are_known(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "RESTING_ENTRIES_MAX", 2)
    groups = Resting("Orders")
    for name in "abc":
        groups.add(transaction(name), transaction(name))
    assert len(groups._times) == 1
    now[0] += 1
    assert len(groups.due()) == 3


def test_a_group_of_which_nothing_is_taken_for_days_rests_on(now: list[float]) -> None:
    groups, one = Resting("Orders"), transaction("a")
    groups._times[one.dialog.conversation] = 100_000
    assert rest_of(groups, one, now) == pytest.approx(REST_MAX_S, abs=REST_S / 4)
