"""What a session knows of the messages that its homes send for it, and how its own wait for them.

REDIRECT goes to home, and home sends the message; so a dialog has two ways to its target, and one is used at a time
(protocol.md section 5). A REDIRECT leaves when all that the session itself sent on the dialog counts. What the session
sends behind a REDIRECT is held until home's journal says that the redirected messages are in the target's log.

How a session begins its dialogs, and which it has ended: none with an id of its caller's choice begins again.

How the records of a session say which conversation they mean, when a caller has chosen its id (protocol.md 9e).

Another conversation may have that id by the time they arrive. So they name the writer of the BEGIN.
"""

from __future__ import annotations

from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.transitions import State
from konverse.schemas.errors import (
    ENDED_TWICE,
    ConversationEnded,
    ConversationOver,
    DialogNotFound,
    InvalidState,
    QueueFull,
    TimerRefused,
)
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import SESSION_OVER_ENTRIES_MAX, SESSION_RECORD_BYTES
from konverse.schemas.system_messages import ANOTHER_ID, END_DIALOG
from konverse.schemas.wire.envelope import decode_suffix, encode_suffix, head
from konverse.schemas.wire.records import (
    ANEW,
    FIRST,
    FOR_EVER,
    NAMED,
    NO_SEQUENCE,
    NO_TIMER,
    RETURNING,
    Begin,
    BounceId,
    Kind,
    Opened,
    Suffix,
    Timer,
)
from konverse.schemas.wire.varint import LOW_MASK, SMALL, varint

from .lanes import Lane, Single, heard, refused, weight_of

if TYPE_CHECKING:
    from konverse.dialog.state.partition import Partition

_END_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
_ENDED_ENTRIES_MAX: Final = 1_000
"""Kept beside as many as live."""


class Redirects:
    """The REDIRECTs of one dialog."""

    __slots__ = ("_lane", "_limit", "_source", "counter", "opened")

    def __init__(self) -> None:
        self.counter: int | None = None
        """Of the latest REDIRECT in the home lane; None when everything that was redirected has arrived."""
        self._lane: Lane | None = None
        """Where it was put; another lane may have it now."""
        self.opened = False
        """Home has sent FIRST."""
        self._source: Partition | None = None
        self._limit = 0

    def put(self, dialog: SessionDialog, bounce: BounceId) -> None:
        """A REDIRECT into the home lane. It is FIRST when neither the session nor home has sent anything, so far known.

        Home decides: of several such REDIRECTs the first that finds its bounce opens the conversation.
        """
        first = not (dialog.sent or self.opened)
        home, flags = dialog.home, dialog.flags | FIRST if first else dialog.flags
        prefix = head(Kind.REDIRECT, flags, Role.INITIATOR, home.address.tag, home.writer) + dialog.conversation
        self.counter, self._lane, self._source = home.next, home, None
        home.put(Single(prefix, -1, dialog.key), control(dialog, bounce, dialog.begin if first else None), None)

    def arrived(self, dialog: SessionDialog, home: Partition) -> bool:
        """Whether home has heard the latest REDIRECT, and what it sent by then is in the target's log.

        The number up to which that must be so is taken from one fold and compared with the same one: another fold may
        have ingested the REDIRECT in another commit and given other numbers.
        """
        if self.counter is None or self._lane is None:
            return False
        if not (heard(home, self._lane, self.counter) or refused(home, self._lane, self.counter)):
            return False
        stream = home.streams.get(dialog.target.address)
        if self._source is not home:
            self._source, self._limit = home, stream.next if stream else 0
        if stream is not None and stream.acked < self._limit:
            return False
        self.opened = _was_opened(home, dialog.conversation)
        self.counter = None
        return True


def _was_opened(home: Partition, conversation: bytes) -> bool:
    """Whether home has sent FIRST, or nobody has to any more. One that moved away is as it was when it left."""
    chain = home.moves.stubs.get((Role.INITIATOR, conversation))
    if chain:
        return next(iter(chain.values())).opened
    endpoint = home.endpoint(Role.INITIATOR, conversation)
    return endpoint is None or endpoint.committed is not State.STARTED_OUTBOUND


