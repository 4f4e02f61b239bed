"""Offers bounced messages to an application, and keeps its decisions about them.

A message is offered until the application has decided about it. It is offered again when the decision had no effect:
home has ingested its record, or never will, and the message is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import has_ingested, refused
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import BounceId

if TYPE_CHECKING:
    from konverse.dialog.session.lanes import Produce
    from konverse.dialog.session.session import Session

WasSettled = Callable[[Partition], bool]
"""Tells from the state of a home whether it has ingested a decision, or never will."""


class Decisions:
    """The decisions of one session, by home."""

    def __init__(self) -> None:
        self._known: Final[dict[Address, dict[BounceId, WasSettled]]] = {}

    def confirm(self, session: Session, dialog: SessionDialog, bounce: BounceId) -> list[Produce]:
        """CONFIRM; nothing when there is a decision already: CONFIRM would overtake a REDIRECT that waits."""
        known = self._known.setdefault(dialog.begin.home, {})
        if bounce in known:
            return []
        hands = session.confirm(dialog, bounce)
        lane, counter = dialog.home, dialog.home.next - 1
        known[bounce] = lambda home: has_ingested(home, lane, counter) or refused(home, lane, counter)
        return hands

    def redirect(self, session: Session, to: SessionDialog, bounce: BounceId) -> list[Produce]:
        """REDIRECT; nothing when there is a decision already."""
        known = self._known.setdefault(to.begin.home, {})
        if bounce in known:
            return []
        hands = session.redirect(to, bounce)
        known[bounce] = lambda _home: _is_settled(to, bounce)
        return hands

    def offered(self, home: Partition, session: Session, wanted: Callable[[Bounced], bool]) -> list[Bounced]:
        """The wanted messages in a home's mailbox about which the session may decide.

        It may decide about messages that came back to itself, and to closed sessions, which cannot decide any more.
        No message is offered where the home has closed the session's present id: decisions under that id have no
        effect, and would delay the home's answer that reports the closing.
        """
        present = home.writers.get(session.writer)
        if present is not None and present.closed_at is not None:
            return []
        found = []
        entries, known, ids = home.mailbox.entries, self._known.get(home.address, {}), session.ids
        for bounce, was_settled in list(known.items()):
            if bounce not in entries and was_settled(home):
                known.pop(bounce, None)
        for bounced in entries.values():
            if not wanted(bounced):
                continue
            writer = home.writers.get(bounced.session)
            closed = writer is not None and writer.closed_at is not None
            if bounced.session not in ids and not closed:
                continue
            was_settled_now = known.get(bounced.id)
            if was_settled_now is None or was_settled_now(home):  # decided, and still there: it had no effect
                known.pop(bounced.id, None)
                found.append(bounced)
        return found


def _is_settled(dialog: SessionDialog, bounce: BounceId) -> bool:
    redirects = dialog.redirects
    return bounce not in dialog.held and (redirects is None or redirects.counter is None)
