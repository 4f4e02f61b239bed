"""A dialog in the session that began it: its state, its headers, and the messages that it holds back.

A session sends straight to the target. By a REDIRECT it has the dialog's home send a message, so a dialog has two paths
to its target and uses one at a time (protocol.md section 5). A REDIRECT leaves when everything that the session itself
sent on the dialog is acknowledged. Messages that the session sends after a REDIRECT are held until the home's journal
shows that the redirected messages are in the target's log.

A caller may choose the id of a conversation (section 9e). A session that has ended such a dialog does not begin it
again.
"""

from __future__ import annotations

from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from konverse.dialog.state.transitions import State, next_state
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

from .lanes import Lane, Single, has_ingested, refused, weight_of

if TYPE_CHECKING:
    from konverse.dialog.state.partition import Partition

END_CALL_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
_ENDED_ENTRIES_MAX: Final = 1_000
"""`Lifetimes` keeps at most this many ended dialogs, plus as many as there are live ones."""


class Redirects:
    """The REDIRECTs of one dialog, and whether they have arrived."""

    __slots__ = ("_lane", "_limit", "_opened", "_source", "counter", "opened")

    def __init__(self) -> None:
        self.counter: int | None = None
        """Counter of the latest REDIRECT in the home lane; None when everything redirected has arrived."""
        self._lane: Lane | None = None
        """The lane into which it was put; the record may have moved since."""
        self.opened = False
        """Home has sent FIRST."""
        self._source: Partition | None = None
        self._limit, self._opened = 0, False

    def put(self, dialog: SessionDialog, bounce: BounceId) -> None:
        """Put a REDIRECT into the home lane: as FIRST when neither session nor home is known to have sent anything.

        Home decides: of several such REDIRECTs, the first that finds its bounced message opens the conversation.
        """
        first = not (dialog.sent or self.opened)
        home, flags = dialog.home, dialog.flags | FIRST if first else dialog.flags
        prefix = head(Kind.REDIRECT, flags, Role.INITIATOR, home.address.tag, home.writer) + dialog.conversation
        self.counter, self._lane, self._source = home.next, home, None
        home.put(Single(prefix, -1, dialog.key), control(bounce, dialog.begin if first else None), None)

    def arrived(self, dialog: SessionDialog, home: Partition) -> bool:
        """Whether home has ingested the latest REDIRECT, and everything home had sent by then is in the target's log.

        The counter that must be acknowledged is taken from one fold of home and compared within that fold only. Another
        fold may have ingested the REDIRECT in another commit, with other counters.
        """
        if self.counter is None or self._lane is None:
            return False
        if not (has_ingested(home, self._lane, self.counter) or refused(home, self._lane, self.counter)):
            return False
        stream = home.streams.get(dialog.target.address)
        if self._source is not home:
            # read both at once: the limit does not cover records that home sends later, such as a handler's FIRST
            self._source, self._limit = home, stream.next if stream else 0
            self._opened = _was_opened(home, dialog.conversation)
        if stream is not None and stream.acked < self._limit:
            return False
        self.opened = self._opened
        self.counter = None
        return True


def _was_opened(home: Partition, conversation: bytes) -> bool:
    """Whether home has sent FIRST, or FIRST is no longer needed. The stub of a moved endpoint has the answer."""
    chain = home.moves.stubs.get((Role.INITIATOR, conversation))
    if chain:
        return next(iter(chain.values())).opened
    endpoint = home.endpoint(Role.INITIATOR, conversation)
    return endpoint is None or endpoint.committed is not State.STARTED_OUTBOUND


def confirmation(home: Lane, conversation: bytes, bounce: BounceId) -> tuple[Single, bytes]:
    """CONFIRM, and the suffix of its header."""
    prefix = head(Kind.CONFIRM, 0, Role.INITIATOR, home.address.tag, home.writer) + conversation
    return Single(prefix, -1, conversation), encode_suffix(Suffix(detail=bounce))


class BeginOptions(NamedTuple):
    """Options of a new dialog that are not in its BEGIN block."""

    returning: bool = False
    """Messages that reach the target after it has ended come back."""
    named: bool = False
    """The caller chose its id."""
    level: int = NO_SEQUENCE
    """Priority of the initiator's side; -1: its home asks the catalog."""

    @property
    def flags(self) -> int:
        """Flags of all its messages."""
        return RETURNING * self.returning | NAMED * self.named


