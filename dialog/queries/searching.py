"""Search for the partition of the conversation group to which a conversation is to move (protocol.md section 7.2).

A `Search` asks one question at a time. Its driver answers while all other work continues. When the search is over, the
driver locks the group, which may by then have come to a partition of the driver's own process. Drivers:
`bridge.owner.group_locator` and the simulator.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from konverse.dialog.owner.relocations import found_in

from .in_flight import InFlight, arriving, newest, sent

if TYPE_CHECKING:
    from konverse.dialog.owner.staging import Staging
    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.state.partition import Partition
    from konverse.dialog.state.recent import RecordColumns
    from konverse.dialog.transaction.begun import NewDialog
    from konverse.dialog.transaction.received import GroupPlace
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.schemas.identifiers import Address

PASSES: Final = 3
"""Passes of a search. A group that moves to a partition which the pass has read already is found by the next one."""


class ReadState(NamedTuple):
    """Question: the state of a partition at the present end of its journal. The answer is a Journaled."""

    partition: int


class ReadBehind(NamedTuple):
    """Question: the data records of a partition from an offset on. The answer is an iterable of RecordColumns."""

    partition: int
    start: int


class Journaled(NamedTuple):
    """The state of a partition, and the journal offset up to which it was folded."""

    state: Partition
    offset: int


class GroupRequest(NamedTuple):
    """A move that needs a group: the transaction, the conversation, and its new group."""

    transaction: Transaction
    dialog: Endpoint | NewDialog
    group: bytes


class Search:
    """Search for a group that is in no partition of this process: in the others, or on its way to any partition."""

    def __init__(self, group: bytes, ours: Mapping[int, Partition], addresses: Mapping[int, Address]) -> None:
        self.question: ReadState | ReadBehind | None = None
        """The question to answer; None when the search is over."""
        self.found: GroupPlace | None = None
        self._group = group
        self._addresses = addresses
        self._topic = next(iter(addresses.values())).topic
        self._in_flight = [one for state in ours.values() for one in sent(state, group)]
        self.ours = {number: state.ingest_to for number, state in ours.items()}
        """Partition of this process -> next data log offset to ingest."""
        self._steps = self._run()
        self.answer(None)

    def answer(self, answer: Journaled | Iterable[RecordColumns] | None) -> None:
        """Take the answer; continue with the next question, or end the search."""
        try:
            self.question = self._steps.send(answer)
        except StopIteration:
            self.question = None

    def _run(self) -> Generator[ReadState | ReadBehind, Any, None]:
        before: list[int] = []
        for _ in range(PASSES):
            places: list[int] = []
            yield from self._pass(places)
            if self.found is not None or places == before:
                return
            before = places

    def _pass(self, places: list[int]) -> Generator[ReadState | ReadBehind, Any, None]:
        """Read every partition once. `places` gets the journal offsets of the partitions of other processes."""
        in_flight = [*self._in_flight]
        for number, start in self.ours.items():
            in_flight += yield from self._behind(number, start)
        for number in self._addresses:
            if number in self.ours:
                continue
            state, offset = yield ReadState(number)
            self.found = found_in(state, self._group)
            if self.found is not None:
                return
            places.append(offset)
            in_flight += sent(state, self._group)
            in_flight += yield from self._behind(number, state.ingest_to)
        self.found = newest(one for one in in_flight if one.found.address.topic == self._topic)

    def _behind(self, number: int, start: int) -> Generator[ReadBehind, Any, list[InFlight]]:
        """Members in data records that no COMMIT has ingested yet."""
        read = yield ReadBehind(number, start)
        return [one for columns in read for one in arriving(columns, self._addresses[number], self._group)]


def find_here(ours: Mapping[int, Partition], group: bytes) -> GroupPlace | None:
    """The place of the group, if a partition of this process has it; else None."""
    return next(filter(None, (found_in(state, group) for state in ours.values())), None)


def search_for(
    staging: Staging, ours: Mapping[int, Partition], addresses: Mapping[int, Address], wanted: GroupRequest
) -> Search | None:
    """The search that must end before `lock_found`; None when the group is here.

    `ours` are the partitions of this process, `addresses` those of the whole queue.
    """
    if staging.locks.is_here(*wanted) or find_here(ours, wanted.group) is not None:
        return None
    return Search(wanted.group, ours, addresses)


def lock_found(
    staging: Staging, ours: Mapping[int, Partition], search: Search | None, wanted: GroupRequest
) -> Address | None:
    """Lock the group where the search has found it, unless it has come to this process since. As `GroupLocks.lock`."""
    found = find_here(ours, wanted.group)
    if found is None and search is not None:
        found = search.found
    return staging.lock(*wanted, found)
