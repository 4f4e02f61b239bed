"""A reader's treatment of stopped owners, and the positions of its consumer."""

from __future__ import annotations

import math
from threading import RLock
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from konverse.bridge.reader import assignment
from konverse.bridge.reader.assignment import Assignment
from konverse.bridge.reader.join_wait import JoinWait
from konverse.bridge.reader.orphans import Orphans
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.events import Stopped
from konverse.dialog.owner.owner import Owner
from tests.kit.driver import Driver

STOPPED = Stopped("Kafka said nothing", clean=False, fenced=False)


class Owners:
    """A stub for `OwnerDriver`: partitions, and stopped owners."""

    def __init__(self) -> None:
        self.queue = SimpleNamespace(name="Orders", topic="orders", subscription="queue", partitions=1)
        self.owners: dict[int, Owner] = {}
        self.late, self.catalog_changes = SimpleNamespace(count=0), SimpleNamespace(dropped=False)
        self.misplaced: set[int] = set()
        self.validator_pause_s = 0.0
        self.said: list[tuple[int, Owner, Stopped]] = []

    def stopped(self) -> list[tuple[int, Owner, Stopped]]:
        said, self.said = self.said, []
        return said

    def drop(self, number: int) -> None:
        del self.owners[number]

    def take_over(self, number: int) -> int | None:
        return self.owners[number].fold.data_to if number in self.owners else None


class Places:
    """A stub for a consumer: positions and pauses."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.paused: set[int] = set()

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        assert not {place.partition for place in places} & self.at.keys()
        self.at.update({place.partition: place.offset for place in places})

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.at[place.partition]

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused.update(place.partition for place in places)

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused.difference_update(place.partition for place in places)


@pytest.fixture
def share() -> Any:
    share: Any = Assignment.__new__(Assignment)
    share.join_wait = JoinWait(group=True)
    share._driver, share._options = Owners(), SimpleNamespace(partitions=None)
    share._assigned, share._claim_again_at, share._lost, share.failure = {0}, {}, 0, None
    share._watch, share._away = SimpleNamespace(poll=lambda: None, silent_s=0.0), LogThrottle()
    share._was_silent, share._probe_at = False, math.inf
    share._closed, share._lock, share._paused = False, RLock(), set()
    share._orphans = Orphans(SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=60)), share._driver.queue)  # type: ignore[arg-type]
    share._transactions = SimpleNamespace(poll=lambda partitions: None)
    share._topics, share.consumer = SimpleNamespace(same_queue=lambda _: None), Places()
    return share


def led() -> Owner:
    driver = Driver()
    driver.lead()
    return driver.owner


def test_a_partition_that_was_led_is_lost_and_claimed_again(share: Any) -> None:
    share._driver.owners[0] = owner = led()
    share._driver.said.append((0, owner, STOPPED))
    share.maintain()
    assert (share.lost, list(share._driver.owners), list(share._claim_again_at)) == (1, [], [0])


def test_a_claim_that_failed_has_lost_nothing(share: Any) -> None:
    share._driver.owners[0] = owner = Driver().owner
    share._driver.said.append((0, owner, STOPPED))
    share.maintain()
    assert (share.lost, list(share._driver.owners), list(share._claim_again_at)) == (0, [], [0])


def test_an_owner_that_came_after_the_one_that_stopped_stays(share: Any) -> None:
    """The group took the partition and gave it back before the reader looked."""
    share._driver.owners[0] = after = led()
    share._driver.said.append((0, led(), STOPPED))
    share.maintain()
    assert (share.lost, share._driver.owners, share._claim_again_at) == (1, {0: after}, {})


def test_a_waiting_partition_is_assigned_paused_at_a_fixed_offset(share: Any) -> None:
    """It asks for the end of a log, and takes the late answer for its position after a seek."""
    share._on_assign(share.consumer, [TopicPartition("orders", 0)])
    assert (share.consumer.at, share.consumer.paused, list(share._claim_again_at)) == ({0: 0}, {0}, [0])


def test_a_partition_is_read_from_where_its_claim_has_recovered_to(share: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.bridge.reader.assignment.CLAIM_AGAIN_S", 0.0)
    share._on_assign(share.consumer, [TopicPartition("orders", 0)])
    share._driver.owners[0] = owner = led()
    owner.fold.pass_over(7)
    share.maintain()
    assert (share.consumer.at, share.consumer.paused) == ({0: 7}, set())


def test_a_misplaced_partition_is_read_again_from_the_position_of_its_current_owner(share: Any) -> None:
    """Another owner may have asked for it, and have read further than this one has recovered."""
    share.consumer.at[0] = 20
    share._driver.misplaced.add(0)
    share._driver.owners[0] = owner = led()
    owner.fold.pass_over(7)
    share.maintain()
    assert (share.consumer.at, share._driver.misplaced) == ({0: 7}, set())


@pytest.mark.parametrize(
    ("was_silent", "silent_s", "deserted", "replaced"),
    [
        (True, 0.0, True, True),
        (True, 0.0, False, False),
        (True, 9.0, True, False),
        (False, 0.0, True, False),
    ],
    ids=["lost its brokers", "has a broker", "Kafka is away", "Kafka was never away"],
)
def test_a_consumer_that_has_lost_its_brokers_is_replaced_when_kafka_answers_again(
    share: Any, monkeypatch: pytest.MonkeyPatch, *, was_silent: bool, silent_s: float, deserted: bool, replaced: bool
) -> None:
    monkeypatch.setattr(assignment, "PROBE_AFTER_S", 0.0)
    failures: list[Exception] = []
    share._was_silent, share._watch.silent_s = was_silent, silent_s
    share._kafka, share.consumer = SimpleNamespace(is_deserted=lambda _: deserted), None
    share._begin_with_another = failures.append
    for _ in range(2):
        share._probe_consumer()
    assert len(failures) == int(replaced), "and once"