def confirmation(home: Lane, conversation: bytes, bounce: BounceId) -> tuple[Single, bytes]:
    """CONFIRM, and the end of its header."""
    prefix = head(Kind.CONFIRM, 0, Role.INITIATOR, home.address.tag, home.writer) + conversation
    return Single(prefix, -1, conversation), encode_suffix(Suffix(detail=bounce))


class Manner(NamedTuple):
    """How a dialog is begun, beside its BEGIN."""

    returning: bool = False
    """What comes to its target when that has ended comes back."""
    named: bool = False
    """The caller has chosen its id."""
    anew: bool = False
    """Although a conversation with this id may be over."""
    level: int = NO_SEQUENCE
    """The priority of the initiator's side; -1: its home asks the catalog."""

    @property
    def flags(self) -> int:
        """Of all messages."""
        return RETURNING * self.returning | NAMED * self.named | ANEW * self.anew


PLAIN: Final = Manner()


class EndedHere:
    """Conversations with ids of the caller's choice that a session has ended."""

    def __init__(self) -> None:
        self._over: dict[bytes, None] = {}

    def check(self, conversation: bytes, manner: Manner) -> None:
        """Raise ConversationOver for one of them, unless it is to begin anew."""
        if conversation in self._over and not manner.anew:
            raise ConversationOver(
                f"conversation {UUID(bytes=conversation)} is over: this session has ended it. {ANOTHER_ID}"
            )

    def begun(self, conversation: bytes) -> None:
        """It lives again."""
        self._over.pop(conversation, None)

    def add(self, dialog: SessionDialog) -> None:
        """The session ends a dialog; the oldest one goes when there are too many."""
        if dialog.flags & NAMED:
            if len(self._over) >= SESSION_OVER_ENTRIES_MAX:
                del self._over[next(iter(self._over))]
            self._over[dialog.conversation] = None


def opened(dialog: SessionDialog) -> Opened | None:
    """Of its messages, FIN and END_CALL; None when nobody else can have its id."""
    return Opened(dialog.opener) if dialog.flags & NAMED else None


def control(dialog: SessionDialog, detail: Timer | BounceId, begin: Begin | None = None) -> bytes:
    """The end of the header of SET_TIMER and REDIRECT, in which `origin` says so."""
    return encode_suffix(Suffix(begin=begin, origin=dialog.opener if dialog.flags & NAMED else None, detail=detail))


def end_call(dialog: SessionDialog) -> bytes:
    """The end of the header of END_CALL."""
    return encode_suffix(Suffix(END_DIALOG, detail=opened(dialog))) if dialog.flags & NAMED else _END_SUFFIX


def first_under(suffix: bytes, writer: bytes) -> bytes:
    """The end of a FIRST that another writer sends than the one that began."""
    value = decode_suffix(suffix)
    return suffix if value.detail is not None else encode_suffix(value._replace(detail=Opened(writer)))


def control_under(suffix: bytes, writer: bytes) -> bytes:
    """As `control`, of a dialog whose BEGIN goes under another id."""
    value = decode_suffix(suffix)
    return suffix if value.origin is None else encode_suffix(value._replace(origin=writer))


class DialogState(Enum):
    """Where a session stands with a dialog that it began."""

    STAGED = "staged"
    """Begun in a transaction that was not committed yet."""
    BEGINNING = "beginning"
    OPEN = "open"
    ENDING = "ending"
    ENDED = "ended"
    NOT_BEGUN = "not begun"
    """Its BEGIN was rolled back: there is no such conversation, and nothing can be done with it."""