PLAIN: Final = BeginOptions()


class EndedConversations:
    """Conversations with caller-chosen ids that a session has ended."""

    def __init__(self) -> None:
        self._over: dict[bytes, None] = {}

    def check(self, conversation: bytes) -> None:
        """Raise ConversationOver for a conversation that the session has ended."""
        if conversation in self._over:
            raise ConversationOver(
                f"conversation {UUID(bytes=conversation)} is over: this session has ended it. {ANOTHER_ID}"
            )

    def add(self, dialog: SessionDialog) -> None:
        """Remember that the session ends this dialog. The oldest entry is dropped when there are too many."""
        if dialog.flags & NAMED:
            if len(self._over) >= SESSION_OVER_ENTRIES_MAX:
                del self._over[next(iter(self._over))]
            self._over[dialog.conversation] = None

    def discard(self, dialog: SessionDialog) -> None:
        """Forget that the session has ended this dialog: the transaction that ended it did not happen."""
        self._over.pop(dialog.conversation, None)


def control(detail: Timer | BounceId, begin: Begin | None = None) -> bytes:
    """Header suffix of SET_TIMER and REDIRECT."""
    return encode_suffix(Suffix(begin=begin, detail=detail))


def first_under(suffix: bytes, writer: bytes) -> bytes:
    """Header suffix of a FIRST that is sent under another id than its BEGIN: it names `writer`, the writer of BEGIN."""
    value = decode_suffix(suffix)
    return suffix if value.detail is not None else encode_suffix(value._replace(detail=Opened(writer)))


class DialogState(Enum):
    """The state of a dialog in the session that began it; DIALOG_TRANSITIONS has its changes."""

    BEGINNING = "beginning"
    """Its BEGIN is not acknowledged."""
    STAGED = "staged"
    """Begun in a transaction that is not committed yet."""
    OPEN = "open"
    ENDING = "ending"
    """END is called, and waits for records of the dialog that are not acknowledged."""
    ENDED = "ended"
    NOT_BEGUN = "not begun"
    """Its BEGIN was rolled back: there is no such conversation."""


class DialogEvent(Enum):
    """An event that changes the state of a dialog in its session."""

    STAGED = "begun in a client transaction"
    ROLLED_BACK = "the transaction, or the step that begins it, is rolled back"
    COMMITTED = "the transaction that begins it is handed over"
    BEGUN = "its BEGIN is acknowledged"
    ADOPTED = "another process began it, and its home has answered"
    END_CALLED = "END is called"
    OVER = "END is written, home reports the end of the peer, or a transaction that used it did not happen"


DIALOG_TRANSITIONS: Final = {
    (DialogState.BEGINNING, DialogEvent.STAGED): DialogState.STAGED,
    (DialogState.BEGINNING, DialogEvent.BEGUN): DialogState.OPEN,
    (DialogState.BEGINNING, DialogEvent.ADOPTED): DialogState.OPEN,
    (DialogState.BEGINNING, DialogEvent.END_CALLED): DialogState.BEGINNING,
    (DialogState.STAGED, DialogEvent.ROLLED_BACK): DialogState.NOT_BEGUN,
    (DialogState.STAGED, DialogEvent.COMMITTED): DialogState.OPEN,
    (DialogState.OPEN, DialogEvent.END_CALLED): DialogState.ENDING,
    (DialogState.BEGINNING, DialogEvent.OVER): DialogState.ENDED,
    (DialogState.OPEN, DialogEvent.OVER): DialogState.ENDED,
    (DialogState.ENDING, DialogEvent.OVER): DialogState.ENDED,
    (DialogState.ENDED, DialogEvent.OVER): DialogState.ENDED,
    (DialogState.ENDED, DialogEvent.END_CALLED): DialogState.ENDED,
}
"""Every change of the state of a dialog. An END that was called before BEGIN is acknowledged waits in `waiting_end`."""


