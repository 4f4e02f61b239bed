"""How a conversation that is used again and again is closed: EndOfStream, the target ends, the initiator ends.

FIN stands directly behind EndOfStream in the same log, so nothing of that side is received behind it, whoever sends
(protocol.md section 6). The original needs a lock for that, and an order of locks (behaviour 227). A message that came
too late is in the mailbox at the conversation's home, and goes on to the conversation that took its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.dialog.session.dialogs import DialogState
from konverse.dialog.session.lanes import heard, lost
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

from .places import Pooled, Stage, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from konverse.dialog.session.dialogs import SessionDialog
    from konverse.dialog.session.lanes import Hand
    from konverse.dialog.session.session import Session
    from konverse.dialog.state.endpoint import Endpoint
    from konverse.dialog.state.partition import Partition
    from konverse.dialog.transaction.received import Message
    from konverse.dialog.transaction.transaction import Transaction

SYSTEM: Final = (DIALOG_TIMER, END_DIALOG, ERROR)

UNREADABLE: Final = 1
"""In place of the code of an Error that is no Error document: nothing says that its messages may go again."""

RESENT: Final = (-8489, -8462, -9719, -28052)
"""Codes of an Error after which what was not received may be sent again on a new conversation (behaviour 228)."""


def is_pooled(endpoint: Endpoint) -> bool:
    """Whether a pool has begun it, of whatever process."""
    group, conversation = endpoint.group_id, endpoint.conversation
    if endpoint.role is not Role.INITIATOR or group == conversation or not is_of_pool(conversation):
        return False
    return mark_of(group) == mark_of(conversation)


def end_once(session: Session, dialog: SessionDialog) -> list[Hand]:
    """END of what a pool lets go, whichever of its ways comes to that first."""
    return session.end(dialog) if dialog.waiting_end is None else []


def recycle(session: Session, dialog: SessionDialog, end_of_stream: str) -> list[Hand]:
    """EndOfStream and FIN, in one step: no send of another thread comes between the two.

    Raises what `Session.send` does, and QueueFull while what was redirected to the dialog has not arrived.
    """
    session.check(dialog, b"")
    if dialog in session.redirecting:
        raise QueueFull("messages that were redirected to this dialog have not arrived yet; try again")
    return session.send(dialog, end_of_stream, b"") + session.finish(dialog)


def is_used(dialog: SessionDialog) -> bool:
    """Whether anything was sent on it, or redirected to it: else its target knows of nothing."""
    return bool(dialog.sent or dialog.held or dialog.redirects is not None)


def ask_verdict(session: Session, dialog: SessionDialog, end_of_stream: str | None = None) -> list[Hand]:
    """FIN on a dialog that takes no more: its answer says that all that was not received has come back.

    Nothing while something has to go first; ask again. What home has sent, as it was redirected, needs a verdict, too.
    `end_of_stream` goes before it when home has closed the dialog, too, and the target may not have heard that: of two
    FINs the first one counts, and its target would not hear of the end of the stream otherwise. Raises QueueFull.
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


def standing_of(home: Partition, session: Session, dialog: SessionDialog) -> Standing:
    """How a conversation of a session stands, as its home has it."""
    endpoint = home.endpoint(Role.INITIATOR, dialog.conversation)
    if endpoint is None:
        moved, begun = (Role.INITIATOR, dialog.conversation) in home.moves.stubs, (dialog.home, dialog.begun_at)
        return Standing(over=not moved and (heard(home, *begun) or lost(home, *begun)))
    finished, error = endpoint.finished, endpoint.error
    return Standing(
        ended=endpoint.committed in (State.DISCONNECTED_INBOUND, State.ERROR),
        finished=endpoint.committed is State.DISCONNECTED_OUTBOUND or (finished is not None and finished.own),
        answered=dialog.judged or (finished is not None and _has_asked(session, finished.askers)),
        code=None if error is None else first_code(*_said_by(error[2] or b"")),
        unread=endpoint.waits,
    )


def _has_asked(session: Session, askers: Collection[bytes]) -> bool:
    """Whether a FIN of this session was answered: all that it has sent was received then, or has come back."""
    return any(asker in session.ids for asker in askers)


def rivals_of(home: Partition, session: Session, groups: Iterable[bytes]) -> list[bytes]:
    """Sessions that live and have begun conversations of these groups, too: two processes have one pool."""
    sides = (one for group in groups for one in home.members(group) if one.role is Role.INITIATOR)
    openers = dict.fromkeys(one.opener for one in sides if one.opener not in session.ids)
    return [one for one in openers if _may_speak(home, one)]


def _may_speak(home: Partition, writer: bytes) -> bool:
    """Whether it is a session that nobody has closed here."""
    known = home.writers.get(writer)
    return time_of_writer(writer) is not None and known is not None and known.closed_at is None


