"""Partitions of one process take turns with the groups that they try."""

from __future__ import annotations

import pytest

from konverse.dialog.owner.events import Tick
from konverse.dialog.owner.settings import PASS_MS, TURN_MS, Turns
from tests.kit.builders import conversations
from tests.kit.driver import Driver
from tests.kit.trials import endpoint, successor, taken


def crashed(turns: Turns, *names: str) -> Driver:
    """A partition taken over from a dead process, with a waiting conversation of each name."""
    first = Driver()
    first.lead()
    first.arrive(*conversations(*names))
    first.commit()
    return successor(first, turns=turns)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_a_partition_keeps_its_turn_until_it_gives_it_back(turns: Turns) -> None:
    assert turns.may("a", 0)
    turns.take("a", 0)
    assert turns.may("a", 1)
    assert not turns.may("b", 1)
    turns.give_back("b", 1)
    assert not turns.may("b", 1)
    turns.give_back("a", 1)
    assert turns.may("b", 1)


def test_a_turn_ends_by_itself(turns: Turns) -> None:
    turns.take("a", 0)
    assert not turns.may("b", TURN_MS - 1)
    assert turns.may("b", TURN_MS)
    turns.take("b", TURN_MS)
    turns.give_back("a", TURN_MS)
    assert not turns.may("a", TURN_MS)


def test_a_partition_that_had_a_turn_yields_to_waiting_partitions(turns: Turns) -> None:
    turns.take("a", 0)
    turns.give_back("a", 1)
    assert turns.may("a", 1), "nobody waits"
    turns.take("a", 1)
    assert not turns.may("b", 2)
    turns.give_back("a", 3)
    assert not turns.may("a", 3)
    assert turns.may("b", 3)
    assert turns.may("a", 3 + PASS_MS), "the others do not want it any more"


def test_a_process_has_one_try_open_at_a_time(turns: Turns) -> None:
    one, another = crashed(turns, "a"), crashed(turns, "b")
    one.try_groups()
    assert not another.owner.trial.due
    assert taken(another) == []
    one.handle()
    one.commit()
    another.try_groups()
    assert len(taken(another)) == 1


def test_crashes_caused_by_another_partition_are_not_counted(turns: Turns) -> None:
    killer, innocent = crashed(turns, "killer"), crashed(turns, "innocent")
    for crash in range(3):
        killer.try_groups()
        assert not innocent.owner.trial.due
        turns = Turns()
        killer = successor(killer, f"killer {crash}", turns=turns)
        innocent = successor(innocent, f"innocent {crash}", turns=turns)
    assert endpoint(killer, "killer").attempts == 3
    assert endpoint(innocent, "innocent").attempts == 0


def test_a_lost_partition_gives_its_turn_back(turns: Turns) -> None:
    one, another = crashed(turns, "a"), crashed(turns, "b")
    one.try_groups()
    one.owner.trial.leave()
    another.try_groups()


def test_a_handler_that_takes_its_time_keeps_the_others_waiting_for_so_long(turns: Turns) -> None:
    one, another = crashed(turns, "a"), crashed(turns, "b")
    one.try_groups()
    another.now_ms += TURN_MS
    (append,) = another.step(Tick())
    another.acknowledge(append)
    assert len(taken(another)) == 1
