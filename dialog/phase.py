"""Where an owner of a partition stands; `dialog.owner` has the picture."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    """Where an owner stands."""

    FOLLOWING = "following"
    RECOVERING = "recovering"
    CLAIMING = "claiming"
    READING_BACK = "reading back"
    LEADING = "leading"
    STOPPED = "stopped"
    HALTED = "halted"


LEADING: Final = Phase.LEADING
"""For what is asked of every transaction: looking the member up takes longer than comparing it."""