class SessionDialog:
    """A dialog that the session began, or adopted."""

    __slots__ = (
        "begin", "begun_at", "conversation", "expires_ms", "finished", "flags", "held", "home", "judged", "key", "last",
        "level", "open", "opener", "pending", "placed", "prefix", "redirects", "sent", "state", "suffixes", "target",
        "waiting_end",
    )  # fmt: skip

    def __init__(self, conversation: bytes, begin: Begin, home: Lane, target: Lane, manner: BeginOptions) -> None:
        self.conversation = conversation
        self.begin = begin
        self.flags = manner.flags
        """Flags of every message, including redirected ones: RETURNING and NAMED."""
        self.level = manner.level
        """Priority of this side; BEGIN has it in place of a sequence number."""
        self.opener = home.writer
        """Writer of its BEGIN."""
        self.home = home
        self.target = target
        self.key = begin.key or begin.group
        self.state = DialogState.BEGINNING
        """Changed by `on` alone."""
        self.open = False
        """The driver may send on it with `stage`; `reopen` says when."""
        self.begun_at = -1
        """Counter of BEGIN in the home lane."""
        self.last = -1
        """Counter in the target lane that must be acknowledged before END or a REDIRECT may leave."""
        self.sent = 0
        """Sequence number of the next message."""
        self.held: list[tuple[str, bytes] | BounceId] = []
        """Items held until BEGIN or a REDIRECT takes effect: messages, and bounced messages to redirect here."""
        self.redirects: Redirects | None = None
        """Set by the first REDIRECT or by adoption: home sends too, so the session does not number its messages."""
        self.suffixes = home.contracts.setdefault(begin.contract, {})
        """Message type -> header suffix; dialogs with the same contract and home share it."""
        self.waiting_end: bytes | None = None
        """Body of the END call; b"" for a plain end, None before END is called."""
        self.finished = False
        """FIN was called."""
        self.judged = False
        """It was adopted after a side had ended or sent FIN: each of its messages was received or has come back."""
        self.pending = 0
        """Number of transactions whose outputs for it may not have arrived: no direct sends meanwhile."""
        self.expires_ms: int | None = None
        """End of its lifetime by this process's clock; None for a dialog without one, and until its BEGIN has left."""
        self.placed: int | None = None
        """`Catalog.placed` of the initiator's service at the begin. Another number later: the group has moved since."""
        self.prefix = self._prefix(target)
        """Header prefix of every message but the first."""

    def _prefix(self, target: Lane) -> bytes:
        address = target.address
        return head(Kind.MESSAGE, self.flags, Role.INITIATOR, address.tag, target.writer) + self.conversation

    def on(self, event: DialogEvent) -> None:
        """Change the state."""
        self.state = next_state(DIALOG_TRANSITIONS, self.state, event)

    @property
    def returning(self) -> bool:
        """Whether messages that reach the target after it has ended come back."""
        return bool(self.flags & RETURNING)

    @property
    def unsettled(self) -> bool:
        """Whether a call must wait for a transaction that it would overtake."""
        living = self.state in (DialogState.BEGINNING, DialogState.OPEN)
        return self.pending > 0 and living and self.waiting_end is None

    @property
    def blocked(self) -> bool:
        """Whether a send must wait for a transaction. After `finish` it is refused, so it need not wait."""
        return self.unsettled and not self.finished

    def check_open(self, *, ends: bool = False) -> None:
        """Raise ConversationEnded when nothing may be sent on it (8429), or it may not be ended again (8427).

        Raises DialogNotFound (8426) when it was never begun, InvalidState when its BEGIN is in an open transaction. A
        dialog that the peer has ended must still be ended here, once.
        """
        if self.state is DialogState.STAGED:
            raise InvalidState(
                "the dialog was begun in a transaction that has not been committed; use it inside that transaction"
            )
        if self.state is DialogState.NOT_BEGUN:
            raise DialogNotFound(
                f"there is no conversation {UUID(bytes=self.conversation)}: the transaction that began it was "
                "not committed; begin it again"
            )
        if ends and self.waiting_end is not None:
            raise ConversationEnded(f"conversation {UUID(bytes=self.conversation)} was ended already", ENDED_TWICE)
        if self.waiting_end is not None or (self.state is DialogState.ENDED and not ends):
            raise ConversationEnded(
                f"conversation {UUID(bytes=self.conversation)} was ended; begin a new one to send to "
                f"{self.begin.to_service}"
            )
        if self.finished and not ends:
            raise ConversationEnded(
                f"conversation {UUID(bytes=self.conversation)} was finished (`finish`); begin a new one to send to "
                f"{self.begin.to_service}"
            )

    def check_timer(self, timeout_ms: int) -> None:
        """Raise TimerRefused when its timer may not be set any more. A timer that is set stays until this side ends."""
        if self.waiting_end is not None:
            raise TimerRefused("the dialog was ended, which has cancelled its timer")
        if self.state is DialogState.ENDED and timeout_ms != NO_TIMER:
            raise TimerRefused(
                "the peer has ended the dialog, or its lifetime is over: no timer can be set; call `end`"
            )
        self.check_open(ends=True)

    def check_path(self) -> None:
        """Raise QueueFull while outputs of a transaction on it have not arrived."""
        if self.unsettled:
            raise QueueFull("outputs of an earlier transaction on this dialog have not arrived yet; try again")

    def go_along(self) -> None:
        """Follow its records to the lanes that hold them now."""
        if self.home.moved is not None:
            self.begun_at = self.home.where(self.begun_at)
            self.home = self.home.present
        if self.target.moved is not None:
            self.last = self.target.where(self.last)
            target = self.target = self.target.present
            self.prefix = self._prefix(target)
        self.reopen()

    def reopen(self) -> None:
        """Recompute `open`: FIRST was sent, no end was called, and nothing has to arrive before the next message."""
        ready = self.state is DialogState.OPEN and self.waiting_end is None and not self.target.retired
        self.open = bool(self.sent) and ready and not (self.finished or self.pending) and self.redirects is None

    def drop_held(self) -> None:
        """Drop the held messages. Bounced messages to redirect to this dialog stay."""
        self.target.room += sum(weight_of(item[1]) for item in self.held if not isinstance(item, BounceId))
        self.held = [item for item in self.held if isinstance(item, BounceId)]

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next message; NO_SEQUENCE when home sends on the dialog too."""
        return self.sent + len(self.held) if self.redirects is None else NO_SEQUENCE

    def suffix_of(self, message_type: str) -> bytes:
        """Header suffix of every message of this type except the first message of the dialog."""
        suffix = self.suffixes.get(message_type)
        if suffix is None:
            suffix = self.suffixes[message_type] = encode_suffix(Suffix(message_type, home=self.begin.home))
        return suffix

    def stage(self, message_type: str, body: bytes) -> bytes:
        """Append the next message of an `open` dialog to its lane; returns the header."""
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
    """Dialogs with a lifetime: when it is over the session sends nothing more, even before their homes report it.

    Home and target measure the lifetime by the time of the log, the session by its own clock: from the first `over`
    after the BEGIN.
    """

    def __init__(self) -> None:
        self._new: list[SessionDialog] = []
        self._heap: list[tuple[int, int, SessionDialog]] = []
        """(end of the lifetime in ms, a unique number, dialog)."""
        self._counted = 0
        self._room = _ENDED_ENTRIES_MAX

    def begun(self, dialog: SessionDialog) -> None:
        """Measure the lifetime of a dialog, if it has one."""
        if dialog.begin.lifetime_ms != FOR_EVER:
            self._new.append(dialog)

    def over(self, now_ms: int) -> list[SessionDialog]:
        """Dialogs whose lifetime is over. Forgets dialogs that have already ended."""
        new, self._new = self._new, []
        for dialog in new:
            self._counted += 1
            dialog.expires_ms = now_ms + dialog.begin.lifetime_ms
            heappush(self._heap, (dialog.expires_ms, self._counted, dialog))
        if len(self._heap) > self._room:
            self._heap = [entry for entry in self._heap if entry[2].state not in _OVER]
            heapify(self._heap)
            self._room = 2 * len(self._heap) + _ENDED_ENTRIES_MAX
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            found.append(heappop(self._heap)[2])
        return found


_OVER: Final = (DialogState.ENDED, DialogState.NOT_BEGUN)
