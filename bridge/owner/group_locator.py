"""Finds the partition of a conversation group: in the states of the partitions owned here, or in the other journals."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from konverse.bridge.kafka.clients import Kafka
from konverse.dialog.queries.searching import Journaled, ReadBehind, ReadState, Search
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.limits import FOLLOWED_BYTES_MAX, FOLLOWED_ENTRIES_MAX

from .follower import Follower
from .logs import QueueLogs

if TYPE_CHECKING:
    from konverse.dialog.owner.owner import Owner


class GroupLocator:
    """Locates conversation groups of a queue for a reader that owns some of its partitions."""

    def __init__(self, kafka: Kafka, queue: Queue, owners: Mapping[int, Owner]) -> None:
        self._kafka = kafka
        self._queue = queue
        self.addresses = {number: queue.address(number) for number in range(queue.partitions)}
        """Partition -> address, for all partitions of the queue."""
        self._owners = owners
        self._reading: QueueLogs | None = None
        self._followed: dict[int, Follower] = {}
        """Followers of partitions that are not owned here, as far as the last search has read."""
        self._searching = threading.Lock()
        self._closed = False

    @property
    def ours(self) -> dict[int, Partition]:
        """States of the partitions that are owned here."""
        return {number: owner.fold.state for number, owner in self._owners.items()}

    def answer(self, search: Search) -> None:
        """Answer the questions of a search until it ends. The caller holds no lock, so owners continue meanwhile.

        The first search reads each journal from its newest snapshot, which may take seconds; later searches continue
        from there. Data that no commit has ingested yet are searched too, because a group that has moved may wait
        there. A partition needs no owner to be searched. Raises the errors of `Follower.catch_up`.
        """
        try:
            with self._searching:
                for number in search.ours:
                    self._leave(number)
                while search.question is not None:
                    search.answer(self._answer(search.question))
        finally:
            self._release()

    def _answer(self, question: ReadState | ReadBehind) -> Journaled | Iterable[RecordColumns]:
        if isinstance(question, ReadBehind):
            return self._read().data_behind(question.partition, question.start)
        following = self._follow(question.partition)
        state = following.catch_up()
        self._keep(question.partition, following)
        return Journaled(state, following.head.offset)

    def _read(self) -> QueueLogs:
        if self._reading is None:
            self._reading = QueueLogs(self._kafka, self._queue)
        return self._reading

    def _follow(self, number: int) -> Follower:
        return self._followed.get(number) or Follower(self._kafka, self._queue, number, self._read())

    def _keep(self, number: int, following: Follower) -> None:
        """Keep a follower for the next search, unless too many are kept or they would hold too many bytes."""
        others = [one.state.unread_bytes for place, one in self._followed.items() if place != number]
        if len(others) < FOLLOWED_ENTRIES_MAX and sum(others) + following.state.unread_bytes <= FOLLOWED_BYTES_MAX:
            self._followed[number] = following
        else:
            self._leave(number)

    def _leave(self, number: int) -> None:
        self._followed.pop(number, None)

    def close(self) -> None:
        """Close the client. A search that is still running closes it when it ends."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._closed and self._searching.acquire(blocking=False):
            try:
                self._followed.clear()
                if self._reading is not None:
                    self._reading.close()
                    self._reading = None
            finally:
                self._searching.release()
