"""The last log line of a reader that was closed while Kafka did not answer: partitions with an unknown outcome."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from konverse.dialog.owner.events import Halted, Stopped
from konverse.dialog.owner.owner import Owner
from konverse.schemas.catalog.objects import Queue

log: Final = logging.getLogger("konverse.owning")


def tell_unreleased(queue: Queue, stopped: Iterable[tuple[int, Owner, Stopped | Halted]]) -> None:
    """Log the partitions whose last commit has an unknown outcome, save those that another process has claimed."""
    numbers = sorted({number for number, _, effect in stopped if isinstance(effect, Stopped) and not effect.fenced})
    if numbers:
        log.warning(
            "queue %r was closed without an answer of Kafka about partition%s %s: what was finished there last is "
            "committed, or is received again by the next reader, which takes over without waiting for this one",
            queue.name,
            "s" * (len(numbers) > 1),
            ", ".join(map(str, numbers)),
        )
