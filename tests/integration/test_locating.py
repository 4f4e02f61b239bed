"""Finding the partition of a group, from a reader of other partitions."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.group_locator import GroupLocator
from konverse.bridge.owner.logs import QueueLogs
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.owner.events import ReadData, ReadJournal, ReadSnapshots
from konverse.dialog.queries.searching import Search
from konverse.dialog.transaction.received import GroupPlace
from tests.integration.test_moves_killed import joins, places_of
from tests.kit.oracle import verify
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, ORDER, connected, open_shop, queue_of, relocate, until

pytestmark = pytest.mark.stack


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of offsets of journals and snapshots that each question asked for."""
    offsets: list[int] = []
    answer = QueueLogs.answer

    def spied(self: QueueLogs, partition: int, question: Any) -> Any:
        if not isinstance(question, ReadData):
            assert isinstance(question, ReadJournal | ReadSnapshots)
            offsets.append(question.end - question.start)
        return answer(self, partition, question)

    monkeypatch.setattr(QueueLogs, "answer", spied)
    return offsets


def groups_of(servers: Servers, broker: Broker) -> GroupLocator:
    """The groups of a reader without partitions."""
    return GroupLocator(Kafka(Settings(kafka=f"kafka://{servers.bootstrap}")), queue_of(broker, "Orders"), {})


def find(groups: GroupLocator, group: bytes) -> GroupPlace | None:
    search = Search(group, groups.ours, groups.addresses)
    groups.answer(search)
    return search.found


@pytest.mark.parametrize("kept", [16, 1])
def test_a_repeated_search_reads_only_new_records_of_followed_partitions(
    servers: Servers, database: str, asked: list[int], monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("konverse.bridge.owner.group_locator.FOLLOWED_ENTRIES_MAX", kept)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        places = places_of(broker, 2, 8)
        queue, groups = queue_of(broker, "Orders"), groups_of(servers, broker)
        for number, (_, group) in [*places.items()] * 2:
            found = find(groups, group.bytes)
            assert found is not None
            assert found.address == queue.address(number)
        asked.clear()
        assert find(groups, bytes(16)) is None
        assert (sum(asked) == 0) is (kept == 16)
        asked.clear()
        with broker.reader("Orders", partitions=(1,)) as reader:
            reader.wait_for_partitions(1, DEADLINE_S)
        others = sum(asked)
        asked.clear()
        assert find(groups, bytes(16)) is None
        assert 0 < sum(asked) < 20 or kept == 1, others
        groups.close()
        assert len(groups._followed) == 0


def test_a_followed_partition_with_too_many_waiting_bytes_is_not_kept(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.owner.group_locator.FOLLOWED_BYTES_MAX", 2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        places = places_of(broker, 2, 8)
        groups = groups_of(servers, broker)
        assert find(groups, bytes(16)) is None
        assert sorted(groups._followed) == [0, 1]
        places[0][0].send(ORDER, b"larger")
        broker.flush()
        with broker.reader("Orders") as reader:
            until(lambda: _unread(reader), "it is ingested")
            reader.settle()
        assert find(groups, bytes(16)) is None
        assert sorted(groups._followed) == [1]
        groups.close()


def _unread(reader: Any) -> int:
    reader.keep_up()
    return sum(owner.fold.state.unread for owner in reader.owners)


def test_a_group_whose_move_has_sent_nothing_yet_is_joined_at_its_destination(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has died after the commit that moves it, before the state was in the other log."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=3)
        places = places_of(broker, 3, 24)
        (one, _), (two, group) = places[0], places[1]
        with monkeypatch.context() as silent, broker.reader("Orders", partitions=(1,)) as reader:
            silent.setattr(Outputs, "add", lambda *_: None)
            reader.wait_for_partitions(1, DEADLINE_S)
            relocate(reader, two.id, 2)
            until(lambda: _left(reader), "it has left")
        joins(broker, one, group)
        for dialog in (one, two):
            dialog.send(ORDER, b"later")
        broker.flush()
        with broker.reader("Orders") as reader:
            reader.wait_for_partitions(3, DEADLINE_S)
            until(lambda: _together(reader, group.bytes), "both are there")
            reader.settle()
        assert verify(servers.bootstrap, [queue_of(broker, name) for name in ("Orders", "Shop")]) == []


def _left(reader: Any) -> bool:
    reader.keep_up()
    return any(owner.fold.state.moves.count for owner in reader.owners)


def _together(reader: Any, group: bytes) -> bool:
    reader.keep_up()
    places = {owner.identity.partition: len(owner.fold.state.members(group)) for owner in reader.owners}
    return {number: count for number, count in places.items() if count} == {2: 2}
