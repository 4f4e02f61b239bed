"""Reports to a session from the homes of its dialogs: ends of peers (protocol.md 9c), and its own id (section 5)."""

from __future__ import annotations

from konverse.dialog.session.lanes import has_ingested
from konverse.dialog.session.rotation import concerns
from konverse.dialog.session.session import Session
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.mailbox import Bounced
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import BounceReason, Notice, WriterClosed


def on_peer_ended(session: Session, home: Partition, endpoint: Endpoint) -> None:
    """The peer of an endpoint has ended: refuse sends on the session's dialog, if the endpoint belongs to it.

    A report from a home that has not ingested this session's BEGIN concerns another session's dialog of the same id.
    """
    dialog = session.dialogs.get(endpoint.conversation)
    if endpoint.role is not Role.INITIATOR or dialog is None:
        return
    # begun_at < 0: begun in a transaction, without a BEGIN of its own. A moved endpoint got BEGIN at its earlier place
    begun = dialog.begun_at < 0 or has_ingested(home, dialog.home, dialog.begun_at)
    arrived = endpoint.index in home.moves.arrivals and endpoint.opener == dialog.opener
    if begun or arrived:
        session.ended_by_peer(endpoint.conversation)


def on_id_news(session: Session, said: Notice | WriterClosed | Bounced) -> bool:
    """Whether a destination accepts nothing more under the session's present id, so that the session needs a new one.

    Another process has closed the id there, or records of it are missing from the log. Under its next id the session
    asks how many records were received.
    """
    if session.closing or session.over is not None:
        return False
    if isinstance(said, Bounced):
        return said.bounce.reason is BounceReason.WRITER_CLOSED and said.bounce.writer == session.writer
    lane = session.lanes.get(said.at)
    return lane is not None and lane.writer == said.writer and concerns(said, lane)


def needs_another_id(session: Session, home: Partition) -> bool:
    """Whether a notice or a bounced message at a home requires a new id (`on_id_news`)."""
    for address, lane in [*session.lanes.items()]:
        answer = home.answers.get((lane.writer, address))
        if answer is not None and on_id_news(session, answer):
            return True
    return any(on_id_news(session, bounced) for bounced in home.mailbox.entries.values())
