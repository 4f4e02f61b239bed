"""The intentions of applications, for single dialogs and for groups."""

from __future__ import annotations

from konverse.dialog.session.dialogs import SessionDialog

from .places import Place


class Plan:
    """The application's intentions for one dialog."""

    __slots__ = ("dialog", "finished", "home", "left", "over", "redirected", "seen", "sent")

    def __init__(self, dialog: SessionDialog, home: Place, left: int) -> None:
        self.dialog = dialog
        self.home = home
        self.left = left
        """Messages still to send."""
        self.sent: list[bytes] = []
        """Bodies in the order of the calls, including redirected messages."""
        self.redirected = False
        self.over = False
        """END was called."""
        self.finished = False
        """FIN was called."""


class Club:
    """A conversation group shared by sessions. The group has an id of its own, or that of its first dialog."""

    def __init__(self, home: Place, group: bytes) -> None:
        self.home = home
        self.group = group
