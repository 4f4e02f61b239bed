"""Groups and conversations requested by name (RECEIVE WHERE)."""

from __future__ import annotations

from collections import deque

import pytest

from tests.kit.builders import Pair
from tests.kit.staging import commit, taken
from tests.unit.dialog.test_staging import staging_of


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_one_conversation_is_handed_out_alone_and_its_group_is_locked_behaviour_75(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    staging = staging_of(pair.home)
    transaction = staging.take_from(two, whole=False)
    assert transaction is not None
    assert (transaction.members, transaction.dialogs) == ([two], [one, two])
    assert one.held
    assert staging.take_from(one, whole=False) is None
    assert staging.take() is None
    list(transaction)
    staging.finish(transaction)
    commit(staging, pair.home)
    assert taken(staging).members == [one]


def test_a_wanted_group_is_handed_out_whole(pair: Pair) -> None:
    one, two = pair.answered("one", "two")
    transaction = staging_of(pair.home).take_from(one, whole=True)
    assert transaction is not None
    assert transaction.members == [one, two]


def test_a_lone_conversation_is_its_own_group(pair: Pair) -> None:
    receiver = pair.receiver(pair.begin())
    staging = staging_of(pair.target)
    transaction = staging.take_from(receiver, whole=True)
    assert transaction is not None
    assert (transaction.members, transaction.dialogs, receiver.held) == ([receiver], [receiver], True)
    list(transaction)
    staging.finish(transaction)
    commit(staging, pair.target)
    assert staging.take_from(receiver, whole=True) is None, "nothing waits"
    assert not receiver.held


def test_under_a_try_only_its_groups_are_handed_out_and_once(pair: Pair) -> None:
    receivers = [pair.receiver(pair.begin(name)) for name in ("a", "b")]
    staging = staging_of(pair.target)
    staging.tried = deque(receivers[:1])
    assert staging.take_from(receivers[1], whole=True) is None
    assert staging.take_from(receivers[0], whole=True) is not None
    receivers[0].held = False
    assert staging.take() is None, "it had its turn"
