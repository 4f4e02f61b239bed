"""How a session begins its dialogs, and which it has ended: none with an id of its caller's choice begins again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.schemas.errors import ConversationOver
from konverse.schemas.limits import SESSION_OVER_ENTRIES_MAX
from konverse.schemas.records import ANEW, NAMED, NO_SEQUENCE, RETURNING
from konverse.schemas.system_messages import ANOTHER_ID

if TYPE_CHECKING:
    from .lane import SessionDialog


class Manner(NamedTuple):
    """How a dialog is begun, beside its BEGIN."""

    returning: bool = False
    """What comes to its target when that has ended comes back."""
    named: bool = False
    """The caller has chosen its id."""
    anew: bool = False
    """Although a conversation with this id may be over."""
    level: int = NO_SEQUENCE
    """The priority of the initiator's side; -1: its home asks the catalog."""

    @property
    def flags(self) -> int:
        """Of all messages."""
        return RETURNING * self.returning | NAMED * self.named | ANEW * self.anew


PLAIN: Final = Manner()


class EndedHere:
    """Conversations with ids of the caller's choice that a session has ended."""

    def __init__(self) -> None:
        self._over: dict[bytes, None] = {}

    def check(self, conversation: bytes, manner: Manner) -> None:
        """Raise ConversationOver for one of them, unless it is to begin anew."""
        if conversation in self._over and not manner.anew:
            raise ConversationOver(
                f"conversation {UUID(bytes=conversation)} is over: this session has ended it. {ANOTHER_ID}"
            )

    def begun(self, conversation: bytes) -> None:
        """It lives again."""
        self._over.pop(conversation, None)

    def add(self, dialog: SessionDialog) -> None:
        """The session ends a dialog; the oldest one goes when there are too many."""
        if dialog.flags & NAMED:
            if len(self._over) >= SESSION_OVER_ENTRIES_MAX:
                del self._over[next(iter(self._over))]
            self._over[dialog.conversation] = None
