"""What a home says to BEGIN DIALOG with the id of a conversation that is over (protocol.md section 6)."""

from __future__ import annotations

from konverse.schemas.errors import ConversationOver
from konverse.schemas.records import Role
from konverse.schemas.system_messages import ANOTHER_ID

from .named import told
from .partition import Partition


def refusal(home: Partition, conversation: bytes, *, anew: bool) -> ConversationOver | None:
    """The error for a caller that would begin it; None when it may begin, or lives."""
    over = home.named.over.get((Role.INITIATOR, conversation))
    if over is None:
        return None
    known = told(conversation, over)
    if home.endpoint(Role.INITIATOR, conversation) is not None or (anew and conversation not in home.named.heard):
        return ConversationOver(
            f"{known}, and its home did not hear that the other side has ended it: it can be begun anew when it has. "
            "Begin with another id, or try again then"
        )
    return None if anew else ConversationOver(f"{known}. {ANOTHER_ID}")
