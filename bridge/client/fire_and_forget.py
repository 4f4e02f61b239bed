"""Examines the dialogs of clients for the warning about fire and forget (`bridge.reader.fire_and_forget`)."""

from __future__ import annotations

from konverse.bridge.reader.fire_and_forget import warn
from konverse.bridge.reader.readers import Readers
from konverse.dialog.session.dialogs import DialogState, SessionDialog
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role


class FireAndForget:
    """Examines a dialog when a client of the broker ends it, so that sends cost nothing extra."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._read: set[str] = set()

    def reads(self, topic: str) -> None:
        """Note that a reader of this process receives, or has received, from the queue with this data topic."""
        self._read.add(topic)

    def examine(self, dialog: SessionDialog, *, sends: bool = False) -> None:
        """Examine a dialog that is about to be ended without error; `sends`: the same transaction sends on it, too.

        In doubt there is no warning: replies may have come to a reader that was closed or has lost the partition.
        """
        over = dialog.state is DialogState.ENDED or dialog.waiting_end is not None
        sent = sends or dialog.sent or dialog.held or dialog.pending
        if sent and not over and not self._heard(dialog):
            warn(dialog.begin)

    def _heard(self, dialog: SessionDialog) -> bool:
        """Whether a message was received on the dialog, or may have been."""
        home = dialog.begin.home

        def received(state: Partition) -> bool:
            endpoint = state.endpoint(Role.INITIATOR, dialog.conversation)
            return endpoint is not None and (endpoint.received > 0 or endpoint.error is not None)

        answers = self._readers.answers(home, received)
        if not answers:
            return home.topic in self._read
        return True in answers or all(answer is None for answer in answers)
