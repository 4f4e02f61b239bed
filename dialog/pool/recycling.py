"""Recycling: how a pooled conversation is closed. EndOfStream is sent, the target ends its side, then the initiator.

FIN follows EndOfStream directly in the same log, so nothing is received from that side after it, whichever process
sends (protocol.md section 6). Service Broker's original needs locks for that, taken in a fixed order (behaviour 227). A
message that came too late is in the mailbox at the conversation's home, and is sent again on the next conversation of
its place.

The functions up to `is_answer` serve the process that sends; `answer` and `ring` serve the reader of the home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.lanes import has_ingested, lost
from konverse.dialog.state.transitions import SENDING, State
from konverse.schemas.errors import (
    MalformedRecord,
    NotInContract,
    QueueFull,
    TimerBeyondLifetime,
    UnknownObject,
    WrongDirection,
)
from konverse.schemas.identifiers import Role, is_of_pool, mark_of, time_of_writer
from konverse.schemas.limits import POOL_PATIENCE_MS
from konverse.schemas.origins import first_code
from konverse.schemas.system_messages import DIALOG_TIMER, END_DIALOG, ERROR, read_error

from .places import HomeSide, Pooled, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from konverse.dialog.session.dialogs import SessionDialog
    from konverse.dialog.session.lanes import Produce
    from konverse.dialog.session.session import Session
    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.state.partition import Partition
    from konverse.dialog.transaction.received import Message
    from konverse.dialog.transaction.transaction import Transaction

SYSTEM: Final = (DIALOG_TIMER, END_DIALOG, ERROR)

UNREADABLE: Final = 1
"""Code used for an Error whose body cannot be parsed. Its messages are not resent."""

RESENT: Final = (-8489, -8462, -9719, -28052)
"""Error codes after which undelivered messages may be sent again on a new conversation (behaviour 228)."""


def is_pooled(endpoint: Endpoint) -> bool:
    """Whether a pool, in any process, has begun the conversation."""
    group, conversation = endpoint.group_id, endpoint.conversation
    if endpoint.role is not Role.INITIATOR or group == conversation or not is_of_pool(conversation):
        return False
    return mark_of(group) == mark_of(conversation)


def end_once(session: Session, dialog: SessionDialog) -> list[Produce]:
    """END on a dialog of a pool, unless it was ended already."""
    return session.end(dialog) if dialog.waiting_end is None else []


def recycle(session: Session, dialog: SessionDialog, end_of_stream: str) -> list[Produce]:
    """EndOfStream and FIN in one step, so that no send of another thread comes between the two.

    Raises the errors of `Session.send`, and QueueFull while messages redirected to the dialog have not arrived.
    """
    session.check(dialog, b"")
    if dialog in session.redirecting:
        raise QueueFull("messages that were redirected to this dialog have not arrived yet; try again")
    return session.send(dialog, end_of_stream, b"") + session.finish(dialog)


def close_stream(session: Session, dialog: SessionDialog, end_of_stream: str) -> list[Produce]:
    """Close an open conversation of a pool: `recycle` it, or end it if it is unused.

    One step: senders of other threads may use the conversation until it is closed. Raises the errors of `recycle`.
    """
    return recycle(session, dialog, end_of_stream) if is_used(dialog) else end_once(session, dialog)


def is_used(dialog: SessionDialog) -> bool:
    """Whether anything was sent on it or redirected to it. If not, its target does not know of it."""
    return bool(dialog.sent or dialog.held or dialog.redirects is not None)


def ask_verdict(session: Session, dialog: SessionDialog, end_of_stream: str | None = None) -> list[Produce]:
    """FIN on a dialog that takes no more messages. Its answer says that each message was received or has come back.

    Returns nothing while other records must go first; call it again. Redirected messages, which home has sent, need a
    verdict too. `end_of_stream` goes before FIN when home has closed the dialog as well and the target may not have
    received that: only the first of two FINs takes effect, so the target might never get EndOfStream. Raises QueueFull.
    """
    session.check_over()
    dialog.go_along()
    if dialog.finished or dialog.held or dialog.state is DialogState.BEGINNING or dialog in session.redirecting:
        return []
    if not dialog.sent and (dialog.redirects is None or not dialog.redirects.opened):
        return []
    if end_of_stream is not None and dialog.state is not DialogState.ENDED:
        hands = session.send(dialog, end_of_stream, b"")
    else:
        hands = []
    dialog.finished, dialog.open = True, False
    session.fin(dialog)
    return hands + session.unsent()


def standing_of(home: Partition, session: Session, dialog: SessionDialog) -> HomeSide:
    """The standing of a session's conversation in the state of its home."""
    endpoint = home.endpoint(Role.INITIATOR, dialog.conversation)
    if endpoint is None:
        moved, begun = (Role.INITIATOR, dialog.conversation) in home.moves.stubs, (dialog.home, dialog.begun_at)
        return HomeSide(over=not moved and (has_ingested(home, *begun) or lost(home, *begun)))
    finished, error = endpoint.finished, endpoint.error
    return HomeSide(
        ended=endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR),
        finished=endpoint.committed is State.DISCONNECTED_OUTBOUND or (finished is not None and finished.own),
        answered=dialog.judged or (finished is not None and _has_asked(session, finished.askers)),
        code=None if error is None else first_code(*_said_by(error[2] or b"")),
        unread=endpoint.waits,
    )


