"""What the homes of a session's dialogs tell it of their ends, in the process that leads them (protocol.md 9c)."""

from __future__ import annotations

from konverse.schemas.records import Role

from .endpoint import Endpoint
from .partition import Partition
from .session import Session
from .takeover import heard


def hear_of_end(session: Session, home: Partition, endpoint: Endpoint) -> None:
    """The peer of an endpoint has ended: nothing more is sent on its dialog, if that is the one that lives there.

    A conversation id may be used again: what home tells before it has heard the BEGIN is about the dialog before.
    """
    dialog = session.dialogs.get(endpoint.conversation)
    if endpoint.role is not Role.INITIATOR or dialog is None:
        return
    if dialog.begun_at < 0 or heard(home, dialog.home, dialog.begun_at):  # a transaction begins without a BEGIN of ours
        session.ended_by_peer(endpoint.conversation)
