"""Handlers that move conversations between groups and work on several groups (protocol.md section 7.2).

Two handlers never have the same conversation. One commit consumes all messages that a transaction received.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner.owner import Owner
from konverse.dialog.queries.searching import GroupRequest, Journaled, ReadBehind, ReadState, lock_found, search_for
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import Transaction, more_of
from konverse.schemas.errors import GroupLocked, InvalidGroup, InvalidState, MoveRefused, QueueFull
from konverse.schemas.identifiers import Address

from . import poison
from .kafka import Slice
from .places import Place, columns, fold_up_to

if TYPE_CHECKING:
    from .handlers import Work
    from .owning import OwnerProcess
    from .world import World

ELSEWHERE: Final = 600
"""Rate of moving to a group in another partition, when there is one."""


def takes(process: OwnerProcess, work: Work, transaction: Transaction) -> None:
    """Check that a handler gets a group which no other handler has."""
    assert process.owner is not None
    poison.takes(process.place, process.owner, transaction)
    if process.owner.congested:
        process.place.fail(f"I15: {process.place.name}: {transaction.dialog} is handed out, and the outbox is full")
    work.anchors += [transaction.dialog, *transaction.locked]
    if can_leave(process.owner, transaction.dialog):
        process.place.fail(f"I7: {process.place.name}: {transaction.dialog} is handed out, and its group is elsewhere")
    process.world.sometimes.happened("group of several", len(transaction.members) > 1)
    _is_alone(process, work)


def _is_alone(process: OwnerProcess, work: Work) -> None:
    assert process.owner is not None
    table = process.owner.fold.state.table
    mine = _held(work, table)
    for other in (*process.works, *process._finished):
        if other is not work and not mine.isdisjoint(_held(other, table)):
            process.place.fail(f"locks: {process.place.name}: two transactions have a conversation")


def _held(work: Work, table: list[Endpoint | None]) -> set[int]:
    return {one.index for anchor in work.anchors for one in (anchor, *anchor.members) if table[one.index] is one}


def take_another(work: Work) -> Transaction | None:
    """GET CONVERSATION GROUP for a further group."""
    part = work.transaction.next_group()
    work.world.sometimes.happened("further group", part is not None)
    if part is not None:
        takes(work.process, work, part)
    return part


def move_some(work: Work) -> Iterator[None]:
    """Move a conversation to its original group, to another conversation's, or to a new one.

    Other processes act while the logs of other partitions are read.
    """
    world, transaction, owner = work.world, work.at, work.process.owner
    assert owner is not None
    choices, state = world.choices, owner.fold.state
    dialogs: list[Endpoint | NewDialog] = [*transaction.conversations, *transaction.begins]
    dialogs = [one for one in dialogs if one not in work.ended and not transaction._ends(one)]
    if not dialogs:
        return
    dialog, others = choices.pick(dialogs), [*state.live(), *dialogs]
    group = choices.pick(others).group_id if choices.choose(5) else world.identifier(b"group")
    if choices.chance(150) and isinstance(dialog, Endpoint):
        group = dialog.conversation
    if owner.trial.careful and choices.choose(2):  # to a group that may be to blame
        group = choices.pick([one for one in state.live() if one.waits] or others).group_id
    if choices.chance(ELSEWHERE):
        group = _some_elsewhere(world, work.process.place) or group
    place, known, untried = work.process.place, list[Endpoint](), False
    try:
        transaction._check_move(dialog, UUID(bytes=group))
        if group == dialog.group_id:
            more_of(transaction).stay(dialog)
            return
        ours, wanted = {place.address.partition: state}, GroupRequest(transaction, dialog, group)
        search = search_for(owner.staging, ours, _addresses(world, place), wanted)
        while search is not None and search.question is not None:
            search.answer(_answer(world, place, search.question))
            yield
        known = [*state.members(group)]
        untried = _is_untried(place, owner, known)
        transaction._stage_move_to(dialog, group, lock_found(owner.staging, ours, search, wanted))
        world.sometimes.happened("moved to a group on its way", search is not None and _is_nowhere(world, work, group))
    except InvalidGroup:
        world.sometimes.happened("group to move to is none")
    except MoveRefused:
        world.sometimes.happened("group to move to is suspended")
    except GroupLocked:
        world.sometimes.happened("group locked")
        if choices.choose(3):
            raise
    except (InvalidState, QueueFull):
        world.sometimes.happened("move to another partition refused")
    else:
        if untried:
            place.fail(f"attempts: {place.name}: {dialog} moves to {known}, which waits to be tried")
        work.anchors += known
        _is_alone(work.process, work)
        world.sometimes.happened("moved what was begun", isinstance(dialog, NewDialog))


def _is_untried(place: Place, owner: Owner, members: list[Endpoint]) -> bool:
    """Whether the owner is careful and the group waits to be tried. A move into it would end the suspicion."""
    if not members or members[0].held or not any(member.waits for member in members):
        return False
    return place.follow(owner.fold.head.offset) and place.shadow.state.attempts.careful


def _beside(world: World, place: Place) -> Iterator[Partition]:
    """States of the queue's other partitions, as their owners have them."""
    for process in world.owners:
        there = process.place
        if there is not place and there.address.topic == place.address.topic and process.leading:
            assert process.owner is not None
            yield process.owner.fold.state


