"""The last log line of a reader closed while Kafka did not answer: partitions whose last commit is uncertain."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from konverse.dialog.owner.events import Halted, Stopped
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import Queue

log: Final = logging.getLogger("konverse.owner")


def log_unreleased(queue: Queue, stopped: Iterable[tuple[int, Owner, Stopped | Halted]]) -> None:
    """Log the partitions whose last commit has an unknown outcome, except those that another process has claimed."""
    numbers = sorted({number for number, _, effect in stopped if isinstance(effect, Stopped) and not effect.fenced})
    if numbers:
        log.warning(
            "the reader of queue %r was closed before Kafka confirmed the last commit of partition%s %s: either the "
            "last finished transactions are committed, or the next reader receives their messages again. That reader "
            "takes over without waiting for this one",
            queue.name,
            "s" * (len(numbers) > 1),
            ", ".join(map(str, numbers)),
        )
