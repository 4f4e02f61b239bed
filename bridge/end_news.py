"""Tells the sender of this process which of its dialogs have ended, as soon as a partition of this process hears it.

Likewise when a destination does not hear the sender's session any more.

The Error or EndDialog stands in the queue then, received or not, and a SEND raises 8429 (behaviours 50, 51). Where
another process owns the home of a dialog nobody here hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konverse.dialog.endpoint import Endpoint
from konverse.dialog.mailbox import Bounced
from konverse.dialog.partition import Partition
from konverse.schemas.records import Notice, Role, WriterClosed

if TYPE_CHECKING:
    from .sending import Sender


class EndNews:
    """What the partitions of a broker hear of ends."""

    def __init__(self, sender: Callable[[], Sender | None]) -> None:
        self._sender = sender

    def follow(self, state: Partition) -> None:
        """A partition is led here from now on: what it has heard before, and what it will hear."""
        state.on_peer_end = self._heard
        state.on_answer = self._answered
        sender = self._sender()
        for conversation in sender.conversations if sender is not None else ():
            endpoint = state.endpoint(Role.INITIATOR, conversation)
            if endpoint is not None:
                state.tell_end(endpoint)
        if sender is not None:
            sender.hear_from(state)

    def tell(self, conversation: bytes) -> None:
        """The peer of a dialog has ended it."""
        sender = self._sender()
        if sender is not None:
            sender.ended_by_peer(conversation)

    def _answered(self, said: Notice | WriterClosed | Bounced) -> None:
        sender = self._sender()
        if sender is not None:
            sender.hear_of_id(said)

    def _heard(self, home: Partition, endpoint: Endpoint) -> None:
        sender = self._sender()
        if sender is not None and endpoint.role is Role.INITIATOR:
            sender.hear_of_end(home, endpoint)
