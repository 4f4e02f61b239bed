"""MOVE CONVERSATION: from one conversation group to another, both of them locked until the commit.

Behaviours 88 to 90. Locks are in the owner's memory. Nobody waits for one: who needs a group that another transaction
has steps back, lets go of what it holds, and comes again. So of those who are in each other's way the last one goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from konverse.schemas.errors import (
    BadInput,
    GroupLocked,
    InvalidGroup,
    MoveRefused,
    PartitionHalted,
    TransactionTooLarge,
)
from konverse.schemas.groups import own_group
from konverse.schemas.limits import TOPIC_NAME_LENGTH_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.operations import Move, MoveAway

from .begun import Begun
from .endpoint import Endpoint
from .states import OVER
from .taken import Taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from konverse.schemas.identifiers import Address

    from .partition import Partition
    from .received import Found
    from .staging import Staging
    from .transaction import Transaction

_NONE: Final[list[Any]] = []

SPEAKERS: Final = (Endpoint, Begun)
"""What can be sent on."""

NO_DIALOG: Final = cast("Endpoint", object())
"""What nobody can send on, also when somebody sends on None."""

_MOVE_BYTES: Final = 24
"""What a move takes in a commit: endpoint and group."""


_MOVE_AWAY_BYTES: Final = _MOVE_BYTES + 3 + TOPIC_NAME_LENGTH_MAX + 8
"""And one to a group that lives elsewhere: its address besides."""


class More:
    """What few transactions have: moves to other groups, and further groups (`dialog.second_groups`)."""

    __slots__ = ("first", "held", "moves", "parts", "steps_back", "targets")

    def __init__(self, first: Transaction) -> None:
        self.first = first
        """The transaction that all of them belong to."""
        self.parts: list[Transaction] = _NONE
        """Of the first one: its further groups."""
        self.moves: list[Move | MoveAway] = _NONE
        self.targets: dict[bytes, list[Endpoint]] = {}
        """Groups that it has locked to move something there, and who was in them."""
        self.held: list[bytes] = _NONE
        """Of the first one, before its commit: all groups that they have locked, or move something to."""
        self.steps_back = False
        """It rolls back because somebody else has a group."""

    @property
    def does_something(self) -> bool:
        """Beside what its transaction does itself."""
        return bool(self.moves) or any(not part.idle for part in self.parts)

    def end(self, kind: type[BaseException] | None, done: Callable[[Transaction, bool], None] | None) -> None:
        """The `with` block of the first one ends. Nothing can be done with its further groups any more."""
        for part in self.parts:
            part.shut()
        self.steps_back = kind is not None and issubclass(kind, GroupLocked)
        fits = sum(one.size_bytes for one in (self.first, *self.parts)) <= TRANSACTION_BYTES_MAX
        if done is not None:
            done(self.first, kind is None and fits)
        if kind is None and not fits:
            raise TransactionTooLarge(
                f"the groups of the transaction send more than {TRANSACTION_BYTES_MAX} bytes, which is what fits into "
                "one commit: all of them were rolled back. Work on fewer groups at a time, or send smaller messages"
            )

    def stay(self, dialog: Endpoint | Begun) -> None:
        """It was ended, and moves nowhere."""
        self.moves = [move for move in self.moves if move.endpoint != dialog.index]


class Regrouped(Taken):
    """A transaction that may move conversations to other groups, and work on further ones."""

    __slots__ = ("_dialog", "endings", "more")

    _dialog: Endpoint | Begun
    begins: list[Begun]
    size_bytes: int
    endings: int
    more: More | None
    """None for nearly all."""

    def _stage_move(self: Transaction, dialog: Endpoint | Begun, group: UUID) -> None:  # type: ignore[misc]
        if self._shut or dialog.__class__ not in SPEAKERS:
            self._refuse_use(dialog)
        if dialog is not self.dialog:
            self._check_member(dialog)
        if not isinstance(group, UUID):
            raise BadInput(
                f"a conversation moves to a group that is named by its id, a UUID, not by {group!r}; of the bytes of a "
                "`group_id`, uuid.UUID(bytes=…) makes one"
            )
        if dialog.committed in OVER or self._ends(dialog):
            raise MoveRefused(f"cannot move conversation {dialog.id}: this side has ended it")
        more, to = more_of(self), None
        if group.bytes != dialog.group_id:
            to = self._scope.lock(self, dialog, group.bytes)
            for one in family(self):
                one.endings = -1  # whether it still may is looked at in any case
        more.moves = [move for move in more.moves if move.endpoint != dialog.index]
        if group.bytes != dialog.group_id:
            here = Move(dialog.index, group.bytes)
            self.size_bytes += _MOVE_BYTES if to is None else _MOVE_AWAY_BYTES
            more.moves.append(here if to is None else MoveAway(*here, to))

    def shut(self) -> None:
        """Nothing more can be done with it."""
        self._received = self.received
        self._shut, self._dialog = True, NO_DIALOG

    def speaks_anew(self) -> None:
        """The next send is looked at, whatever the last one was like."""
        self._dialog = NO_DIALOG

    def join(self, first: Transaction) -> None:
        """Be one of the further groups of another transaction."""
        self._shut = self.fresh = False
        self.more = More(first)
        self.endings = first.endings

    @property
    def moves(self) -> list[Move | MoveAway]:
        """Conversations that go to other groups."""
        return _NONE if self.more is None else self.more.moves

    def group_of(self, dialog: Endpoint | Begun) -> bytes:
        """The group in which it is when the transaction has committed."""
        moved = [move.group for move in self.moves if move.endpoint == dialog.index]
        return moved[0] if moved else dialog.group_id


def more_of(transaction: Transaction) -> More:
    """Made when it is needed."""
    if transaction.more is None:
        transaction.more = More(transaction)
    return transaction.more


def family(transaction: Transaction) -> list[Transaction]:
    """A transaction and its further groups, whichever of them is asked."""
    if transaction.more is None:
        return [transaction]
    first = transaction.more.first
    return [first, *more_of(first).parts]


def _begun_in(transaction: Transaction, group: bytes) -> list[Begun]:
    return [one for mate in family(transaction) for one in mate.begins if mate.group_of(one) == group]


def is_here(staging: Staging, transaction: Transaction, dialog: Endpoint | Begun, group: bytes) -> bool:
    """Whether a group lives in this partition, or begins here."""
    if isinstance(dialog, Begun) and _is_own(dialog, group):  # it is new: nobody can be in that elsewhere
        return True
    return bool(staging.state.members(group) or _begun_in(transaction, group))


def _is_own(dialog: Endpoint | Begun, group: bytes) -> bool:
    return group == own_group(dialog.role, dialog.conversation)


def lock_wherever(staging: Staging, transaction: Transaction, dialog: Endpoint | Begun, group: bytes) -> Address | None:
    """Find the group that something is to be moved to, and lock it when it is here; where it is when it is not."""
    here = is_here(staging, transaction, dialog, group)
    return lock(staging, transaction, dialog, group, None if here else staging.scope.elsewhere(group))


def lock(
    staging: Staging, transaction: Transaction, dialog: Endpoint | Begun, group: bytes, found: Found | None
) -> Address | None:
    """Lock the group that something is to be moved to, unless it was found elsewhere and is still not here.

    Returns where it is then: there nobody can lock it. Raises InvalidGroup, MoveRefused or GroupLocked.
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
    """It may be the first one in the group here: that is its own and lives nowhere, or is on its way here."""
    return _is_own(dialog, group) if found is None else found.address == staging.state.address


