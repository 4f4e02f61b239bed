"""What goes on and on is said once, and then now and again."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Hashable
from typing import Final

AGAIN_S: Final = 30.0
SUBJECTS_MAX: Final = 10_000


class Seldom:
    """Says when to speak of a subject: at once, and then every `AGAIN_S` for as long as it lasts."""

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        """Subject -> when it may be spoken of again."""
        self._count: dict[Hashable, int] = {}

    def due(self, subject: Hashable = None) -> int:
        """How often this was asked since the subject began, when it is time to speak of it; 0 when it is not."""
        now = time.monotonic()
        if subject not in self._at and len(self._at) >= SUBJECTS_MAX:
            self.over(next(iter(self._at)))
        count = self._count[subject] = self._count.get(subject, 0) + 1
        if now < self._at.get(subject, now):
            return 0
        self._at[subject] = now + AGAIN_S
        return count

    def over(self, subject: Hashable = None) -> bool:
        """The subject has ended; True when it was spoken of."""
        self._count.pop(subject, None)
        return self._at.pop(subject, None) is not None


class Repeated(logging.Filter):
    """Lets one of many lines through that differ in numbers alone: clients without a broker write twenty a second."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is said."""
        return self._seldom.due(re.sub(r"\d+", "#", record.getMessage())) > 0
