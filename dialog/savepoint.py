"""Savepoints: SAVE TRANSACTION, and ROLLBACK TRANSACTION to one of them (behaviour 213).

What a transaction does is staged in memory. So a savepoint is a copy of that, and not a number of things done: an END
WITH ERROR takes back what was staged before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from konverse.schemas.errors import BadInput, SavepointNotFound, TransactionTooLarge
from konverse.schemas.identifiers import check_name
from konverse.schemas.journal import EndOperation
from konverse.schemas.limits import SAVEPOINT_ENTRIES_MAX
from konverse.schemas.operations import Cleanup, Finish, GiveBack, Move, MoveAway, SetTimer

if TYPE_CHECKING:
    from .begun import Begun
    from .transaction import Transaction

Kept = TypeVar("Kept")


class Savepoints(Generic[Kept]):
    """Of one transaction, in the order in which they were set. A name may be used again: the last one of it counts."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[tuple[str, Kept]] = []

    def save(self, name: str, kept: Kept) -> None:
        """A savepoint; InvalidName, TransactionTooLarge when there are SAVEPOINT_ENTRIES_MAX already."""
        if not isinstance(name, str):
            raise BadInput(f"a savepoint is named by a text, not by {type(name).__name__}")
        if self._kept and self._kept[-1][0] == name:  # nobody can go back to that one any more
            self._kept.pop()
        if len(self._kept) == SAVEPOINT_ENTRIES_MAX:
            raise TransactionTooLarge(
                f"savepoint {name!r} would be one more than the {SAVEPOINT_ENTRIES_MAX} that a transaction may have; "
                "one with the name of the last takes its place: use one name where only the last is gone back to"
            )
        self._kept.append((check_name("savepoint", name), kept))

    def back_to(self, name: str) -> Kept:
        """What was kept there. The savepoint stays, those behind it are gone. Raises SavepointNotFound."""
        for at in range(len(self._kept) - 1, -1, -1):
            known, kept = self._kept[at]
            if known == name:
                del self._kept[at + 1 :]
                return kept
        raise SavepointNotFound(f"the transaction has no savepoint {name!r}; set it before with `savepoint`")


class Staged(NamedTuple):
    """What a handler's transaction had done."""

    begins: list[Begun]
    sends: list[tuple[int, str, list[bytes], int]]
    """With the number of bodies: a run that is there grows, and nothing else happens to it."""
    ends: list[EndOperation]
    cleanups: list[Cleanup | GiveBack]
    finishes: list[Finish]
    timers: list[SetTimer]
    moves: list[Move | MoveAway]
    size_bytes: int
    received: dict[int, int]


_NOTHING: Final = Staged([], [], [], [], [], [], [], 0, {})


def staged_by(transaction: Transaction) -> Staged:
    """What it has done up to here."""
    return Staged(
        [*transaction.begins],
        [(index, kind, bodies, len(bodies)) for index, kind, bodies in transaction.sends],
        [*transaction.ends],
        [*transaction.cleanups],
        [*transaction.finishes],
        [*transaction.timers],
        [*transaction.moves],
        transaction.size_bytes,
        {**transaction.received},
    )


def back_to(transactions: list[Transaction], kept: dict[Transaction, Staged]) -> None:
    """They have done that and nothing else, and what has become one of them since has done nothing."""
    for transaction in transactions:
        _stage_again(transaction, kept.get(transaction, _NOTHING))


def _stage_again(transaction: Transaction, staged: Staged) -> None:
    transaction.begins = [*staged.begins]
    transaction.sends = [(index, kind, bodies[:count]) for index, kind, bodies, count in staged.sends]
    transaction.ends = [*staged.ends]
    transaction.cleanups = [*staged.cleanups]
    transaction.finishes = [*staged.finishes]
    transaction.timers = [*staged.timers]
    if transaction.more is not None:
        transaction.more.moves = [*staged.moves]
    transaction.size_bytes = staged.size_bytes
    transaction.go_back(staged.received)
    transaction.speaks_anew()
