"""Locks on conversation groups, and MOVE CONVERSATION to another group: both groups are locked until the commit.

Behaviours 88 to 90. Locks are in the owner's memory, and no transaction waits for one. A transaction that needs a group
of another transaction steps back: it releases all of its groups and is retried after a pause. So at least one of
several transactions that need each other's groups makes progress.

A group also stays locked while it leaves the partition, and while an operator's order about it waits for its COMMIT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.ready import by_level
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.transaction import begun_in, family, more_of
from konverse.schemas.errors import GroupLocked, InvalidGroup, MoveRefused
from konverse.schemas.groups import own_group

from .commands import Orders
from .relocations import LeavingGroups, Relocation

if TYPE_CHECKING:
    from konverse.dialog.transaction.received import GroupPlace
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.schemas.identifiers import Address


class GroupLocks:
    """The locked groups of one partition: `Endpoint.held` is set on each of their members."""

    def __init__(self, state: Partition) -> None:
        self._state = state
        self.moving = Relocation(state, self.free)
        self.leaving = LeavingGroups(state, self.moving)
        self.orders = Orders(state, self.free)

    # ------------------------------------------------------------------------------------------ a transaction's groups

    @staticmethod
    def hold(endpoint: Endpoint) -> list[Endpoint]:
        """Lock the group of an endpoint. Returns the members, highest level first."""
        members = by_level(endpoint.members)
        for member in members:
            member.held = True
        return members

    def free(self, endpoint: Endpoint) -> None:
        """Unlock a group and make it ready, unless an order waits for it or it leaves the partition."""
        if self.orders and self.orders.keeps(endpoint):
            return
        if self._state.moves.leaving and self.leaving.keeps(endpoint):
            return
        table, ready = self._state.table, self._state.ready
        for member in endpoint.members if endpoint.group is not None else (endpoint,):
            member.held = False
            member.ending = None
            if member.waits and table[member.index] is member:
                ready.append(member)  # each: one of them may be ended before the group is taken

    def step_back(self, transaction: Transaction) -> bool:
        """Clear a transaction and unlock its group. False: an order keeps the group; else the caller makes it ready."""
        transaction.clear()
        for member in transaction.dialog.members:
            member.held = False
        return not self.orders.keeps(transaction.dialog)

    def take_apart(self, transaction: Transaction) -> list[Transaction]:
        """Drop the moves of a transaction and unlock their targets. Returns its parts, one per group, still locked."""
        if transaction.more is None:
            return [transaction]
        mates = family(transaction)
        for mate in mates:
            for members in mate.more.targets.values() if mate.more is not None else ():
                for member in members:
                    if member.held:  # else it was unlocked with another member of its group
                        self.free(member)
            mate.more = None
        return mates

    # ----------------------------------------------------------------------------------------------- targets of moves

    def is_here(self, transaction: Transaction, dialog: Endpoint | NewDialog, group: bytes) -> bool:
        """Whether the group lives in this partition, or begins here."""
        # the own group of a new conversation exists nowhere else
        is_new = isinstance(dialog, NewDialog) and _is_own(dialog, group)
        return is_new or bool(self._state.members(group) or begun_in(transaction, group))

    def lock(
        self,
        transaction: Transaction,
        dialog: Endpoint | NewDialog,
        group: bytes,
        found: GroupPlace | None,
        *,
        careful: bool,
    ) -> Address | None:
        """Lock the group to which `dialog` moves. Returns the address of a group elsewhere, which cannot be locked.

        `found` tells where the group was found, if the caller has searched. `careful`: after a crash nothing moves
        to a group whose messages have not been tried. Raises InvalidGroup, MoveRefused, GroupLocked; for a group
        elsewhere also the errors of `Relocation.check_bounds`.
        """
        name = f"conversation group {UUID(bytes=group)}"
        service = dialog.terms.service
        members = self._state.members(group)
        there: list[Endpoint | NewDialog] = [*members, *begun_in(transaction, group)]
        services = {one.terms.service for one in there}
        here = self.is_here(transaction, dialog, group)
        if not here and found is not None:
            services.add(found.service)
        if services - {service}:
            raise InvalidGroup(
                f"{name} belongs to another service than conversation {dialog.id}, which is of service {service!r}"
            )
        if not here and not self._founds(dialog, group, found):
            return self._away(dialog, name, found)
        if not members:
            return None
        if any(member.suspended for member in members):
            raise MoveRefused(f"{name} is suspended: resume it, skip its first message, or end it")
        if _has(family(transaction), members[0]):
            return None
        untried = careful and any(member.waits for member in members)
        if members[0].held or untried:
            raise GroupLocked(
                f"another transaction has locked {name}, or its commit is pending; the received messages are "
                "redelivered after a short pause"
            )
        for member in members:
            member.held = True
        more_of(transaction).targets[group] = members.copy()
        return None

    def _founds(self, dialog: Endpoint | NewDialog, group: bytes, found: GroupPlace | None) -> bool:
        """Whether a dialog may found the group here: its own group if no partition has it, or one on its way here."""
        return _is_own(dialog, group) if found is None else found.address == self._state.address

    def _away(self, dialog: Endpoint | NewDialog, name: str, found: GroupPlace | None) -> Address:
        """The address of a group in another partition, when the conversation can go there."""
        if found is None:
            raise InvalidGroup(
                f"{name} is not on this queue, according to the journals of its partitions: a conversation can move "
                "only to the group of another conversation. One that was begun just now is there after its commit"
            )
        if isinstance(dialog, Endpoint):
            self.moving.check_bounds(dialog)
        return found.address

    # ------------------------------------------------------------------------------------------------------ a COMMIT

    def is_in_the_way(self, transaction: Transaction) -> bool:
        """Whether another transaction may have a group to which this one moves a conversation.

        The group was empty when the move was staged, or became empty, and other conversations have joined it since
        (M171).
        """
        mates = family(transaction)
        groups = [self._state.members(move.group)[:1] for move in transaction.moves]
        return any(not _has(mates, member) for members in groups for member in members)

    def note(self, transaction: Transaction) -> None:
        """Before the COMMIT, note which groups to unlock after it. Their members may change until then."""
        mates, members = family(transaction), self._state.members
        groups = [one.group_id for mate in mates for one in (mate.dialog, *mate.locked)]
        for mate in mates:
            groups += [move.group for move in mate.moves]
            groups += mate.more.targets if mate.more is not None else ()
        more_of(transaction).held = [
            group for group in dict.fromkeys(groups) if all(_has(mates, one) for one in members(group)[:1])
        ]

    def free_noted(self, transaction: Transaction) -> None:
        """After the COMMIT, unlock the groups that were noted."""
        for group in more_of(transaction).held:
            for member in self._state.members(group)[:1]:
                self.free(member)


def _is_own(dialog: Endpoint | NewDialog, group: bytes) -> bool:
    return group == own_group(dialog.role, dialog.conversation)


def _has(mates: list[Transaction], member: Endpoint) -> bool:
    """Whether these transactions have locked the group of the endpoint."""
    anchors = [mate.dialog for mate in mates]
    anchors += [one for mate in mates if mate.more is not None for many in mate.more.targets.values() for one in many]
    group = member.group
    return any(one is member or (group is not None and one.group is group) for one in anchors)
