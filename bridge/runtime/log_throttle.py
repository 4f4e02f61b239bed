"""Throttles a repeated log message: logged at once, then at most every 30 s."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Hashable
from typing import Final

AGAIN_S: Final = 30.0
SUBJECTS_MAX: Final = 10_000


class LogThrottle:
    """Decides when to log about a subject: at once, then every `AGAIN_S` for as long as the condition lasts."""

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        """Subject -> time from which it may be logged again."""
        self._count: dict[Hashable, int] = {}

    def due(self, subject: Hashable = None) -> int:
        """Number of calls since the condition began, if it should be logged now; 0 if not."""
        now = time.monotonic()
        if subject not in self._at and len(self._at) >= SUBJECTS_MAX:
            self.over(next(iter(self._at)))
        count = self._count[subject] = self._count.get(subject, 0) + 1
        if now < self._at.get(subject, now):
            return 0
        self._at[subject] = now + AGAIN_S
        return count

    def over(self, subject: Hashable = None) -> bool:
        """Forget a subject whose condition has ended. True when it was logged at least once."""
        self._count.pop(subject, None)
        return self._at.pop(subject, None) is not None


class RepeatedLines(logging.Filter):
    """Throttles lines that differ only in numbers: Kafka clients without a broker log twenty of them a second."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        return self._throttle.due(re.sub(r"\d+", "#", record.getMessage())) > 0