class Left(NamedTuple):
    """What other processes have left of some groups."""

    conversations: list[bytes]
    """That somebody has begun, or of which something came back."""
    writers: list[bytes]
    """Sessions to which something came back."""
    codes: dict[bytes, int]
    """Conversation -> code of the Error that waits on it."""
    services: dict[bytes, str]
    """Conversation that lives -> service of its target: it may have been redirected."""


def left_behind(home: Partition, groups: Collection[bytes]) -> Left:
    """What other processes have left of some groups of a pool, as their home has it."""
    marks = {mark_of(group) for group in groups}
    bounced = [one for one in home.mailbox.entries.values() if mark_of(one.conversation) in marks]
    living = [one for group in groups for one in home.members(group) if one.role is Role.INITIATOR]
    codes = {one.conversation: first_code(*_said_by(one.error[2] or b"")) for one in living if one.error is not None}
    found = dict.fromkeys([one.conversation for one in living] + [one.conversation for one in bounced])
    services = {one.conversation: one.far_service for one in living}
    return Left(list(found), list(dict.fromkeys(one.session for one in bounced)), codes, services)


def stream_ended(target: Partition, conversation: bytes, end_of_stream: str) -> bool:
    """Whether the target of a conversation has EndOfStream, of a sender that died in front of its FIN."""
    endpoint = target.endpoint(Role.TARGET, conversation)
    return endpoint is None or any(entry[1] == end_of_stream for entry in endpoint.queue)


class Farewell(NamedTuple):
    """The target has ended a pooled conversation, with an Error or (code 0) without."""

    conversation: bytes
    code: int
    description: str
    askers: tuple[bytes, ...]
    """Whom the target has heard say that nothing more comes from them: nothing of theirs is on its way."""
    kept: bool = False
    """Its sender ends it, when what it did not deliver has come back."""

    @property
    def first_code(self) -> int:
        """Of whoever failed first, where routers have passed that on: it says whether messages may go again (228)."""
        return first_code(self.code, self.description)


def is_answer(session: Session, dialog: SessionDialog, pooled: Pooled, farewell: Farewell) -> bool:
    """Whether the target says farewell because of EndOfStream, and nothing is left to do.

    Who ends before it has heard that sends some of it back. So may have one whose home has closed it, too.
    """
    if pooled.stage is not Stage.CLOSING or farewell.code or pooled in pooled.place.awaits:
        return False
    return dialog.judged or _has_asked(session, farewell.askers)


def answer(
    transaction: Transaction, messages: Iterable[Message], keeps: Callable[[Farewell], bool]
) -> tuple[list[Message], list[Farewell]]:
    """What the initiator's activated procedure of the original does (behaviour 226), and what is left to do.

    DialogTimer: EndOfStream. EndDialog and Error: END, unless whoever sends on the conversation `keeps` it, to end it
    when what was not delivered has come back (229). Somebody in another process may: it is left to him for a minute,
    unless the target has answered his FIN, as nothing is on its way then. Returned are the messages that are no pool's
    matter, and the ends.
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
    """That its target has ended is received behind the timer, and decides."""
    return dialog.error is not None or (bool(dialog.queue) and dialog.queue[-1][1] == END_DIALOG)


def _may_return(askers: Iterable[bytes]) -> bool:
    """Whether something may be on its way, as no session's FIN was answered. Owners say it for one that seems gone."""
    return all(time_of_writer(asker) is None for asker in askers)


def _leave(transaction: Transaction, dialog: Endpoint) -> bool:
    """What its target has ended is left to its sender until its timer rings; False when it does not live that long."""
    try:
        transaction.remind(dialog, POOL_PATIENCE_MS)
    except TimerBeyondLifetime:
        return False
    return True


def ring(transaction: Transaction, dialog: Endpoint, keeps: Callable[[Farewell], bool]) -> bool:
    """The timer of a pooled conversation: its sender has not recycled it, so the home does. True: this side is to end.

    It is set again until the target has ended. There is none when nothing was ever received there, as the sender died
    behind its BEGIN: the answer to FIN names no writer then, and this side ends by itself. So it does when the contract
    knows its EndOfStream no more, as EndDialog tells the target too that nothing more comes; and when the target has
    ended it, and its sender did not within a minute. Not while whoever sends on it `keeps` it.
    """
    finished = dialog.finished
    if finished is not None and finished.answer == ():
        return True
    closed = finished is not None and finished.own
    ends = dialog.state not in SENDING or not (closed or _close_stream(transaction, dialog))
    if ends and not keeps(_farewell(dialog)):
        return True
    return not _leave(transaction, dialog) and ends  # else it is over before, with an Error


def _close_stream(transaction: Transaction, dialog: Endpoint) -> bool:
    """EndOfStream and FIN; False when nobody knows its type, or its contract does not any more."""
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
    """Code and description of an Error; whoever writes to the log may have written what is none."""
    try:
        return read_error(body)
    except MalformedRecord as error:
        return UNREADABLE, str(error)
