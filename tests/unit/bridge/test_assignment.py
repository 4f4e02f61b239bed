"""A reader's treatment of stopped owners, and the positions of its consumer."""

from __future__ import annotations

from threading import Event, RLock
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from konverse.bridge.kafka import clients
from konverse.bridge.kafka.clients import ConsumerFailed, DesertionWatch
from konverse.bridge.reader import assignment
from konverse.bridge.reader.assignment import Assignment
from konverse.bridge.reader.join_wait import JoinWait
from konverse.bridge.reader.orphans import Orphans
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.owner.events import Stopped
from konverse.dialog.owner.owner import Owner
from tests.kit import until
from tests.kit.driver import Driver

WITHIN_S = 60.0
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

    def give_back(self, *numbers: int) -> None:
        for number in numbers:
            self.owners.pop(number, None)

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
            if place.partition not in self.at:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG))  # librdkafka's own code
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
    share._desertion, share._failed, share._leaving = DesertionWatch(SimpleNamespace()), None, []  # type: ignore[arg-type]
    share._closed, share._lock, share._paused = False, RLock(), set()
    share._orphans = Orphans(SimpleNamespace(settings=SimpleNamespace(silence_timeout_s=60)), share._driver.queue)  # type: ignore[arg-type]
    share._transactions = SimpleNamespace(poll=lambda partitions: None)
    share._topics, share.consumer = SimpleNamespace(same_queue=lambda _: None), Places()
    return share


def test_the_end_of_a_log_is_known_to_the_consumer_that_reads_it(share: Any) -> None:
    """The group's consumer reads partition 0, and another one the orphaned partition 1."""

    def knows(**ends: int) -> Any:
        def watermarks(place: TopicPartition, *, cached: bool) -> tuple[int, int]:
            assert cached, "Kafka is not asked"
            return 0, ends.get(f"of_{place.partition}", -1001)

        return SimpleNamespace(get_watermark_offsets=watermarks)

    share.consumer, share._orphans._consumer = knows(of_0=4), knows(of_1=7)
    share._orphans.numbers.add(1)
    share._driver.owners.update({0: led(), 1: led()})
    assert share.ends() == {0: 4, 1: 7}


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


def test_a_claim_of_an_orphan_with_an_unknown_outcome_is_noted(share: Any) -> None:
    """It may stand in the journal, where a substitute would take it for another process's."""
    noted: list[tuple[int, Owner | None]] = []
    share._orphans.find, share._orphans.failed = lambda _ours: [1], lambda *of: noted.append(of)
    share._driver.owners[1] = owner = Driver().owner
    share._driver.take_over = lambda _number: None
    share._group, share._options = "the group", SimpleNamespace(partitions=(), substitute=True)
    share.maintain()
    assert noted == [(1, owner)]


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


class Leaving(Places):
    """A consumer that leaves its group when the test allows it. The group has assigned it partitions meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.may_leave, self.left = Event(), Event()
        self.in_group, self.rebalances = True, 0

    def unsubscribe(self) -> None:
        self.in_group, self.rebalances = False, 2  # what it was assigned while it left, and that this is revoked

    def poll(self, _wait_s: float) -> None:
        self.rebalances = max(0, self.rebalances - 1)

    def assignment(self) -> list[int]:
        return [0] * self.rebalances

    def close(self) -> None:
        assert self.may_leave.wait(30)
        self.left.set()


class Failed(Leaving):
    """A consumer that has failed for good."""

    def unsubscribe(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))  # librdkafka's own code


@pytest.fixture
def deserted(share: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Consumers of the share that have lost their brokers. Nothing has noticed that Kafka was away."""
    monkeypatch.setattr(clients, "QUIET_S", 0.0)
    found: list[Any] = []
    kafka: Any = SimpleNamespace(is_deserted=lambda client, _topic: client in found)
    share._kafka = kafka
    share._desertion, share._orphans.desertion = DesertionWatch(kafka), DesertionWatch(kafka)
    share._orphans.find = lambda _ours: []
    share._subscribe = Leaving
    share.consumer = Leaving()
    return found


def test_a_consumer_that_has_lost_its_brokers_is_replaced_and_leaves_while_the_reader_goes_on(
    share: Any, deserted: list[Any]
) -> None:
    former = share.consumer
    deserted.append(former)
    share._driver.owners[0] = led()
    until(lambda: share.maintain() or share.consumer is not former, WITHIN_S)
    assert (share._driver.owners, former.left.is_set()) == ({}, False)
    former.may_leave.set()
    share.wait_until_left()
    assert former.left.is_set()


def test_a_consumer_leaves_its_group_before_it_is_closed(share: Any, deserted: list[Any]) -> None:
    """A callback within `close` can stop the whole process."""
    former = share.consumer
    deserted.append(former)
    former.may_leave.set()
    until(lambda: share.maintain() or share.consumer is not former, WITHIN_S)
    share.wait_until_left()
    assert (former.left.is_set(), former.in_group, former.rebalances) == (True, False, 0)


