"""How a run fails."""

from __future__ import annotations


class SimulationFailure(Exception):
    """An invariant of protocol.md section 10 does not hold; the text begins with its number."""