def _away(staging: Staging, dialog: Endpoint | Begun, name: str, found: Found | None) -> Address:
    """Where the group is, when the conversation can go there."""
    if found is None:
        raise InvalidGroup(
            f"{name} is none of this queue, as far as the journals of its partitions say: a conversation moves to a "
            "group in which there is another one already. One that was begun just now is there after its commit"
        )
    if isinstance(dialog, Endpoint):
        staging.moving.check_bounds(dialog)
    return found.address


def _has(mates: list[Transaction], member: Endpoint) -> bool:
    """They have locked the group of this endpoint."""
    anchors = [mate.dialog for mate in mates]
    anchors += [one for mate in mates if mate.more is not None for many in mate.more.targets.values() for one in many]
    group = member.group
    return any(one is member or (group is not None and one.group is group) for one in anchors)


def is_in_the_way(staging: Staging, transaction: Transaction) -> bool:
    """Somebody else may have a group that this moves to: it was empty, or became so, and others have come there."""
    mates = family(transaction)
    groups = [staging.state.members(move.group)[:1] for move in transaction.moves]
    return any(not _has(mates, member) for members in groups for member in members)


def note_held(staging: Staging, transaction: Transaction) -> None:
    """Before its commit: the groups that are let go behind it, whoever is in them then."""
    mates, members = family(transaction), staging.state.members
    groups = [one.group_id for mate in mates for one in (mate.dialog, *mate.locked)]
    for mate in mates:
        groups += [move.group for move in mate.moves]
        groups += mate.more.targets if mate.more is not None else ()
    more_of(transaction).held = [
        group for group in dict.fromkeys(groups) if all(_has(mates, one) for one in members(group)[:1])
    ]


def let_go(staging: Staging, transaction: Transaction) -> None:
    """Behind its commit nobody holds what it held."""
    for group in more_of(transaction).held:
        for member in staging.state.members(group)[:1]:
            staging.free(member)


def take_apart(staging: Staging, transaction: Transaction) -> list[Transaction]:
    """Nothing came of it: its groups, each by itself, locked; where something was to be moved is free."""
    mates = family(transaction)
    for mate in mates:
        for members in mate.more.targets.values() if mate.more is not None else ():
            for member in members:
                if member.held:  # else it went with another one of its group
                    staging.free(member)
        mate.more = None
    return mates


def unlock(transaction: Transaction) -> None:
    """Nobody holds its group any more, and nobody is told."""
    transaction.clear()
    for member in transaction.dialog.members:
        member.held = False


def move(state: Partition, operation: Move) -> None:
    """MOVE: the endpoint is received with another group from here on."""
    state.move(_known(state, operation.endpoint), operation.group)


def move_away(state: Partition, operation: MoveAway) -> None:
    """MOVE_AWAY: the endpoint is of a group that lives elsewhere from here on, and goes there as RELOCATE says."""
    state.move_away(_known(state, operation.endpoint), operation.group, operation.to)


def _known(state: Partition, index: int) -> Endpoint:
    endpoint = state.table[index] if 0 <= index < len(state.table) else None
    if endpoint is None:
        raise PartitionHalted(
            f"a commit of {state.identity.data_topic}/{state.identity.partition} moves endpoint {index}, where nobody "
            "lives, to another group: the journal or the data log was changed. Nothing further is done with this "
            "partition"
        )
    return endpoint