def _has_asked(session: Session, askers: Collection[bytes]) -> bool:
    """Whether a FIN of this session was answered: all its messages were received or have come back by then."""
    return any(asker in session.ids for asker in askers)


def rivals_of(home: Partition, session: Session, groups: Iterable[bytes]) -> list[bytes]:
    """Other live sessions that have begun conversations of these groups: two processes use one pool."""
    sides = (one for group in groups for one in home.members(group) if one.role is Role.INITIATOR)
    openers = dict.fromkeys(one.opener for one in sides if one.opener not in session.ids)
    return [one for one in openers if _may_speak(home, one)]


def _may_speak(home: Partition, writer: bytes) -> bool:
    """Whether the writer is a session that is not closed here."""
    known = home.writers.get(writer)
    return time_of_writer(writer) is not None and known is not None and known.closed_at is None


class LeftConversation(NamedTuple):
    """Unfinished conversations of some groups that other processes have left behind."""

    conversations: list[bytes]
    """Conversations that exist, or from which messages came back."""
    writers: list[bytes]
    """Sessions to which messages came back."""
    codes: dict[bytes, int]
    """Conversation -> code of the Error that waits on it."""
    services: dict[bytes, str]
    """Existing conversation -> service of its target, which may be that of a redirection."""


def left_behind(home: Partition, groups: Collection[bytes]) -> LeftConversation:
    """The conversations of a pool's groups that other processes have left behind, from the state of their home."""
    marks = {mark_of(group) for group in groups}
    bounced = [one for one in home.mailbox.entries.values() if mark_of(one.conversation) in marks]
    living = [one for group in groups for one in home.members(group) if one.role is Role.INITIATOR]
    codes = {one.conversation: first_code(*_said_by(one.error[2] or b"")) for one in living if one.error is not None}
    found = dict.fromkeys([one.conversation for one in living] + [one.conversation for one in bounced])
    services = {one.conversation: one.far_service for one in living}
    return LeftConversation(list(found), list(dict.fromkeys(one.session for one in bounced)), codes, services)


def stream_ended(target: Partition, conversation: bytes, end_of_stream: str) -> bool:
    """Whether EndOfStream of a sender that died before its FIN waits at the target, or the target has no endpoint."""
    endpoint = target.endpoint(Role.TARGET, conversation)
    return endpoint is None or any(entry[1] == end_of_stream for entry in endpoint.queue)


class Farewell(NamedTuple):
    """The target has ended a pooled conversation: with an Error, or (code 0) without."""

    conversation: bytes
    code: int
    description: str
    askers: tuple[bytes, ...]
    """Writers whose FIN the target has answered: none of their messages is in flight."""
    kept: bool = False
    """Its sender will end it, after undelivered messages have come back."""

    @property
    def first_code(self) -> int:
        """Code of the service that failed first, if routers passed the Error on. It decides about resending (228)."""
        return first_code(self.code, self.description)


def is_answer(session: Session, dialog: SessionDialog, pooled: Pooled, farewell: Farewell) -> bool:
    """Whether the farewell answers EndOfStream, so that nothing is left to do.

    A target that ends before it has received EndOfStream sends messages back. Messages may also have come back when
    home has closed the conversation as well.
    """
    if pooled.stage is not Stage.CLOSING or farewell.code or pooled in pooled.place.awaits:
        return False
    return dialog.judged or _has_asked(session, farewell.askers)


