"""In which order messages go again that have come back of several conversations of one place, one after the other.

What came back of one that ended goes on the next. That may have ended too, before its home heard of some of it: these
stay where they are in the mailbox, in front of those that were sent again before them and come back only then. Such a
conversation got first what was sent again on it, and what its session sent itself behind all of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .mailbox import Bounced
    from .pooled import Pooled


def in_order(bounced: Sequence[Bounced], senders: Mapping[bytes, Pooled | None]) -> list[Bounced]:
    """As they were sent: `senders` says of each conversation what the pool knows, None of those that are over.

    None also of one that another process has begun, which had lost the pool and not heard of that yet.
    """
    of_each: dict[bytes, list[Bounced]] = {}
    for one in bounced:
        of_each.setdefault(one.conversation, []).append(one)
    ranks: dict[bytes, float] = {}
    for conversation, mine in of_each.items():  # as the first of each has come back
        pooled = senders.get(conversation)
        if pooled is not None and pooled in pooled.place.living:
            ranks[conversation] = pooled.place.living.index(pooled)
        else:
            ranks[conversation] = _rank_of_unknown(mine[0].session, ranks, of_each, senders)
    found: deque[Bounced] = deque()
    for conversation in sorted(of_each, key=ranks.__getitem__):
        pooled, mine = senders.get(conversation), of_each[conversation]
        resumed = pooled is not None and pooled.resumed
        found.extendleft(one for one in reversed(mine) if resumed and _is_sent_again(one))
        found.extend(one for one in mine if not (resumed and _is_sent_again(one)))
    return [*found]


def _rank_of_unknown(
    session: bytes,
    ranks: Mapping[bytes, float],
    of_each: Mapping[bytes, Sequence[Bounced]],
    senders: Mapping[bytes, Pooled | None],
) -> float:
    """In front of all, as it is over; but behind what the same session had sent on one that was adopted from it."""
    adopted = [
        rank
        for conversation, rank in ranks.items()
        if (known := senders.get(conversation)) is not None and known.adopted
        if of_each[conversation][0].session == session
    ]
    return max(adopted, default=-1.5) + 0.5


def _is_sent_again(one: Bounced) -> bool:
    """Home has sent it, or its target has given it back: what the session sends behind what went in vain is neither."""
    return one.bounce.writer != one.session
