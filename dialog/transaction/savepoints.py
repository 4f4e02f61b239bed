"""Savepoints: SAVE TRANSACTION and ROLLBACK TRANSACTION to a savepoint (behaviour 213).

A savepoint is a copy of the staged work. The length of the staged lists would not do, because an END WITH ERROR removes
work that was staged before the savepoint.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from konverse.schemas.errors import BadInput, SavepointNotFound, TransactionTooLarge
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import SAVEPOINT_ENTRIES_MAX

Kept = TypeVar("Kept")


class Savepoints(Generic[Kept]):
    """The savepoints of one transaction, in the order in which they were set. The last one of a name is used."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[tuple[str, Kept]] = []

    def save(self, name: str, kept: Kept) -> None:
        """Set a savepoint. Raises InvalidName, or TransactionTooLarge when there are SAVEPOINT_ENTRIES_MAX already."""
        if not isinstance(name, str):
            raise BadInput(f"the name of a savepoint must be a str, not {type(name).__name__}")
        if self._kept and self._kept[-1][0] == name:  # the new one hides it
            self._kept.pop()
        if len(self._kept) == SAVEPOINT_ENTRIES_MAX:
            raise TransactionTooLarge(
                f"savepoint {name!r} would be one more than the {SAVEPOINT_ENTRIES_MAX} that a transaction may have; "
                "use one name for savepoints of which you need only the last: a new one replaces the last of its name"
            )
        self._kept.append((check_name("savepoint", name), kept))

    def back_to(self, name: str) -> Kept:
        """The copy that was kept at the savepoint. It stays; later savepoints are removed. Raises SavepointNotFound."""
        for at in range(len(self._kept) - 1, -1, -1):
            known, kept = self._kept[at]
            if known == name:
                del self._kept[at + 1 :]
                return kept
        raise SavepointNotFound(f"the transaction has no savepoint {name!r}; set it before with `savepoint`")