def answer(
    transaction: Transaction, messages: Iterable[Message], keeps: Callable[[Farewell], bool]
) -> tuple[list[Message], list[Farewell]]:
    """Handle the system messages of pooled conversations, as Service Broker's activated procedure does (behaviour 226).

    DialogTimer: send EndOfStream. EndDialog and Error: END, unless the sender `keeps` the conversation, to end it after
    undelivered messages have come back (229). A sender in another process may want to do that. So it gets
    POOL_PATIENCE_MS to end the conversation, unless the target has answered its FIN: then nothing is in flight. Returns
    the messages that do not concern pools, and the farewells.
    """
    rest: list[Message] = []
    farewells: list[Farewell] = []
    ended: list[Endpoint] = []
    for message in messages:
        dialog = message.dialog
        if message.type not in SYSTEM or not is_pooled(dialog):
            rest.append(message)
            continue
        if message.type != DIALOG_TIMER:
            code, description = _said_by(message.body) if message.type == ERROR else (0, "")
            farewell = _farewell(dialog, code, description)
            farewell = farewell._replace(kept=keeps(farewell))
            farewells.append(farewell)
            if farewell.kept or dialog in ended or (_may_return(farewell.askers) and _leave(transaction, dialog)):
                continue
        if dialog in ended:
            continue
        if message.type == DIALOG_TIMER and (_end_waits(dialog) or not ring(transaction, dialog, keeps)):
            continue
        transaction.end(dialog)
        ended.append(dialog)
    return rest, farewells


def _farewell(dialog: Endpoint, code: int = 0, description: str = "") -> Farewell:
    return Farewell(dialog.conversation, code, description, dialog.finished.askers if dialog.finished else ())


def _end_waits(dialog: Endpoint) -> bool:
    """Whether the target's end waits to be received after the DialogTimer; the timer is then ignored."""
    return dialog.error is not None or (bool(dialog.queue) and dialog.queue[-1][1] == END_DIALOG)


def _may_return(askers: Iterable[bytes]) -> bool:
    """Whether messages may be in flight: no FIN of a session was answered, only one that an owner sent in its place."""
    return all(time_of_writer(asker) is None for asker in askers)


def _leave(transaction: Transaction, dialog: Endpoint) -> bool:
    """Set a timer, and leave the conversation to its sender until then. False if its lifetime is over before that."""
    try:
        transaction.remind(dialog, POOL_PATIENCE_MS)
    except TimerBeyondLifetime:
        return False
    return True


def ring(transaction: Transaction, dialog: Endpoint, keeps: Callable[[Farewell], bool]) -> bool:
    """The timer of a pooled conversation fired: its sender has not recycled it, so home does. True: this side must end.

    Home sends EndOfStream and FIN, and sets the timer again until the target has ended. This side ends at once when
    nothing ever reached the target: the sender died after its BEGIN, and the answer to FIN names no writer.

    Unless the sender `keeps` the conversation, this side also ends in two cases. EndOfStream is unknown or no longer in
    the contract: EndDialog, too, tells the target that nothing more comes. Or the target has ended the conversation and
    the sender has not ended it within POOL_PATIENCE_MS.
    """
    finished = dialog.finished
    if finished is not None and finished.answer == ():
        return True
    closed = finished is not None and finished.own
    ends = dialog.state not in SENDING or not (closed or _close_stream(transaction, dialog))
    if ends and not keeps(_farewell(dialog)):
        return True
    return not _leave(transaction, dialog) and ends  # without a timer the lifetime ends it, with an Error


def _close_stream(transaction: Transaction, dialog: Endpoint) -> bool:
    """Send EndOfStream and FIN. False when its message type is not known, or not in the contract any more."""
    end_of_stream = dialog.clock.end_of_stream if dialog.clock is not None else None
    if end_of_stream is None:
        return False
    try:
        transaction.send(dialog, end_of_stream)
    except (NotInContract, WrongDirection, UnknownObject):
        return False
    transaction.finish(dialog)
    return True


def _said_by(body: bytes) -> tuple[int, str]:
    """Code and description of an Error. A stranger may have written a body that is not an Error document."""
    try:
        return read_error(body)
    except MalformedRecord as error:
        return UNREADABLE, str(error)
