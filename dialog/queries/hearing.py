"""What the homes of a session's dialogs tell it: of their ends (protocol.md 9c), and of its own id (section 5)."""

from __future__ import annotations

from konverse.dialog.session.lanes import heard
from konverse.dialog.session.rotation import concerns
from konverse.dialog.session.session import Session
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import BounceReason, Notice, WriterClosed


def hear_of_end(session: Session, home: Partition, endpoint: Endpoint) -> None:
    """The peer of an endpoint has ended: nothing more is sent on its dialog, if that is the one that lives there.

    A conversation id may be used again: what home tells before it has heard the BEGIN is about the dialog before.
    """
    dialog = session.dialogs.get(endpoint.conversation)
    if endpoint.role is not Role.INITIATOR or dialog is None:
        return
    begun = dialog.begun_at < 0 or heard(home, dialog.home, dialog.begun_at)  # a transaction begins without our BEGIN
    arrived = endpoint.index in home.moves.arrivals and endpoint.opener == dialog.opener  # it was heard elsewhere
    if begun or arrived:
        session.ended_by_peer(endpoint.conversation)


def hear_of_id(session: Session, said: Notice | WriterClosed | Bounced) -> bool:
    """Whether a destination does not hear the session under its present id any more: another one is due.

    Somebody has closed it there, or what Kafka has of it is not all there. The next id asks how far it was heard.
    """
    if session.closing or session.over is not None:
        return False
    if isinstance(said, Bounced):
        return said.bounce.reason is BounceReason.WRITER_CLOSED and said.bounce.writer == session.writer
    lane = session.lanes.get(said.at)
    return lane is not None and lane.writer == said.writer and concerns(said, lane)


def needs_another_id(session: Session, home: Partition) -> bool:
    """Whether anything that a home keeps says so."""
    for address, lane in [*session.lanes.items()]:
        answer = home.answers.get((lane.writer, address))
        if answer is not None and hear_of_id(session, answer):
            return True
    return any(hear_of_id(session, bounced) for bounced in home.mailbox.entries.values())
