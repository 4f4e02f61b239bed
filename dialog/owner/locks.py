"""MOVE CONVERSATION to another conversation group: both groups are locked until the commit (behaviours 88 to 90).

Locks are in the owner's memory, and no transaction waits for one. A transaction that needs a group of another
transaction steps back: it releases all of its groups and comes again after a pause. So of transactions that need each
other's groups at least one makes progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.transaction.begun import Begun
from konverse.dialog.transaction.transaction import _begun_in, family, more_of
from konverse.schemas.errors import GroupLocked, InvalidGroup, MoveRefused
from konverse.schemas.groups import own_group

if TYPE_CHECKING:
    from konverse.dialog.transaction.received import Found
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.schemas.identifiers import Address

    from .staging import Staging


def is_here(staging: Staging, transaction: Transaction, dialog: Endpoint | Begun, group: bytes) -> bool:
    """Whether the group lives in this partition, or begins here."""
    if isinstance(dialog, Begun) and _is_own(dialog, group):  # the own group of a new conversation exists nowhere else
        return True
    return bool(staging.state.members(group) or _begun_in(transaction, group))


def _is_own(dialog: Endpoint | Begun, group: bytes) -> bool:
    return group == own_group(dialog.role, dialog.conversation)


def lock(
    staging: Staging, transaction: Transaction, dialog: Endpoint | Begun, group: bytes, found: Found | None
) -> Address | None:
    """Lock the group to which `dialog` moves. Returns the address of a group elsewhere, which cannot be locked.

    `found` tells where the group was found, if the caller has searched. Raises InvalidGroup, MoveRefused, GroupLocked;
    for a group elsewhere also what `Moving.check_bounds` raises.
    """
    name = f"conversation group {UUID(bytes=group)}"
    service = dialog.terms.service
    mates = family(transaction)
    members = staging.state.members(group)
    there: list[Endpoint | Begun] = [*members, *_begun_in(transaction, group)]
    services = {one.terms.service for one in there}
    here = is_here(staging, transaction, dialog, group)
    if not here and found is not None:
        services.add(found.service)
    if services - {service}:
        raise InvalidGroup(f"{name} belongs to another service than {service!r}, which conversation {dialog.id} is of")
    if not here and not _founds(staging, dialog, group, found):
        return _away(staging, dialog, name, found)
    if not members:
        return None
    if any(member.suspended for member in members):
        raise MoveRefused(f"{name} is suspended: resume it, skip its first message, or end it")
    if _has(mates, members[0]):
        return None
    untried = staging.ready is not staging.state.ready and any(member.waits for member in members)
    if members[0].held or untried:  # after a crash each group has its turn first
        raise GroupLocked(
            f"another transaction has {name}, or has had it and is not committed yet; what was received comes again "
            "after a moment"
        )
    for member in members:
        member.held = True
    more_of(transaction).targets[group] = members.copy()
    return None


def _founds(staging: Staging, dialog: Endpoint | Begun, group: bytes, found: Found | None) -> bool:
    """Whether the dialog may found the group here: it is its own and lives nowhere, or it is on its way here."""
    return _is_own(dialog, group) if found is None else found.address == staging.state.address


def _away(staging: Staging, dialog: Endpoint | Begun, name: str, found: Found | None) -> Address:
    """The address of a group in another partition, when the conversation can go there."""
    if found is None:
        raise InvalidGroup(
            f"{name} is none of this queue, as far as the journals of its partitions say: a conversation moves to a "
            "group in which there is another one already. One that was begun just now is there after its commit"
        )
    if isinstance(dialog, Endpoint):
        staging.moving.check_bounds(dialog)
    return found.address


def _has(mates: list[Transaction], member: Endpoint) -> bool:
    """Whether these transactions have locked the group of the endpoint."""
    anchors = [mate.dialog for mate in mates]
    anchors += [one for mate in mates if mate.more is not None for many in mate.more.targets.values() for one in many]
    group = member.group
    return any(one is member or (group is not None and one.group is group) for one in anchors)


def is_in_the_way(staging: Staging, transaction: Transaction) -> bool:
    """Whether another transaction may have a group to which this one moves a conversation.

    The group was empty when the move was staged, or became empty, and other conversations have joined it since (M171).
    """
    mates = family(transaction)
    groups = [staging.state.members(move.group)[:1] for move in transaction.moves]
    return any(not _has(mates, member) for members in groups for member in members)


def note_held(staging: Staging, transaction: Transaction) -> None:
    """Before the COMMIT, note which groups to unlock after it. Their members may change until then."""
    mates, members = family(transaction), staging.state.members
    groups = [one.group_id for mate in mates for one in (mate.dialog, *mate.locked)]
    for mate in mates:
        groups += [move.group for move in mate.moves]
        groups += mate.more.targets if mate.more is not None else ()
    more_of(transaction).held = [
        group for group in dict.fromkeys(groups) if all(_has(mates, one) for one in members(group)[:1])
    ]


def let_go(staging: Staging, transaction: Transaction) -> None:
    """After the COMMIT, unlock the groups that were noted."""
    for group in more_of(transaction).held:
        for member in staging.state.members(group)[:1]:
            staging.free(member)


def take_apart(staging: Staging, transaction: Transaction) -> list[Transaction]:
    """Drop the moves of a transaction and unlock their targets. Returns its groups one by one, still locked."""
    mates = family(transaction)
    for mate in mates:
        for members in mate.more.targets.values() if mate.more is not None else ():
            for member in members:
                if member.held:  # else it was unlocked with another member of its group
                    staging.free(member)
        mate.more = None
    return mates
