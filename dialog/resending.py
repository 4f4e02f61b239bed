"""In which order messages go again that have come back of several conversations of one place, one after the other.

What came back of one that ended goes on the next. That may have ended too, before its home heard of some of it: these
stay where they are in the mailbox, in front of those that were sent again before them and come back only then. Such a
conversation got first what was sent again on it, and what its session sent itself behind all of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .mailbox import Bounced
    from .pooled import Pooled


def in_order(bounced: Sequence[Bounced], senders: Mapping[bytes, Pooled | None]) -> list[Bounced]:
    """As they were sent: `senders` says of each conversation what the pool knows, None of those that are over."""
    ranks = {conversation: _rank(pooled) for conversation, pooled in senders.items()}
    conversations = sorted(dict.fromkeys(one.conversation for one in bounced), key=lambda one: ranks.get(one, -1))
    found: list[Bounced] = []
    for conversation in conversations:
        pooled = senders.get(conversation)
        mine = [one for one in bounced if one.conversation == conversation]
        again = [one for one in mine if _is_sent_again(one)] if pooled is not None and pooled.resumed else []
        found = [*again, *found, *(one for one in mine if one not in again)]
    return found


def _rank(pooled: Pooled | None) -> int:
    living = [] if pooled is None else pooled.place.living
    return living.index(pooled) if pooled in living else -1


def _is_sent_again(one: Bounced) -> bool:
    """Home has sent it, or its target has given it back: what the session sends behind what went in vain is neither."""
    return one.bounce.writer != one.session
