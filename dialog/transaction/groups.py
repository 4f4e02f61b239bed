"""Several conversation groups in one transaction: MOVE CONVERSATION between them, and GET CONVERSATION GROUP again.

Few transactions do either, so the extra fields for it are in an object of their own (`More`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from konverse.dialog.state.endpoint import Endpoint
from konverse.schemas.errors import GroupLocked, TransactionTooLarge
from konverse.schemas.limits import TRANSACTION_BYTES_MAX
from konverse.schemas.wire.operations import Move, MoveAway

from .begun import NewDialog

_NONE: Final[list[Any]] = []
"""Shared empty list, never filled."""


class GroupWork(Protocol):
    """One of several transactions that are committed together. Each works on one group."""

    size_bytes: int

    @property
    def idle(self) -> bool:
        """Nothing was received or staged."""

    def shut(self) -> None:
        """Refuse all further calls."""


Each = TypeVar("Each", bound=GroupWork)


class More(Generic[Each]):
    """Extra fields of a transaction with moves or several groups."""

    __slots__ = ("first", "held", "moves", "parts", "steps_back", "targets")

    def __init__(self, first: Each) -> None:
        self.first = first
        """The transaction to which all groups belong."""
        self.parts: list[Each] = _NONE
        """Further groups; on the first transaction."""
        self.moves: list[Move | MoveAway] = _NONE
        self.targets: dict[bytes, list[Endpoint]] = {}
        """Groups that were locked as targets of moves -> their members at that time."""
        self.held: list[bytes] = _NONE
        """Groups to unlock after the COMMIT: locked ones, and targets of moves. Only the first transaction has them."""
        self.steps_back = False
        """It rolls back because another transaction has a group that it needs."""

    @property
    def does_something(self) -> bool:
        """Whether anything is staged besides the first transaction's own work."""
        return bool(self.moves) or any(not part.idle for part in self.parts)

    def end(self, kind: type[BaseException] | None, done: Callable[[Each, bool], None]) -> None:
        """End the `with` block of the first transaction: report to `done`, and refuse further calls on its groups."""
        for part in self.parts:
            part.shut()
        self.steps_back = kind is not None and issubclass(kind, GroupLocked)
        fits = sum(one.size_bytes for one in (self.first, *self.parts)) <= TRANSACTION_BYTES_MAX
        done(self.first, kind is None and fits)
        if kind is None and not fits:
            raise TransactionTooLarge(
                f"the groups of the transaction send more than the {TRANSACTION_BYTES_MAX} bytes that fit into one "
                "commit: all of them were rolled back. Work on fewer groups at a time, or send smaller messages"
            )

    def stay(self, dialog: Endpoint | NewDialog) -> None:
        """Drop the move of a dialog, which was ended or is in the group already."""
        self.moves = [move for move in self.moves if move.endpoint != dialog.index]