class SessionDialog:
    """A dialog that the session began."""

    __slots__ = (
        "begin", "begun_at", "conversation", "finished", "flags", "held", "home", "judged", "key", "last", "level",
        "open", "opener", "pending", "placed", "prefix", "redirects", "sent", "state", "suffixes", "target",
        "waiting_end",
    )  # fmt: skip

    def __init__(self, conversation: bytes, begin: Begin, home: Lane, target: Lane, manner: Manner) -> None:
        self.conversation = conversation
        self.begin = begin
        self.flags = manner.flags
        """Of every message, and of what is redirected to it: RETURNING, NAMED, ANEW."""
        self.level = manner.level
        """The priority of this side, in place of the number of its BEGIN."""
        self.opener = home.writer
        """Writer of its BEGIN."""
        self.home = home
        self.target = target
        self.key = begin.key or begin.group
        self.state = DialogState.BEGINNING
        self.open = False
        """FIRST was sent and no end was called: messages need no further thought."""
        self.begun_at = -1
        """Counter of BEGIN in the home lane."""
        self.last = -1
        """Counter in the target lane before which no END may leave, once it was called."""
        self.sent = 0
        """Sequence number of the next message."""
        self.held: list[tuple[str, bytes] | BounceId] = []
        """What waits for BEGIN, or behind a REDIRECT: messages, and bounces that are redirected to this dialog."""
        self.redirects: Redirects | None = None
        """Home sends on this dialog too, from the first REDIRECT on: the session does not number its own any more."""
        self.suffixes = home.contracts.setdefault(begin.contract, {}) if not self.flags & NAMED else {}
        """Of each message type that was sent; dialogs with the same contract and home share it."""
        self.waiting_end: bytes | None = None
        """Body of the END call that waits for the sends; b"" for a plain end."""
        self.finished = False
        """FIN was called."""
        self.judged = False
        """Adopted when a side had ended or said FIN: each of its messages was received, or has come back."""
        self.pending = 0
        """Transactions with this dialog whose outputs may not have arrived: nothing is sent directly meanwhile."""
        self.placed: int | None = None
        """What the catalog said of its home when it began: its group is elsewhere when that says another thing."""
        self.prefix = self._prefix(target)
        """Of the header of every message but the first."""

    def _prefix(self, target: Lane) -> bytes:
        address = target.address
        return head(Kind.MESSAGE, self.flags, Role.INITIATOR, address.tag, target.writer) + self.conversation

    def was_begun_by(self, writer: bytes) -> None:
        """Its BEGIN goes, or went, under this id."""
        self.opener = writer
        if self.flags & NAMED:
            self.suffixes = {}  # they name it

    @property
    def returning(self) -> bool:
        """What comes to its target when that has ended comes back."""
        return bool(self.flags & RETURNING)

    @property
    def blocked(self) -> bool:
        """A send has to wait for a transaction."""
        sending = self.state in (DialogState.BEGINNING, DialogState.OPEN)
        return self.pending > 0 and sending and self.waiting_end is None and not self.finished

    def check_open(self, *, ends: bool = False) -> None:
        """Raise ConversationEnded when nothing may be sent on it (8429), or it may not be ended again (8427).

        DialogNotFound (8426) when it was never begun. What the peer has ended is still to be ended here, once.
        """
        if self.state is DialogState.STAGED:
            raise InvalidState("the dialog was begun in a transaction that has not been committed; use it inside of it")
        if self.state is DialogState.NOT_BEGUN:
            raise DialogNotFound(
                f"there is no conversation {UUID(bytes=self.conversation)}: the transaction that began it has not "
                "committed that; begin it again"
            )
        if ends and self.waiting_end is not None:
            raise ConversationEnded(f"conversation {UUID(bytes=self.conversation)} was ended already", ENDED_TWICE)
        if self.waiting_end is not None or (self.state is DialogState.ENDED and not ends):
            raise ConversationEnded(f"the dialog was ended; begin a new one to send to {self.begin.to_service}")
        if self.finished and not ends:
            raise ConversationEnded(f"the dialog was finished; begin a new one to send to {self.begin.to_service}")

    def check_timer(self, timeout_ms: int) -> None:
        """Raise TimerRefused when no timer of it may be set any more; one that is set is there until this side ends."""
        if self.waiting_end is not None:
            raise TimerRefused("the dialog was ended, which has cancelled its timer")
        if self.state is DialogState.ENDED and timeout_ms != NO_TIMER:
            raise TimerRefused("the peer has ended the dialog, or its lifetime is over: set no timer, end it")
        self.check_open(ends=True)

    def check_path(self) -> None:
        """Raise QueueFull while what was sent on it in a transaction has not arrived."""
        if self.blocked:
            raise QueueFull("a transaction with this dialog has not arrived yet; try again")

    def go_along(self) -> None:
        """Go on with the lanes that its lanes have become."""
        if self.home.moved is not None:
            self.begun_at = self.home.where(self.begun_at)
            self.home = self.home.present
        if self.target.moved is not None:
            self.last = self.target.where(self.last)
            target = self.target = self.target.present
            self.prefix = self._prefix(target)
        self.reopen()

    def reopen(self) -> None:
        """See whether messages need no further thought."""
        ready = self.state is DialogState.OPEN and self.waiting_end is None and not self.target.retired
        self.open = bool(self.sent) and ready and not (self.finished or self.pending) and self.redirects is None

    def drop_held(self) -> None:
        """The messages that are held are not sent; what is redirected to this dialog is."""
        self.target.room += sum(weight_of(item[1]) for item in self.held if not isinstance(item, BounceId))
        self.held = [item for item in self.held if isinstance(item, BounceId)]

    @property
    def next_sequence(self) -> int:
        """Number of the next message; NO_SEQUENCE when home sends on the dialog too."""
        return self.sent + len(self.held) if self.redirects is None else NO_SEQUENCE

    def suffix_of(self, message_type: str) -> bytes:
        """The end of the header of every message of a type but the first."""
        suffix = self.suffixes.get(message_type)
        if suffix is None:
            suffix = self.suffixes[message_type] = encode_suffix(
                Suffix(message_type, home=self.begin.home, detail=opened(self))
            )
        return suffix

    def stage(self, message_type: str, body: bytes) -> bytes:
        """The header of the next message of an `open` dialog."""
        suffix = self.suffixes.get(message_type)
        if suffix is None:
            suffix = self.suffix_of(message_type)
        lane = self.target
        lane.origins.append(self)
        lane.suffixes.append(suffix)
        lane.bodies.append(body)
        lane.weight += len(body) + SESSION_RECORD_BYTES
        sequence = self.sent
        self.sent = sequence + 1
        number = SMALL[sequence] if sequence <= LOW_MASK else varint(sequence)
        counter = lane.next
        header = b"".join((self.prefix, lane.low[counter & LOW_MASK], lane.high, number, suffix))
        lane.next = counter = counter + 1
        if not counter & LOW_MASK:
            lane.carry()
        return header


