"""What a session knows of the messages that its homes send for it, and how its own wait for them.

REDIRECT goes to home, and home sends the message; so a dialog has two ways to its target, and one is used at a time
(protocol.md section 5). A REDIRECT leaves when all that the session itself sent on the dialog counts. What the session
sends behind a REDIRECT is held until home's journal says that the redirected messages are in the target's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konverse.schemas.envelope import encode_suffix, head
from konverse.schemas.records import FIRST, BounceId, Kind, Role, Suffix

from .lane import Lane, SessionDialog, Single
from .opened import control
from .states import State
from .takeover import heard, refused

if TYPE_CHECKING:
    from .partition import Partition


class Redirects:
    """The REDIRECTs of one dialog."""

    __slots__ = ("_lane", "_limit", "_source", "counter", "opened")

    def __init__(self) -> None:
        self.counter: int | None = None
        """Of the latest REDIRECT in the home lane; None when everything that was redirected has arrived."""
        self._lane: Lane | None = None
        """Where it was put; another lane may have it now."""
        self.opened = False
        """Home has sent FIRST."""
        self._source: Partition | None = None
        self._limit = 0

    def put(self, dialog: SessionDialog, bounce: BounceId) -> None:
        """A REDIRECT into the home lane. It is FIRST when neither the session nor home has sent anything, so far known.

        Home decides: of several such REDIRECTs the first that finds its bounce opens the conversation.
        """
        first = not (dialog.sent or self.opened)
        home, flags = dialog.home, dialog.flags | FIRST if first else dialog.flags
        prefix = head(Kind.REDIRECT, flags, Role.INITIATOR, home.address.tag, home.writer) + dialog.conversation
        self.counter, self._lane, self._source = home.next, home, None
        home.put(Single(prefix, -1, dialog.key), control(dialog, bounce, dialog.begin if first else None), None)

    def arrived(self, dialog: SessionDialog, home: Partition) -> bool:
        """Whether home has heard the latest REDIRECT, and what it sent by then is in the target's log.

        The number up to which that must be so is taken from one fold and compared with the same one: another fold may
        have ingested the REDIRECT in another commit and given other numbers.
        """
        if self.counter is None or self._lane is None:
            return False
        if not (heard(home, self._lane, self.counter) or refused(home, self._lane, self.counter)):
            return False
        stream = home.streams.get(dialog.target.address)
        if self._source is not home:
            self._source, self._limit = home, stream.next if stream else 0
        if stream is not None and stream.acked < self._limit:
            return False
        self.opened = _was_opened(home, dialog.conversation)
        self.counter = None
        return True


def _was_opened(home: Partition, conversation: bytes) -> bool:
    """Whether home has sent FIRST, or nobody has to any more. One that moved away is as it was when it left."""
    chain = home.moves.stubs.get((Role.INITIATOR, conversation))
    if chain:
        return next(iter(chain.values())).opened
    endpoint = home.endpoint(Role.INITIATOR, conversation)
    return endpoint is None or endpoint.committed is not State.STARTED_OUTBOUND


def confirmation(home: Lane, conversation: bytes, bounce: BounceId) -> tuple[Single, bytes]:
    """CONFIRM, and the end of its header."""
    prefix = head(Kind.CONFIRM, 0, Role.INITIATOR, home.address.tag, home.writer) + conversation
    return Single(prefix, -1, conversation), encode_suffix(Suffix(detail=bounce))