def test_a_consumer_that_cannot_leave_its_group_is_closed_all_the_same(share: Any, deserted: list[Any]) -> None:
    share.consumer = former = Failed()
    deserted.append(former)
    former.may_leave.set()
    until(lambda: share.maintain() or share.consumer is not former, WITHIN_S)
    share.wait_until_left()
    assert former.left.is_set()


def test_a_consumer_of_named_partitions_is_in_no_group_to_leave(share: Any, deserted: list[Any]) -> None:
    share._options = SimpleNamespace(partitions=(0,), substitute=False)
    former = share.consumer
    deserted.append(former)
    former.may_leave.set()
    until(lambda: share.maintain() or share.consumer is not former, WITHIN_S)
    share.wait_until_left()
    assert (former.left.is_set(), former.in_group) == (True, True)


def test_a_consumer_of_orphaned_partitions_that_has_lost_its_brokers_is_replaced(
    share: Any, deserted: list[Any]
) -> None:
    """It reads all partitions of a substitute."""
    share._assigned, share._options = set(), SimpleNamespace(partitions=(), substitute=True)
    share._orphans._consumer = reading = Leaving()
    share._orphans.adopt(0, 7)
    share._driver.owners[0] = led()
    deserted.append(reading)
    share.consumer.may_leave.set()
    reading.may_leave.set()
    until(lambda: share.maintain() or not share._orphans.numbers, WITHIN_S)
    share.wait_until_left()
    assert (share._driver.owners, reading.left.is_set()) == ({}, True)


def test_a_consumer_that_has_its_brokers_is_kept(share: Any, deserted: list[Any]) -> None:
    kept, asked = share.consumer, []

    def is_deserted(client: Any, _topic: str) -> bool:
        asked.append(client)
        return client in deserted

    share._kafka.is_deserted = is_deserted
    until(lambda: share.maintain() or len(asked) >= 2, WITHIN_S)
    assert (share.consumer, share._leaving) == (kept, [])


def test_a_replacement_that_was_interrupted_is_completed(share: Any, deserted: list[Any]) -> None:
    former, subscribe, cut = share.consumer, share._subscribe, [KeyboardInterrupt()]

    def interrupted() -> Any:
        if cut:
            raise cut.pop()
        return subscribe()

    share._subscribe = interrupted
    with pytest.raises(KeyboardInterrupt):
        share._replace_consumer(ConsumerFailed("failed"))
    assert deserted == []
    share.maintain()
    assert share.consumer is not former
    assert share._failed is None
    former.may_leave.set()
    share.wait_until_left()


def test_a_partition_whose_claim_was_interrupted_is_claimed_again(share: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With those behind it, which were not claimed yet."""
    monkeypatch.setattr(assignment, "CLAIM_AGAIN_S", 0.0)
    share._driver.queue.partitions, share._assigned = 2, set()
    take_over, cut = share._driver.take_over, [KeyboardInterrupt()]

    def interrupted(number: int) -> Any:
        if cut:
            raise cut.pop()
        share._driver.owners[number] = led()
        return take_over(number)

    share._driver.take_over = interrupted
    with pytest.raises(KeyboardInterrupt):
        share._on_assign(share.consumer, [TopicPartition("orders", number) for number in (0, 1)])
    share.maintain()
    assert ([*share._driver.owners], [*share.consumer.at], share._claim_again_at) == ([0, 1], [0, 1], {})


def test_a_partition_is_read_from_the_position_of_its_owner_after_an_interrupt(share: Any) -> None:
    """The interrupted call took a record from the client, and its owner has not got it."""
    share._driver.owners[0] = owner = led()
    owner.fold.pass_over(7)
    share._driver.gated, share._driver.hurries = False, lambda: False
    share.consumer.at[0] = 8

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    share.consumer.poll = interrupted
    with pytest.raises(KeyboardInterrupt):
        share.fetch(0.05)
    share.maintain()
    assert share.consumer.at == {0: 7}


def test_a_partition_whose_adoption_was_interrupted_is_given_back(share: Any, deserted: list[Any]) -> None:
    """Neither the group's consumer nor the one of orphaned partitions reads it."""
    share._assigned = set()
    share._driver.owners[0] = led()
    share._driver.misplaced.add(0)
    share.maintain()
    assert (share._driver.owners, share.consumer.at, deserted) == ({}, {}, [])


def test_every_revoked_partition_is_forgotten_although_their_return_was_interrupted(share: Any) -> None:
    share._assigned, returned = {0, 1, 2}, list[int]()

    def give_back(*numbers: int) -> None:
        returned.extend(numbers)
        raise KeyboardInterrupt

    share._driver.give_back = give_back
    with pytest.raises(KeyboardInterrupt):
        share._on_revoke(share.consumer, [TopicPartition("orders", number) for number in (0, 1, 2)])
    assert (sorted(returned), share._assigned) == ([0, 1, 2], set())
