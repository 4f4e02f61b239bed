"""Forwards news from the partitions that this process owns to the sender of this process.

The sender learns that the peer of a dialog has ended it as soon as the Error or EndDialog is in the queue, whether or
not a handler has received it. From then on a SEND raises 8429 (behaviours 50, 51). The sender also learns when a
destination refuses records under its writer id. There is no such news of a dialog whose home another process owns.
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
    """The sender of this process, which receives news from its homes."""

    @property
    def conversations(self) -> Collection[bytes]:
        """Ids of its dialogs."""

    def on_home(self, home: Partition) -> None:
        """This process has begun to lead the partition."""

    def on_id_news(self, said: Notice | WriterClosed | Bounced) -> None:
        """A home has received an answer about a writer."""

    def on_peer_ended(self, home: Partition, endpoint: Endpoint) -> None:
        """A home has ingested the end of a dialog's peer."""

    def ended_by_peer(self, conversation: bytes) -> None:
        """The peer of a dialog has ended it."""


class SenderNotifier:
    """Passes news about ends and writers from a broker's partitions to its sender."""

    def __init__(self, sender: Callable[[], Listener | None]) -> None:
        self._sender = sender

    def follow(self, state: Partition) -> None:
        """Pass on the news of a partition that this process has begun to lead, including earlier news."""
        state.on_peer_end = self._heard
        state.on_answer = self._answered
        sender = self._sender()
        for conversation in sender.conversations if sender is not None else ():
            endpoint = state.endpoint(Role.INITIATOR, conversation)
            if endpoint is not None:
                state.report_end(endpoint)
        if sender is not None:
            sender.on_home(state)

    def notify_sender(self, conversation: bytes) -> None:
        """Notify the sender that the peer of a dialog has ended it."""
        sender = self._sender()
        if sender is not None:
            sender.ended_by_peer(conversation)

    def _answered(self, said: Notice | WriterClosed | Bounced) -> None:
        sender = self._sender()
        if sender is not None:
            sender.on_id_news(said)

    def _heard(self, home: Partition, endpoint: Endpoint) -> None:
        sender = self._sender()
        if sender is not None and endpoint.role is Role.INITIATOR:
            sender.on_peer_ended(home, endpoint)
