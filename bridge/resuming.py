"""An operator resumes at once all that is suspended, in a queue or in a database: what was wrong is mended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from konverse.schemas.catalog import Queue
from konverse.schemas.errors import OutcomeUnknown
from konverse.schemas.instruction import Action, Instruction
from konverse.schemas.records import Role

from .arguments import Seconds, checked
from .following import Following
from .instructing import (
    OBEYED_S,
    SWEEP_CONVERSATIONS,
    Instructing,
    Suspended,
    first_of,
    late_sweep,
    shown,
    suspended_sides,
    until_none,
)
from .operating import waits


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
    def resume_all(self, *, queue: str | None = None, timeout: Seconds = OBEYED_S) -> list[Suspended]:
        """Have all conversations that are suspended now resumed, of a queue or of the database; returns them.

        As `resume` does with one. What its owner does not hear of holds up nobody else. Raises QueueNotFound, and
        OutcomeUnknown when some are suspended as before after `timeout` seconds: for those it still counts for ten
        minutes.
        """
        self._check_open()
        with ExitStack() as exits:
            found: list[Parked] = []
            for each, partition in self._partitions(queue):
                with ExitStack() as unneeded:
                    following = unneeded.enter_context(Following(self._kafka, each, partition))
                    groups = [*_parked(following, each, partition)]
                    if groups:
                        found += groups
                        exits.push(unneeded.pop_all())
            deadline = time.monotonic() + timeout
            for at in range(0, len(found), SWEEP_CONVERSATIONS):
                part = found[at : at + SWEEP_CONVERSATIONS]
                self._tell(*(group.instruction(self.database) for group in part))
                _wait(part, deadline)
        return [one for group in found for one in group.shown]


def _parked(following: Following, queue: Queue, partition: int) -> Iterator[Parked]:
    groups: dict[bytes, Parked] = {}
    for one in suspended_sides(following.catch_up()):
        group = groups.setdefault(one.group_id, Parked(following, queue.name, [], {}))
        group.shown.append(shown(queue, partition, one))
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
        return late_sweep(sum(group.left() for group in left), nobody=nobody)

    until_none(look, deadline, late)
