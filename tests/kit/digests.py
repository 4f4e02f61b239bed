"""A hash of a partition's whole state."""

from __future__ import annotations

import hashlib

from konverse.dialog.fold.snapshot import Freeze
from konverse.dialog.state.partition import Partition


def digest(state: Partition) -> bytes:
    """SHA-256 of the whole state: two folds of one prefix have the same (invariant I3)."""
    out = hashlib.sha256()
    for piece in Freeze(state).pieces():
        out.update(piece)
    return out.digest()