class Lifetimes:
    """Dialogs of a session that were begun for a while: it sends nothing on them when that is over, whatever it hears.

    Home and target count by the log; this clock is the session's own, and counts from when it was looked at first.
    """

    def __init__(self) -> None:
        self._new: list[SessionDialog] = []
        self._heap: list[tuple[int, int, SessionDialog]] = []
        """When each is over, and a number that no two have."""
        self._counted = 0
        self._room = _ENDED_ENTRIES_MAX

    def begun(self, dialog: SessionDialog) -> None:
        """Count from now on."""
        if dialog.begin.lifetime_ms != FOR_EVER:
            self._new.append(dialog)

    def over(self, now_ms: int) -> list[SessionDialog]:
        """Those whose lifetime is over; what was ended before is forgotten."""
        new, self._new = self._new, []
        for dialog in new:
            self._counted += 1
            heappush(self._heap, (now_ms + dialog.begin.lifetime_ms, self._counted, dialog))
        if len(self._heap) > self._room:
            self._heap = [entry for entry in self._heap if entry[2].state not in _OVER]
            heapify(self._heap)
            self._room = 2 * len(self._heap) + _ENDED_ENTRIES_MAX
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            found.append(heappop(self._heap)[2])
        return found


_OVER: Final = (DialogState.ENDED, DialogState.NOT_BEGUN)
