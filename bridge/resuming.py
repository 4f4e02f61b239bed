"""An operator resumes at once all that is suspended, in a queue or in a database: what was wrong is mended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from konverse.schemas.catalog import Queue
from konverse.schemas.errors import InvalidSettings, OutcomeUnknown
from konverse.schemas.instruction import Action, Instruction
from konverse.schemas.records import Role

from .arguments import Seconds, checked
from .awaiting import late_sweep, until_none
from .following import Following
from .instructing import (
    OBEYED_S,
    SWEEP_CONVERSATIONS,
    Instructing,
    Suspended,
    shown,
    suspended_sides,
)
from .kafka_time import kafka_time_ms
from .operating import first_of, waits


class Parked(NamedTuple):
    """A conversation group that is suspended: its conversations are resumed as one."""

    following: Following
    queue: str
    shown: list[Suspended]
    firsts: dict[tuple[Role, bytes], int]
    """Of each suspended side the number of what waits first on it."""

    def instruction(self, database: str) -> Instruction:
        """For one of them: what is told of another one would be kept, and might be followed when it fails again."""
        (_, conversation), first = next(iter(self.firsts.items()))
        return Instruction(database, self.queue, conversation, first, Action.RESUME)

    def left(self) -> int:
        """So many sides are suspended as they were, by what was read of the journal so far."""
        state = self.following.state
        sides = ((state.endpoint(*side), first) for side, first in self.firsts.items())
        return sum(one is not None and waits(one) and first_of(one) == first for one, first in sides)


class Resuming(Instructing):
    """The part of a broker that resumes everything."""

    @checked
    def resume_all(
        self,
        *,
        reason: str | None = None,
        older_than: Seconds | None = None,
        queue: str | None = None,
        timeout: Seconds = OBEYED_S,
    ) -> list[Suspended]:
        """Have conversations resumed that are suspended now, of a queue or of the database; returns them.

        Those of which the `reason` has this text in it, whatever the case of its letters, and that have been suspended
        for `older_than` seconds by Kafka's time: what has failed for another reason fails again. `older_than=0` takes
        all. As `resume` does with one. What its owner does not hear of holds up nobody else. Raises InvalidSettings
        when neither is given, QueueNotFound, and OutcomeUnknown when some are suspended as before after `timeout`
        seconds: for those it still counts for ten minutes.
        """
        self._check_open()
        if reason is None and older_than is None:
            raise InvalidSettings(
                "resume_all needs to know which ones are meant: `reason`, a text that their last error has in it "
                "(`konverse suspended` shows it), or `older_than`, in seconds; older_than=0 takes all"
            )

        def wanted(one: Suspended) -> bool:
            return (reason or "").casefold() in one.reason.casefold() and one.age_s >= (older_than or 0)

        with ExitStack() as exits:
            found: list[Parked] = []
            for each, partition in self._partitions(queue):
                with ExitStack() as unneeded:
                    following = unneeded.enter_context(Following(self._kafka, each, partition))
                    groups = [*self._parked(following, each, partition, wanted)]
                    if groups:
                        found += groups
                        exits.push(unneeded.pop_all())
            deadline = time.monotonic() + timeout
            for at in range(0, len(found), SWEEP_CONVERSATIONS):
                part = found[at : at + SWEEP_CONVERSATIONS]
                self._tell(*(group.instruction(self.database) for group in part))
                _wait(part, deadline)
        return [one for group in found for one in group.shown]

    def _parked(
        self, following: Following, queue: Queue, partition: int, wanted: Callable[[Suspended], bool]
    ) -> Iterator[Parked]:
        groups: dict[bytes, Parked] = {}
        sides = suspended_sides(following.catch_up())
        now_ms = kafka_time_ms(self._kafka) if sides else 0
        for one in sides:
            told = shown(queue, partition, one, now_ms)
            if wanted(told):
                group = groups.setdefault(one.group_id, Parked(following, queue.name, [], {}))
                group.shown.append(told)
                group.firsts[one.role, one.conversation] = first_of(one)
        yield from groups.values()


def _wait(groups: Iterable[Parked], deadline: float) -> None:
    """Return when the journals say that none of them is suspended any more as it was."""
    left = list(groups)

    def look() -> list[Parked]:
        for following in dict.fromkeys(group.following for group in left):
            following.catch_up()
        left[:] = [group for group in left if group.left()]
        return left

    def late(_: object) -> OutcomeUnknown:
        nobody = all(group.following.head.clean for group in left)
        return late_sweep(sum(group.left() for group in left), unowned=nobody)

    until_none(look, deadline, late)
