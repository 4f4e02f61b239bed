"""Hands groups out to handlers with `dialog.owner.handing_out`, next or by name, and takes them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.dialog.owner.handing_out import let_others_pass, should_commit, take, take_further
from konverse.dialog.owner.owner import Owner
from konverse.dialog.transaction.transaction import NoHost, Transaction, family, more_of

from . import altering, priorities, regrouping
from .handlers import Work

if TYPE_CHECKING:
    from .owning import OwnerProcess

PLENTY: Final = (1, 4, 1_000)
"""Messages that may wait before no more are fetched; each process picks one."""


class Host:
    """Gives transactions further groups. They end, and move conversations, as their handlers decide."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.lock, self.done = NoHost().lock, NoHost().done

    def further(self, transaction: Transaction, /) -> Transaction | None:
        return take_further(self._owner, transaction)


def hands_out(process: OwnerProcess) -> bool:
    """Whether a handler could get a group. Handlers also ask when this is false."""
    return process.handing_out.ready and len(process.works) < process.world.swarm.handlers


def fetches(process: OwnerProcess) -> bool:
    """Whether the data log has more records, and the process wants them."""
    return process.position < process.place.data.stable and process.handing_out.scarce(process.plenty)


def commits(process: OwnerProcess) -> bool:
    """Whether something waits for a commit."""
    owner = process.owner
    assert owner is not None
    return should_commit(owner, acknowledgements=False) or (owner.trial.due and not owner.committing)


def hand_out(process: OwnerProcess) -> None:
    """A handler asks for a group."""
    owner = process.owner
    assert owner is not None
    transaction = _wanted(process, owner) or priorities.take(process, owner)
    if transaction is not None:
        if owner.staging.full:
            process.place.fail(f"I15: {process.place.name}: a group is handed out, and the next commit is full")
        altering.takes(process.place, owner, transaction)
        process.works.append(Work(process, transaction))
        regrouping.takes(process, process.works[-1], transaction)


def _wanted(process: OwnerProcess, owner: Owner) -> Transaction | None:
    """A handler asks for a conversation or its group. If it is not available, others may pass."""
    world, live = process.world, owner.fold.state.live()
    choices, happened = world.choices, world.sometimes.happened
    if not live or not choices.chance(world.swarm.wanting):
        return None
    wanted = take(owner, process.commit, choices.pick(live), whole=choices.chance(500))
    happened("received by name", wanted is not None)
    if wanted is None and choices.choose(2):
        passed = let_others_pass(owner)
        happened("others passed", passed is not None)
        if passed is not None:
            world.poisons.came_back(process.place, passed.members)
    return wanted


def ended(process: OwnerProcess, owner: Owner, work: Work, *, commits: bool = True) -> None:
    """A handler has finished or failed."""
    resting = process.handing_out.resting
    before = len(resting._heap)
    process.handing_out.ended(owner, work.transaction, commits=commits, error="", now_ms=process.now_ms)
    process.world.sometimes.happened("left as it was", len(resting._heap) > before)


def came_back(process: OwnerProcess, owner: Owner, work: Work, *, steps_back: bool) -> None:
    """A handler has failed or stepped back. A failure counts for each of its groups, stepping back for none."""
    world = process.world
    world.sometimes.happened("stepped back" if steps_back else "rolled back")
    if not steps_back:
        world.poisons.raised(process.place, work)
    elif work.transaction.more is not None:
        more_of(work.transaction).steps_back = True
    before, groups = len(owner.trial._failed), len(family(work.transaction))
    ended(process, owner, work, commits=False)
    counted = len(owner.trial._failed) - before
    if counted != (0 if steps_back else groups):
        process.place.fail(f"attempts: {process.place.name}: of {groups} groups that came back {counted} are counted")
