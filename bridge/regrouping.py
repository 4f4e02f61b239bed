"""What a handler's transaction asks of its partition while it runs: to lock another group, to have a further one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from konverse.dialog.begun import Begun
from konverse.dialog.endpoint import Endpoint
from konverse.dialog.handing_out import take_further
from konverse.dialog.owner import Owner
from konverse.dialog.regrouping import is_here, lock
from konverse.dialog.transaction import Transaction
from konverse.schemas.identifiers import Address

from .owning import Owning


class Regrouping:
    """The part of a reader that owners ask while a `with` block runs."""

    _owning: Owning
    _lock: threading.RLock
    _done: Callable[[Owner, Transaction, bool], None]
    _tell_ends: Callable[[Transaction], None]

    def _attach(self, owner: Owner) -> None:
        """Be who is asked."""
        scope = owner.staging.scope
        scope.done = partial(self._done, owner)
        scope.lock = partial(self._lock_group, owner)
        scope.further = partial(self._further, owner)

    def _lock_group(
        self, owner: Owner, transaction: Transaction, dialog: Endpoint | Begun, group: bytes
    ) -> Address | None:
        """Nobody else waits while the journals of other partitions are read."""
        staging, groups = owner.staging, self._owning.groups
        with self._lock:
            found = groups.find_here(group)
            if found is not None or is_here(staging, transaction, dialog, group):
                return lock(staging, transaction, dialog, group, found)
            here = groups.look_here(group)
        found = groups.find_away(here)
        with self._lock:  # it may have arrived meanwhile
            return lock(staging, transaction, dialog, group, groups.find_here(group) or found)

    def _further(self, owner: Owner, transaction: Transaction) -> Transaction | None:
        with self._lock:
            self._owning.sweeping.check_enabled()
            part = take_further(owner, transaction)
            if part is not None:
                self._tell_ends(part)
            return part
