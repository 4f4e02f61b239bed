"""Savepoints: SAVE TRANSACTION, and ROLLBACK TRANSACTION to one of them (behaviour 213).

What a transaction does is staged in memory. So a savepoint is a copy of that, and not a number of things done: an END
WITH ERROR takes back what was staged before it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from konverse.schemas.errors import BadInput, SavepointNotFound, TransactionTooLarge
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import SAVEPOINT_ENTRIES_MAX

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
