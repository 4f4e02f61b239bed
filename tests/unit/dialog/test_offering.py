"""Bounces that a session is offered, and when it is offered one again."""

from __future__ import annotations

import pytest

from konverse.dialog.queries.offering import Decisions
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.session import Session
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.writer import NO_HEIR, Writer
from konverse.schemas.wire.records import Bounce, BounceReason
from tests.kit.builders import Side, address_of, identifier
from tests.unit.dialog.test_session import HOME, WRITER, opened

STRANGER = identifier("stranger")


@pytest.fixture
def session() -> Session:
    return Session(WRITER)


@pytest.fixture
def home() -> Side:
    return Side("replies")


@pytest.fixture
def decisions() -> Decisions:
    return Decisions()


def came_back(home: Side, session: bytes = WRITER) -> Bounced:
    bounce = Bounce(session, 7, address_of("elsewhere"), BounceReason.NO_ENDPOINT)
    bounced = Bounced(session, bounce, identifier("c"), 0, "order", b"0", None)
    home.state.mailbox.keep(bounced)
    return bounced


def shown(decisions: Decisions, home: Side, session: Session) -> list[Bounced]:
    return decisions.offered(home.state, session, lambda _: True)


def heard(home: Side, dialog: SessionDialog, *, closed_at: int | None = None) -> None:
    """Home has received every record of the dialog's home lane, or the session was closed there before."""
    writer = home.state.writers[WRITER] = Writer(WRITER)
    writer.next = dialog.home.next
    writer.closed_at, writer.heir = closed_at, None if closed_at is None else NO_HEIR


@pytest.mark.parametrize(("closed", "offered"), [(False, False), (True, True)])
def test_messages_returned_to_another_session_are_offered_only_after_that_session_is_closed(
    session: Session, home: Side, decisions: Decisions, closed: bool, offered: bool
) -> None:
    bounced = came_back(home, STRANGER)
    home.state.writers[STRANGER] = Writer(STRANGER)
    home.state.writers[STRANGER].closed_at = 8 if closed else None
    assert shown(decisions, home, session) == [bounced] * offered


def test_unwanted_bounces_are_not_offered(session: Session, home: Side, decisions: Decisions) -> None:
    came_back(home)
    assert decisions.offered(home.state, session, lambda _: False) == []


def test_a_confirmed_bounce_is_not_offered_before_its_home_has_received_the_confirm(
    session: Session, home: Side, decisions: Decisions
) -> None:
    bounced, dialog = came_back(home), opened(session)
    assert dialog.begin.home == HOME == home.state.address
    assert shown(decisions, home, session) == [bounced]
    assert decisions.confirm(session, dialog, bounced.id)
    assert decisions.confirm(session, dialog, bounced.id) == []
    assert shown(decisions, home, session) == []
    heard(home, dialog)
    home.state.mailbox.take(bounced.id)
    assert shown(decisions, home, session) == []


def test_a_bounce_with_a_refused_confirm_is_offered_again_under_the_next_id(
    session: Session, home: Side, decisions: Decisions
) -> None:
    """The session was closed at home before its CONFIRM, which is refused. A decision under the old id is in vain."""
    bounced, dialog = came_back(home), opened(session)
    decisions.confirm(session, dialog, bounced.id)
    heard(home, dialog, closed_at=dialog.home.next - 1)
    assert shown(decisions, home, session) == []
    session.drained()
    session.change(identifier("the next id"), 0)
    assert shown(decisions, home, session) == [bounced]
    assert decisions.confirm(session, dialog, bounced.id), "it may be decided about anew"


def test_a_bounce_with_a_refused_redirect_is_offered_again_but_not_while_in_flight(
    session: Session, home: Side, decisions: Decisions
) -> None:
    bounced, dialog = came_back(home), opened(session)
    session.send(dialog, "order", b"0")
    assert decisions.redirect(session, dialog, bounced.id) == [], "it waits for what was sent before"
    assert decisions.confirm(session, dialog, bounced.id) == [], "which would overtake it"
    assert shown(decisions, home, session) == []
    session.drained()
    assert shown(decisions, home, session) == [], "it is on its way"
    heard(home, dialog)
    session.read_home(home.state)
    assert shown(decisions, home, session) == [bounced], "home has heard it, and kept the message"
