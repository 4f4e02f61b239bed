"""Tells the sender of this process which of its dialogs have ended, as soon as a partition of this process hears it.

Likewise when a destination does not hear the sender's session any more.

The Error or EndDialog stands in the queue then, received or not, and a SEND raises 8429 (behaviours 50, 51). Where
another process owns the home of a dialog nobody here hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import Notice, WriterClosed


class Listener(Protocol):
    """The sender of this process, as far as homes have news for it."""

    @property
    def conversations(self) -> Collection[bytes]:
        """Of its dialogs."""

    def hear_from(self, home: Partition) -> None:
        """A home is led here from now on."""

    def hear_of_id(self, said: Notice | WriterClosed | Bounced) -> None:
        """A home has heard of a writer."""

    def hear_of_end(self, home: Partition, endpoint: Endpoint) -> None:
        """A home has heard that the peer of a dialog has ended."""

    def ended_by_peer(self, conversation: bytes) -> None:
        """The peer of a dialog has ended it."""


class EndNews:
    """What the partitions of a broker hear of ends."""

    def __init__(self, sender: Callable[[], Listener | None]) -> None:
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
