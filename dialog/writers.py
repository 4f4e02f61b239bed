"""Writers of a partition: how they are closed and forgotten (protocol.md section 5)."""

from __future__ import annotations

from konverse.schemas.operations import Prune

from .partition import Partition


def prune(state: Partition, operation: Prune) -> None:
    """Move the floor; it never falls."""
    state.floor_ms = max(state.floor_ms, operation.floor_ms)
