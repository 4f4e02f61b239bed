"""Where a conversation group lives that something is to be moved to: what is read, and what follows (section 7.2).

Drivers are `bridge.owner.group_locator` and the simulator. They answer the questions of a search while everything else
goes on, and lock the group afterwards: it may have come to a partition of theirs meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from konverse.dialog.owner.locks import is_here, lock
from konverse.dialog.owner.relocations import found_in

from .in_flight import InFlight, arriving, newest, sent

if TYPE_CHECKING:
    from konverse.dialog.owner.staging import Staging
    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.state.partition import Partition
    from konverse.dialog.state.recent import Columns
    from konverse.dialog.transaction.begun import Begun
    from konverse.dialog.transaction.received import Found
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.schemas.identifiers import Address

PASSES: Final = 3
"""A group that moves from where a search comes later to where it was before is found by the next pass."""


class ReadState(NamedTuple):
    """What does the journal of a partition say, as it ends now? The answer is a Journaled."""

    partition: int


class ReadBehind(NamedTuple):
    """Which data stand in a partition from an offset on? The answer is Columns, one after the other."""

    partition: int
    start: int


class Journaled(NamedTuple):
    """The state of a partition, and how far its journal was read for it."""

    state: Partition
    offset: int


class Wanted(NamedTuple):
    """What asks for a group."""

    transaction: Transaction
    dialog: Endpoint | Begun
    group: bytes


class Search:
    """For a group that is in none of the partitions of a process: in the others, or on its way to any one."""

    def __init__(self, group: bytes, ours: Mapping[int, Partition], addresses: Mapping[int, Address]) -> None:
        self.question: ReadState | ReadBehind | None = None
        """To be answered; None: it is over."""
        self.found: Found | None = None
        self._group = group
        self._addresses = addresses
        self._topic = next(iter(addresses.values())).topic
        self._in_flight = [one for state in ours.values() for one in sent(state, group)]
        self.ours = {number: state.ingest_to for number, state in ours.items()}
        """Of each partition of this process: offset of the data log from which on the state has nothing."""
        self._steps = self._run()
        self.answer(None)

    def answer(self, answer: Journaled | Iterable[Columns] | None) -> None:
        """Go on to the next question, or to the end."""
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
        """Every partition once; `places` gets how far the journals were read that are not ours."""
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
        """Members that wait in data which nobody has committed yet."""
        read = yield ReadBehind(number, start)
        return [one for columns in read for one in arriving(columns, self._addresses[number], self._group)]


def find_here(ours: Mapping[int, Partition], group: bytes) -> Found | None:
    """A group in the partitions of this process."""
    return next(filter(None, (found_in(state, group) for state in ours.values())), None)


def search_for(
    staging: Staging, ours: Mapping[int, Partition], addresses: Mapping[int, Address], wanted: Wanted
) -> Search | None:
    """What has to be found out before `lock_found`; None when the group is here.

    `addresses` are those of all partitions of the queue.
    """
    if is_here(staging, *wanted) or find_here(ours, wanted.group) is not None:
        return None
    return Search(wanted.group, ours, addresses)


def lock_found(
    staging: Staging, ours: Mapping[int, Partition], search: Search | None, wanted: Wanted
) -> Address | None:
    """Lock the group, wherever the search has found it: see `lock`."""
    found = find_here(ours, wanted.group)
    if found is None and search is not None:
        found = search.found
    return lock(staging, *wanted, found)