def _some_elsewhere(world: World, place: Place) -> bytes | None:
    """A group in another partition of the queue."""
    groups = [one.group_id for state in _beside(world, place) for one in state.live()]
    return world.choices.pick(groups) if groups else None


def _addresses(world: World, place: Place) -> dict[int, Address]:
    """Addresses of the queue's partitions, by number."""
    return {
        there.address.partition: there.address for there in world.places if there.address.topic == place.address.topic
    }


def _answer(world: World, place: Place, question: ReadState | ReadBehind) -> Journaled | list[RecordColumns]:
    """The state or records in the logs of a partition, independent of its owner."""
    there = world.place_of(_addresses(world, place)[question.partition])
    if isinstance(question, ReadBehind):
        end = there.data.stable
        return [columns(Slice(there.data.between(question.start, end), end), question.start)]
    fold = Fold(there.identity)
    fold_up_to(there, fold, 0, there.journal.end)
    return Journaled(fold.state, fold.head.offset)


def _is_nowhere(world: World, work: Work, group: bytes) -> bool:
    """Whether the group has left one partition and has not arrived in the next."""
    states = [work.process.owner.fold.state] if work.process.owner is not None else []
    return not any(state.members(group) for state in (*states, *_beside(world, work.process.place)))


def can_leave(owner: Owner, one: Endpoint) -> bool:
    """Whether the endpoint's group has moved to another partition, and nothing keeps the endpoint here."""
    moves, moving = owner.fold.state.moves, owner.staging.moving
    return one.group_id in moves.leaving and not one.suspended and bool(moving._packed(one.members))


def look_again(owner: Owner) -> None:
    """Advance time for groups that wait to leave."""
    owner.staging.leaving.tick(owner.staging.leaving._look_at_ms)


def check_left(world: World) -> Iterator[str]:
    """Check that every conversation is in the partition of its group, unless it cannot move."""
    for process in world.owners:
        owner = process.owner
        if owner is None or not process.leading:
            continue
        for one in owner.fold.state.live():
            if can_leave(owner, one):
                yield f"L1: {process.place.name}: {one} has not gone to its group"


def come_again(owner: Owner) -> list[Endpoint]:
    """Conversations whose transactions have stepped back."""
    return [one for _, dialog in owner.trial._stepped_back for one in dialog.members]


def check_groups(place: Place, state: Partition, reference: SecondFold) -> Iterator[str]:
    """Check that both folds have the same groups."""
    ours = {
        (int(one.role), one.conversation): (one.group_id, {(int(m.role), m.conversation) for m in one.members})
        for one in state.live()
    }
    theirs = {key: (side.group, {mate.key for mate in reference.mates(side)}) for key, side in reference.living.items()}
    if ours != theirs:
        yield f"I3: {place.name}: groups are {ours}, the reference says {theirs}"


def check_commits(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that one commit consumes everything that a transaction received, in all of its groups."""
    for place in world.places:
        consumed: dict[tuple[int, bytes, int], set[int]] = {}
        for side in references[place.address].sides:
            for number, heard in side.consumed:
                consumed.setdefault((*side.key, heard.offset), set()).add(number)
        for number, (_, owner) in place.judge.commits.items():
            for work in world.history.committed.get((place.name, owner, number), ()):
                for taken in work.taken:
                    numbers = consumed.get((taken.role, taken.conversation, taken.offset), {number})
                    if taken.sequence >= 0 and number not in numbers:
                        yield f"I7: {place.name}: what commit {number} has received is consumed by {numbers}"
