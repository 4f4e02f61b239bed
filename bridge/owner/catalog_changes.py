"""What an administrator has changed, and what the owners of a reader do about it: dropped and altered services, STATUS.

The catalog is read while nobody holds the reader's lock, as Kafka may take its time; handlers go on meanwhile. What had
come from elsewhere before it was read is noted first: only of that the catalog tells all (`dialog.owner.relocations`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from konverse.bridge.catalog.homes import LATER_S, Altered, Elsewhere
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.runtime.threads import FORESEEN
from konverse.dialog.owner.events import Phase
from konverse.dialog.owner.owner import Owner
from konverse.dialog.state.relocations import Arrival
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import QueueDisabled

log: Final = logging.getLogger("konverse.owning")

SWEEP_EVERY_S: Final = 2.0
SWEEP_FOR_S: Final = 60.0
"""For so long after a change of the catalog, or a take-over, conversations of what was dropped are looked for."""

UNANSWERED_S: Final = 1.0
"""A record that has had no answer for so long may have met a queue that was dropped."""


class _Reading(NamedTuple):
    """The catalog is read, or was."""

    arrivals: dict[Owner, dict[int, Arrival]]
    """Who had come from elsewhere before."""
    elsewhere: Elsewhere | None = None
    dropped: bool = False


class Sweeping:
    """The catalog, as the owners of one reader see it."""

    def __init__(self, rules: Rules, queue: Queue, owners: Mapping[int, Owner]) -> None:
        """Reads the catalog. Raises Unavailable."""
        self._judge = rules.judge
        self._queue = queue
        self._owners = owners
        self.altered = Altered(rules, queue)
        self.dropped = False
        """The queue is not in the catalog any more."""
        self._at = math.inf
        """When it is looked next what was dropped."""
        self._until = 0.0
        """Before that it is looked again and again, for what comes late."""
        self._wanted: _Reading | None = None
        self._read: _Reading | None = None

    def soon(self) -> None:
        """The catalog has changed, or a partition is ours: look now, and for a while."""
        self._at = time.monotonic()
        self._until = self._at + SWEEP_FOR_S

    def step(self) -> None:
        """Under the reader's lock: what was predicted of messages is judged anew when the catalog has changed."""
        if self._judge is None:
            return
        if self._judge.changed():
            self.soon()
            for owner in self._leading():
                owner.fold.state.judged_by(self._judge)
        if self._wanted is None and time.monotonic() >= self._at:
            self._at = time.monotonic() + SWEEP_EVERY_S
            self._wanted = _Reading({owner: {**owner.fold.state.moves.arrivals} for owner in self._leading()})
        reading, self._read = self._read, None
        if reading is not None and reading.elsewhere is not None:
            self._sweep(self._judge, reading, reading.elsewhere)

    def read(self) -> None:
        """By the thread that pumps, without the lock: read the catalog when that is wanted."""
        wanted, judge = self._wanted, self._judge
        if wanted is None or judge is None:
            return
        try:
            elsewhere = self.altered.read()
            self._read = _Reading(wanted.arrivals, elsewhere, dropped=not judge.keeps(self._queue))
        except FORESEEN as error:
            log.debug("what was dropped cannot be known now: %s", error)
        finally:
            self._wanted = None

    def look_for_drop(self, since: float) -> float:
        """Read the catalog when a record to the queue's topics has had no answer for long; since when that is waited.

        For whoever has the reader's lock and can do nothing else.
        """
        if self._judge is None or time.monotonic() < since + UNANSWERED_S:
            return since
        try:
            self.altered.read()
            self.dropped = not self._judge.keeps(self._queue)
        except FORESEEN as error:
            log.debug("whether the queue was dropped cannot be known now: %s", error)
        return time.monotonic()

    def _sweep(self, judge: CatalogJudge, reading: _Reading, elsewhere: Elsewhere) -> None:
        """Look what was dropped; again after a while, as conversations of it may be on their way still."""
        is_here = partial(judge.has, self._queue)
        self.dropped = reading.dropped
        leading = self._leading()
        try:
            gone = [owner for owner in leading if owner.staging.dropping.look(is_here, judge.has_contract)]
        except FORESEEN as error:
            log.debug("what was dropped cannot be known now: %s", error)
            return
        self.altered.see(elsewhere, {owner: reading.arrivals.get(owner, {}) for owner in leading})
        if not (gone or self.altered.places) or self._at > self._until:
            self._at = time.monotonic() + LATER_S if self.altered.places else math.inf

    def _leading(self) -> list[Owner]:
        return [owner for owner in self._owners.values() if owner.phase is Phase.LEADING]

    def check_enabled(self) -> None:
        """Raise QueueDisabled (9617) while the STATUS of the queue is OFF, as far as is known here (77, 78)."""
        if self._judge is not None and not self._judge.receives(self._queue):
            raise QueueDisabled(
                f"nobody receives from queue {self._queue.name!r}, whose STATUS is OFF; what is in it comes after "
                f"broker.alter_queue({self._queue.name!r}, status=True)"
            )

    def check_service(self, name: str) -> None:
        """Raise ServiceNotFound when a service of conversations that lived here was dropped."""
        if self._judge is not None:
            self._judge.check_service(name)
