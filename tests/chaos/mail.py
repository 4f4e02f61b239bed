"""A client's handling of bounced messages: it confirms some, and redirects others to a dialog that goes on."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from konverse.bridge.client.dialog import Dialog
from konverse.schemas.errors import ConversationEnded, KafkaUnavailable, QueueFull

from .history import Scribe, brief

REMEMBERED: Final = 8
"""Ended dialogs whose mailboxes may still get messages."""


class Mail:
    """The mailboxes of ended dialogs, and for each the dialog begun in its place."""

    def __init__(self, scribe: Scribe, random: Random) -> None:
        self._scribe = scribe
        self._random = random
        self._over: deque[tuple[Dialog, Dialog]] = deque(maxlen=REMEMBERED)

    def expect(self, over: Dialog, instead: Dialog) -> None:
        """Messages of `over` may come back. `instead` has the same home."""
        self._over.append((over, instead))

    def look(self) -> None:
        """Look into one of the mailboxes."""
        if not self._over:
            return
        over, instead = self._random.choice(self._over)
        try:
            for bounced in over.bounced():
                facts = {"conversation": instead.id.hex, "body": brief(bounced.body)}
                if self._random.random() < 0.5:
                    self._scribe.invoke("confirm", **facts)
                    bounced.confirm()
                else:
                    self._scribe.invoke("redirect", **facts)
                    bounced.redirect(instead)
        except (ConversationEnded, KafkaUnavailable, QueueFull):
            return  # the message stays in the mailbox
