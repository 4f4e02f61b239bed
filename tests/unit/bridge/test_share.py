"""What a reader makes of owners that stopped."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.seldom import Seldom
from konverse.bridge.share import Share
from konverse.dialog.events import Stopped
from konverse.dialog.owner import Owner
from tests.kit.driver import Driver

STOPPED = Stopped("Kafka said nothing", clean=False, fenced=False)


class Owners:
    """Stands in for `Owning`: partitions, and what stopped."""

    def __init__(self) -> None:
        self.queue = SimpleNamespace(name="Orders", topic="orders")
        self.owners: dict[int, Owner] = {}
        self.late = SimpleNamespace(count=0)
        self.misplaced: deque[tuple[int, int]] = deque()
        self.said: list[tuple[int, Owner, Stopped]] = []

    def stopped(self) -> list[tuple[int, Owner, Stopped]]:
        said, self.said = self.said, []
        return said

    def drop(self, number: int) -> None:
        del self.owners[number]


@pytest.fixture
def share() -> Any:
    share: Any = Share.__new__(Share)
    share._owning, share._options = Owners(), SimpleNamespace(partitions=None)
    share._assigned, share._claim_again_at, share._lost, share.failure = {0}, {}, 0, None
    share._watch, share._away = SimpleNamespace(look=lambda: None, silent_s=0.0), Seldom()
    return share


def led() -> Owner:
    driver = Driver()
    driver.lead()
    return driver.owner


def test_a_partition_that_was_led_is_lost_and_claimed_again(share: Any) -> None:
    share._owning.owners[0] = owner = led()
    share._owning.said.append((0, owner, STOPPED))
    share.see_stopped()
    assert (share.lost, list(share._owning.owners), list(share._claim_again_at)) == (1, [], [0])


def test_a_claim_that_failed_has_lost_nothing(share: Any) -> None:
    share._owning.owners[0] = owner = Driver().owner
    share._owning.said.append((0, owner, STOPPED))
    share.see_stopped()
    assert (share.lost, list(share._owning.owners), list(share._claim_again_at)) == (0, [], [0])


def test_an_owner_that_came_after_the_one_that_stopped_stays(share: Any) -> None:
    """The group took the partition and gave it again before anybody looked."""
    share._owning.owners[0] = after = led()
    share._owning.said.append((0, led(), STOPPED))
    share.see_stopped()
    assert (share.lost, share._owning.owners, share._claim_again_at) == (1, {0: after}, {})
