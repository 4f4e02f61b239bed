"""The search for the partition of a group as the destination of a move: its questions and results (section 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from unittest.mock import Mock

import pytest

from konverse.dialog.queries.searching import PASSES, Journaled, ReadBehind, ReadState, Search, find_here
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.transaction.received import GroupPlace
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.envelope import encode_envelope
from konverse.schemas.wire.operations import Move
from tests.kit.builders import GROUP, Side, columns_of, log_of, record
from tests.kit.moving import World, relocate

NOBODYS = b"no such group..."


class Queue:
    """Three partitions of one queue, all of other owners. Events may happen before a question is answered."""

    def __init__(self) -> None:
        self.world = World()
        self.sides: dict[int, Side] = dict(enumerate((self.world.target, self.world.second, self.world.third)))
        for number in (1, 2):
            self.sides[number].state = Partition(log_of("orders", number))
        one = self.world.receiver(self.world.begin("one"))
        self.world.target.commit(rare=[Move(one.index, GROUP)])
        self.one = self.world.receiver(one.conversation)
        self.waiting: dict[int, list[RecordColumns]] = {0: [], 1: [], 2: []}
        self.offset = 0
        self.asked: list[ReadState | ReadBehind] = []
        self.before: dict[int, Callable[[], None]] = {}
        """Number of a question → event before its answer."""

    @property
    def addresses(self) -> dict[int, Address]:
        return {number: side.address for number, side in self.sides.items()}

    def search(self, group: bytes = GROUP, *ours: int) -> GroupPlace | None:
        search = Search(group, {number: self.sides[number].state for number in ours}, self.addresses)
        while search.question is not None:
            question = search.question
            self.before.get(len(self.asked), lambda: None)()
            self.asked.append(question)
            search.answer(self._answer(question))
        return search.found

    def _answer(self, question: ReadState | ReadBehind) -> Journaled | Iterable[RecordColumns]:
        if isinstance(question, ReadBehind):
            return self.waiting[question.partition]
        return Journaled(self.sides[question.partition].state, self.offset)

    def at(self, number: int) -> GroupPlace:
        return GroupPlace(self.sides[number].address, self.one.service)

    def leaves(self) -> None:
        """The group leaves the first partition for the second one, which has not ingested it."""
        relocate(self.world.target, self.one, self.world.second)
        to = self.world.second.address
        rows = [(encode_envelope(one.envelope), record(one.body)) for one in self.world.target.outputs(to)]
        self.waiting[1] = [columns_of(rows)]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_a_group_is_found_where_it_lives_and_nothing_further_is_read(queue: Queue) -> None:
    assert queue.search() == queue.at(0)
    assert queue.asked == [ReadState(0)]
    assert find_here({0: queue.sides[0].state}, GROUP) == queue.at(0)


def test_a_group_that_is_nowhere_is_looked_for_until_the_journals_stand_still(queue: Queue) -> None:
    assert queue.search(NOBODYS) is None
    asks = [(ReadState(number), ReadBehind(number, side.state.ingest_to)) for number, side in queue.sides.items()]
    once = [one for both in asks for one in both]
    assert queue.asked == once * 2


def test_journals_that_never_stand_still_are_read_so_often_and_no_more(queue: Queue) -> None:
    def grow() -> None:
        queue.offset += 1

    queue.before = Mock(get=lambda *_: grow)
    assert queue.search(NOBODYS) is None
    assert len(queue.asked) == PASSES * 6


def test_of_our_own_partitions_the_data_alone_are_read(queue: Queue) -> None:
    assert queue.search(NOBODYS, 0, 1, 2) is None
    assert {type(question) for question in queue.asked} == {ReadBehind}


def test_a_group_is_found_on_its_way_in_the_outbox_of_the_place_that_it_left(queue: Queue) -> None:
    queue.leaves()
    queue.waiting[1] = []
    assert queue.search() == queue.at(1)
    assert queue.search(GROUP, 0) == queue.at(1), "also when that place is ours"


def test_a_group_is_found_in_data_that_is_not_yet_ingested(queue: Queue) -> None:
    queue.leaves()
    queue.world.target.state.streams.clear()
    assert queue.search() == queue.at(1)
    assert queue.search(GROUP, 1) == queue.at(1)


def test_a_group_that_moves_to_where_the_search_was_already_is_found_by_the_next_pass(queue: Queue) -> None:
    queue.leaves()
    queue.sides = {0: queue.world.second, 1: queue.world.target, 2: queue.world.third}
    arrives, queue.waiting = queue.waiting[1], {0: [], 1: [], 2: []}
    queue.world.target.state.streams.clear()

    def come() -> None:
        queue.waiting[0], queue.offset = arrives, 1

    queue.before = {2: come}
    found = queue.search()
    assert found == queue.at(0)
    assert queue.asked[6] == ReadState(0)
