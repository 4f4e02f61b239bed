"""Catalog changes as a reader's owners apply them: dropped services, contracts and queues, altered services, STATUS.

The pumping thread reads the catalog without the reader's lock, because Kafka may be slow; handlers continue meanwhile.
Before each read, `step` records which conversations have arrived from other partitions. A conversation that arrives
later is not moved on by this read: it may come from a process that knows a newer catalog (`dialog.owner.relocations`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from konverse.bridge.catalog.homes import LATER_S, MovedServices, ServiceMoves
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.runtime.threads import EXPECTED_ERRORS
from konverse.dialog.owner.events import Phase
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.relocations import Arrival
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import QueueDisabled

log: Final = logging.getLogger("konverse.owner")

SWEEP_EVERY_S: Final = 2.0
SWEEP_FOR_S: Final = 60.0
"""How long conversations of dropped objects are searched for after a catalog change or a take-over."""

UNANSWERED_S: Final = 1.0
"""A record without an acknowledgement for this long may have been sent to a dropped queue."""


class _CatalogRead(NamedTuple):
    """A read of the catalog: requested while `moved` is None, completed otherwise."""

    arrivals: dict[Owner, dict[int, Arrival]]
    """Conversations that had arrived from other partitions before the read, by endpoint index."""
    moved: MovedServices | None = None
    dropped: bool = False


class CatalogChanges:
    """Applies catalog changes to the owners of one reader."""

    def __init__(self, rules: Rules, queue: Queue, owners: Mapping[int, Owner]) -> None:
        """Reads the catalog. Raises Unavailable."""
        self._judge = rules.judge
        self._queue = queue
        self._owners = owners
        self.service_moves = ServiceMoves(rules, queue)
        self.dropped = False
        """Whether the queue is no longer in the catalog."""
        self._at = math.inf
        """When the next search for conversations of dropped objects is due."""
        self._until = 0.0
        """Time until which searches are repeated, for conversations that arrive late."""
        self._wanted: _CatalogRead | None = None
        self._read: _CatalogRead | None = None

    def soon(self) -> None:
        """Search now and for a while: the catalog has changed, or a partition was taken over."""
        self._at = time.monotonic()
        self._until = self._at + SWEEP_FOR_S

    def step(self) -> None:
        """Request a read of the catalog when a search is due, and apply the last result. The caller holds the lock.

        Predicted verdicts on messages are discarded when the catalog has changed.
        """
        if self._judge is None:
            return
        if self._judge.changed():
            self.soon()
            for owner in self._leading():
                owner.fold.state.judged_by(self._judge)
        if self._wanted is None and time.monotonic() >= self._at:
            self._at = time.monotonic() + SWEEP_EVERY_S
            self._wanted = _CatalogRead({owner: {**owner.fold.state.moves.arrivals} for owner in self._leading()})
        reading, self._read = self._read, None
        if reading is not None and reading.moved is not None:
            self._sweep(self._judge, reading, reading.moved)

    def read(self) -> None:
        """Read the catalog if `step` has requested it. The pumping thread calls this without the reader's lock."""
        wanted, judge = self._wanted, self._judge
        if wanted is None or judge is None:
            return
        try:
            moved = self.service_moves.read()
            self._read = _CatalogRead(wanted.arrivals, moved, dropped=not judge.keeps(self._queue))
        except EXPECTED_ERRORS as error:
            log.debug("queue %r: cannot determine which objects were dropped: %s", self._queue.name, error)
        finally:
            self._wanted = None

    def look_for_drop(self, since: float) -> float:
        """Check whether the queue was dropped, if UNANSWERED_S have passed since `since` (monotonic, in seconds).

        Returns `since` for the next call. Reads the catalog at once, so only a caller that holds the reader's lock and
        has nothing else to do may call it.
        """
        if self._judge is None or time.monotonic() < since + UNANSWERED_S:
            return since
        try:
            self.service_moves.read()
            self.dropped = not self._judge.keeps(self._queue)
        except EXPECTED_ERRORS as error:
            log.debug("cannot determine whether queue %r was dropped: %s", self._queue.name, error)
        return time.monotonic()

    def _sweep(self, judge: CatalogJudge, reading: _CatalogRead, moved: MovedServices) -> None:
        """Have owners end or move the conversations concerned, and schedule the next search for those in transit."""
        is_here = partial(judge.has, self._queue)
        self.dropped = reading.dropped
        leading = self._leading()
        try:
            gone = [owner for owner in leading if owner.staging.dropping.find(is_here, judge.has_contract)]
        except EXPECTED_ERRORS as error:
            log.debug("queue %r: cannot determine which objects were dropped: %s", self._queue.name, error)
            return
        self.service_moves.update(moved, {owner: reading.arrivals.get(owner, {}) for owner in leading})
        if not (gone or self.service_moves.places) or self._at > self._until:
            self._at = time.monotonic() + LATER_S if self.service_moves.places else math.inf

    def _leading(self) -> list[Owner]:
        return [owner for owner in self._owners.values() if owner.phase is Phase.LEADING]

    def check_enabled(self) -> None:
        """Raise QueueDisabled (9617) while the queue's STATUS is OFF, as far as this process knows (77, 78)."""
        if self._judge is not None and not self._judge.receives(self._queue):
            raise QueueDisabled(
                f"queue {self._queue.name!r} delivers no messages because its STATUS is OFF; turn it on with "
                f"broker.admin.alter_queue({self._queue.name!r}, status=True)"
            )

    def check_service(self, name: str) -> None:
        """Raise ServiceNotFound when the service was dropped."""
        if self._judge is not None:
            self._judge.check_service(name)
