"""When a new reader may be idle: once it knows its partitions and the data in them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.reader import join_wait
from konverse.bridge.reader.join_wait import ASSIGNMENT_WAIT_S, FIRST_FETCH_S, JOIN_S, JoinWait


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(join_wait, "time", clock)
    return clock


def consumer(generation: int) -> Any:
    """A member of a group, in librdkafka's form."""
    told = b"CGMDv2:" + generation.to_bytes(4, sys.byteorder, signed=True) + b"group\0member\0\1"
    return SimpleNamespace(consumer_group_metadata=lambda: told)


def owner(fetched: int, end: int) -> Any:
    return SimpleNamespace(fold=SimpleNamespace(data_to=fetched), recovery=SimpleNamespace(data_end=end))


def test_a_reader_that_its_group_has_not_answered_waits(time: Time) -> None:
    one = JoinWait(group=True)
    assert not one.over(consumer(-1), [])
    time.now += JOIN_S
    assert one.over(consumer(-1), [])


def test_a_reader_that_its_group_has_given_nothing_waits_no_longer_than_that_takes(time: Time) -> None:
    one = JoinWait(group=True)
    assert not one.over(consumer(3), [])
    time.now += ASSIGNMENT_WAIT_S
    assert one.over(consumer(3), [])


@pytest.mark.parametrize("group", [True, False])
def test_a_reader_is_idle_once_it_has_fetched_the_initial_records_of_its_partitions(time: Time, group: bool) -> None:
    one = JoinWait(group=group)
    one.given()
    assert not one.over(consumer(1), [owner(7, 7), owner(3, 8)])
    assert one.over(consumer(1), [owner(7, 7), owner(8, 8)])
    time.now += FIRST_FETCH_S
    assert one.over(consumer(1), [owner(3, 8)]), "a stranger's transaction may hide the rest"
