"""Finds places for the delayed conversations of a link queue, as routes, services and databases change.

Routing may have to ask Kafka, so the pumping thread asks it without the reader's lock, and hands the result to the
owners at its next step (as `catalog_changes` does with the catalog).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from konverse.bridge.catalog.judge import RoutedPlaces
from konverse.bridge.runtime.threads import EXPECTED_ERRORS
from konverse.dialog.owner.events import Phase
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.relocations import RoutedPlace
from konverse.dialog.state.delayed import RouteWanted

log: Final = logging.getLogger("konverse.owner")
AGAIN_S: Final = 2.0
"""Routing is asked again after this time even if the catalog has not changed: a lifetime of a route may be over."""
SOON_S: Final = 0.05
"""Shortest pause between two questions to routing."""


class DelayedRouting:
    """Routes the delayed conversations of one process's owners."""

    def __init__(self, places: RoutedPlaces, owners: Mapping[int, Owner]) -> None:
        self._places = places
        self._owners = owners
        self._seen: object = None
        """Version by which routing was asked last."""
        self._asked: frozenset[RouteWanted] = frozenset()
        """Routes that were wanted then."""
        self._at = 0.0
        self._wanted: frozenset[RouteWanted] | None = None
        """Set while a question waits for `read`."""
        self._found: Mapping[RouteWanted, RoutedPlace] | None = None

    def step(self) -> None:
        """Hand what routing has found to the owners, and ask again when something has changed. Under the lock."""
        found, self._found = self._found, None
        leading = [owner for owner in self._owners.values() if owner.phase is Phase.LEADING]
        if found is not None:
            for owner in leading:
                owner.staging.routing.find(found)
        wanted = frozenset(one for owner in leading for one in owner.fold.state.delayed.wanted)
        now, version = time.monotonic(), self._places.version
        changed = version != self._seen or not wanted <= self._asked
        if wanted and self._wanted is None and now >= self._at + (SOON_S if changed else AGAIN_S):
            self._wanted, self._at, self._seen, self._asked = wanted, now, version, wanted

    def read(self) -> None:
        """Ask routing if `step` has requested it. The pumping thread calls this without the reader's lock."""
        wanted = self._wanted
        if wanted is None:
            return
        try:
            self._found = self._places.find(wanted)
        except EXPECTED_ERRORS as error:
            self._asked = frozenset()
            log.debug("no places can be found for delayed conversations: %s", error)
        finally:
            self._wanted = None
