"""What applications want: with each dialog, and together."""

from __future__ import annotations

from konverse.dialog.session.dialogs import SessionDialog

from .places import Place


class Plan:
    """What the application wants with one dialog."""

    __slots__ = ("dialog", "finished", "home", "left", "over", "redirected", "seen", "sent")

    def __init__(self, dialog: SessionDialog, home: Place, left: int) -> None:
        self.dialog = dialog
        self.home = home
        self.left = left
        """Messages still to send."""
        self.sent: list[bytes] = []
        """Bodies, in the order of the calls; those of messages that were redirected to it too."""
        self.redirected = False
        self.over = False
        """END was called."""
        self.finished = False
        """FIN was called."""


class Club:
    """A conversation group that sessions put their dialogs into; it has an id of its own, or that of the first."""

    def __init__(self, home: Place, group: bytes) -> None:
        self.home = home
        self.group = group
