"""Where the records of a session go: a lane for each destination partition, and the dialogs that fill the lanes."""

from __future__ import annotations

from collections import deque
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from konverse.schemas.envelope import CONVERSATION_AT, encode_suffix, head
from konverse.schemas.error_texts import ENDED_TWICE
from konverse.schemas.errors import ConversationEnded, DialogNotFound, InvalidState, QueueFull, TimerRefused
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import SESSION_RECORD_BYTES, SESSION_WINDOW_BYTES_MAX
from konverse.schemas.records import NAMED, NO_SEQUENCE, NO_TIMER, RETURNING, Begin, BounceId, Kind, Role, Suffix
from konverse.schemas.token import Sent
from konverse.schemas.varint import LOW_MASK, SMALL, high_part, low_table, varint

from .manner import Manner
from .opened import opened
from .window import Window

if TYPE_CHECKING:
    from .redirecting import Redirects

Handed = tuple[bytes, bytes, bytes | None]
"""A record for the producer: header, key, body."""


class Single(NamedTuple):
    """A record that is like no other: BEGIN, a first message, END, CLOSE_WRITER."""

    prefix: bytes
    """Of its header: everything before the counter."""
    sequence: int
    key: bytes

    @property
    def is_message(self) -> bool:
        """Whether it is a message of the application."""
        return self.prefix[0] == Kind.MESSAGE << 1


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


class Lane:
    """Records of the session for one destination partition: counters, and what may have to go again.

    Of a message nothing new is kept, only its dialog, its suffix and its body: its header is made of them once more if
    it has to go again. Finished headers would fill the caches of a busy sender, and be freed when they have left them.
    """

    __slots__ = (
        "address",
        "bodies",
        "contracts",
        "high",
        "low",
        "moved",
        "next",
        "origins",
        "parked",
        "place",
        "retired",
        "room",
        "shift",
        "suffixes",
        "weight",
        "window",
        "writer",
    )

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.place = (address.topic, address.partition)
        self.window = Window()
        self.next = 0
        self.origins: deque[SessionDialog | Single] = deque()
        """Whose the records window.acked … next-1 are."""
        self.suffixes: deque[bytes] = deque()
        """Of their headers."""
        self.bodies: deque[bytes | None] = deque()
        self.contracts: dict[str, dict[str, bytes]] = {}
        """Contract -> message type -> suffix, of the dialogs that have their home here."""
        self.weight = 0
        """Bytes that are kept: of the bodies, and SESSION_RECORD_BYTES for each record."""
        self.room = SESSION_WINDOW_BYTES_MAX
        """Bytes that may be kept: the window, less what messages that wait for a BEGIN will take."""
        self.parked = False
        """The destination refused something: nothing is handed over to it until it is tried again."""
        self.retired = False
        """Its writer is about to be closed: it takes records, and hands over none."""
        self.moved: Lane | None = None
        """Where its records are now, under another writer."""
        self.shift = 0
        """What their counters are higher there."""
        self.low = SMALL
        self.high = b""

    def put(self, origin: SessionDialog | Single, suffix: bytes, body: bytes | None) -> None:
        """The next record (of a message, the driver's hot path does this inline)."""
        self.origins.append(origin)
        self.suffixes.append(suffix)
        self.bodies.append(body)
        self.weight += weight_of(body)
        self.next += 1
        if not self.next & LOW_MASK:
            self.carry()

    def carry(self) -> None:
        """Renew the bytes of the running counter; needed whenever its low part starts again."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    @property
    def quiet(self) -> bool:
        """Nothing of it is on its way, and no message waits for a BEGIN to go here."""
        return self.window.acked == self.next and self.room >= SESSION_WINDOW_BYTES_MAX

    @property
    def present(self) -> Lane:
        """Where its records are now."""
        lane = self
        while lane.moved is not None:
            lane = lane.moved
        return lane

    def counts(self, counter: int) -> bool:
        """Whether the record of this counter counts, wherever it is now."""
        return self.where(counter) < self.present.window.acked

    def find(self, counter: int) -> tuple[Lane, int]:
        """The lane in which the record of this counter is now, or counts, and its counter there."""
        lane = self
        while counter >= lane.window.acked and lane.moved is not None:
            counter, lane = counter + lane.shift, lane.moved
        return lane, counter

    def where(self, counter: int) -> int:
        """The counter that this record has now; -1 when it counts already."""
        lane, counter = self.find(counter)
        return counter if counter >= lane.window.acked else -1

    @property
    def full(self) -> bool:
        """As much waits for its acknowledgement as may."""
        return self.weight >= self.room

    def park(self) -> None:
        """Take nothing more: the destination refuses. What is kept waits, and so does who wants to send more."""
        if not self.parked:
            self.parked = True
            self.room -= SESSION_WINDOW_BYTES_MAX

    def unpark(self) -> None:
        """Try the destination again."""
        if self.parked:
            self.parked = False
            self.room += SESSION_WINDOW_BYTES_MAX

    def reserve(self, old: Lane) -> None:
        """Leave room for what waits for a BEGIN to go into another lane, which is not parked; this one may be."""
        self.room += old.room - SESSION_WINDOW_BYTES_MAX

    def forget(self) -> None:
        """Drop what counts as acknowledged."""
        waiting = self.next - self.window.acked
        if not waiting:
            self.origins.clear()
            self.suffixes.clear()
            self.bodies.clear()
            self.weight = 0
            return
        for _ in range(len(self.origins) - waiting):
            self.origins.popleft()
            self.suffixes.popleft()
            self.weight -= weight_of(self.bodies.popleft())

    def check_room(self) -> None:
        """Raise QueueFull when too much waits for Kafka."""
        if self.full:
            raise QueueFull(f"{len(self.origins)} records to {self.address.topic} wait for Kafka; try again")

    def unsent(self) -> list[Handed]:
        """Records that must be handed over (again). Made from behind, where each dialog knows its last number."""
        window = self.window
        counter = self.next
        kept = zip(reversed(self.origins), reversed(self.suffixes), reversed(self.bodies), strict=True)
        sequences: dict[SessionDialog, int] = {}
        records: list[Handed] = []
        for origin, suffix, body in islice(kept, counter - window.sent):
            counter -= 1
            if isinstance(origin, Single):
                sequence = origin.sequence
            else:
                sequences[origin] = sequence = sequences.get(origin, origin.sent) - 1
            records.append((origin.prefix + varint(counter) + varint(sequence) + suffix, origin.key, body))
        records.reverse()
        window.sent = window.limit = self.next
        return records


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


def sent_of(lane: Lane) -> list[Sent]:
    """The messages of a lane that do not count, dialog by dialog."""
    numbers: dict[SessionDialog, int] = {}
    found: dict[bytes, list[tuple[int, int]]] = {}
    for counter, origin in zip(range(lane.next - 1, -1, -1), reversed(lane.origins), strict=False):
        if not isinstance(origin, Single):
            numbers[origin] = number = numbers.get(origin, origin.sent) - 1
            found.setdefault(origin.conversation, []).append((number, counter))
        elif origin.is_message:
            found.setdefault(origin.prefix[CONVERSATION_AT:], []).append((origin.sequence, counter))
    return [
        Sent(lane.writer, lane.address, conversation, min(records)[0], tuple(counter for _, counter in records[::-1]))
        for conversation, records in found.items()
    ]


def weight_of(body: bytes | None) -> int:
    """What a record counts in the window of its lane, in bytes."""
    return (len(body) if body else 0) + SESSION_RECORD_BYTES
