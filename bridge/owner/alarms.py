"""Logs an owner's alarms. They are throttled, because a foreign producer can cause them as fast as it writes."""

from __future__ import annotations

import logging
from typing import Final

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.dialog.fold.journal import UNDECODABLE
from konverse.dialog.owner.owner import Owner
from konverse.schemas.counting import counted

log: Final = logging.getLogger("konverse.owner")


def log_alarms(owner: Owner, journal: str, said: LogThrottle) -> None:
    """Log the pending alarms of an owner. `journal` is the topic name; `said` throttles alarms of one kind."""
    where, feed = owner.fold.head.where, owner.fold.journal
    undecodable = ""
    while feed.alarms:
        text, kind = feed.alarms.popleft()
        if kind == UNDECODABLE:
            undecodable = undecodable or text
            continue
        count = said.due((where, kind)) if kind else 1
        if count:
            log.error("%s%s", text, f". This is alarm {count:,} of its kind for this partition" if count > 1 else "")
    if undecodable and said.due((where, UNDECODABLE)):
        log.error(
            "%s. In this journal, %s so far; %s. Only owners may write to a journal: find out which other principals "
            "may write to topic %s, and revoke that right",
            undecodable,
            counted(feed.undecodable, "record is undecodable", "records are undecodable"),
            "it has no effect" if feed.undecodable == 1 else "they have no effect",
            journal,
        )
