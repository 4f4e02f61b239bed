"""A session: a writer that begins dialogs, sends on them and ends them, as a machine without I/O.

Source: protocol.md section 5.

Three rules give exactly once and in order with nothing but plain appends. Every record to one destination partition has
the next counter, and after any failure the records from the first that does not count go again with the same counters.
FIRST leaves after BEGIN counts, so home knows of a conversation before its target does. END leaves after all sends of
the dialog count, so it cannot overtake them.

Drivers: `bridge.sending`, and the simulator. Sends are the hot path: `stage` makes a record, the driver hands it over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG
from konverse.schemas.envelope import encode_suffix, head
from konverse.schemas.errors import BodyTooLarge, ConversationEnded, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import BODY_BYTES_MAX, SESSION_WINDOW_BYTES_MAX, SESSION_WINDOW_RECORDS_MAX
from konverse.schemas.records import FIRST, Begin, Kind, Role, Suffix
from konverse.schemas.varint import LOW_MASK, SMALL, high_part, low_table, varint

from .window import Window

Handed = tuple[bytes, bytes, bytes | None]
"""A record for the producer: header, key, body."""


class Hand(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    records: list[Handed]


class DialogState(Enum):
    """Where a session stands with a dialog that it began."""

    BEGINNING = "beginning"
    OPEN = "open"
    ENDING = "ending"
    ENDED = "ended"


class Lane:
    """Records of the session for one destination partition: counters, and what may have to go again."""

    __slots__ = ("address", "bytes_waiting", "high", "kept", "low", "next", "place", "window")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.place = (address.topic, address.partition)
        self.window = Window()
        self.next = 0
        self.kept: deque[Handed] = deque()
        """Records window.acked … next-1."""
        self.bytes_waiting = 0
        self.low = SMALL
        self.high = b""

    def put(self, prefix: bytes, tail: bytes, key: bytes, body: bytes | None) -> Handed:
        """The next record; `tail` is sequence number and suffix."""
        counter = self.next
        record = (b"".join((prefix, self.low[counter & LOW_MASK], self.high, tail)), key, body)
        self.next = counter = counter + 1
        if not counter & LOW_MASK:
            self.carry()
        self.kept.append(record)
        if body:
            self.bytes_waiting += len(body)
        return record

    def carry(self) -> None:
        """Renew the bytes of the running counter; needed whenever its low part starts again."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    @property
    def full(self) -> bool:
        """As much waits for its acknowledgement as may."""
        return len(self.kept) >= SESSION_WINDOW_RECORDS_MAX or self.bytes_waiting >= SESSION_WINDOW_BYTES_MAX

    def forget(self) -> None:
        """Drop what counts as acknowledged."""
        count = len(self.kept) - (self.next - self.window.acked)
        if count == len(self.kept):
            self.kept.clear()
            self.bytes_waiting = 0
            return
        for _ in range(count):
            body = self.kept.popleft()[2]
            if body:
                self.bytes_waiting -= len(body)

    def unsent(self) -> list[Handed]:
        """Records that must be handed over (again)."""
        window = self.window
        records = list(islice(reversed(self.kept), self.next - window.sent))  # from behind: few of many, as a rule
        records.reverse()
        window.sent = window.limit = self.next
        return records


class SessionDialog:
    """A dialog that the session began."""

    __slots__ = (
        "_prefix",
        "begin",
        "begun_at",
        "conversation",
        "held",
        "home",
        "key",
        "last",
        "open",
        "sent",
        "state",
        "tails",
        "target",
        "waiting_end",
    )

    def __init__(self, conversation: bytes, begin: Begin, writer: bytes, home: Lane, target: Lane) -> None:
        self.conversation = conversation
        self.begin = begin
        self.home = home
        self.target = target
        self.key = begin.key or begin.group
        self.state = DialogState.BEGINNING
        self.open = False
        """FIRST was sent and no end was called: messages need no further thought."""
        self.begun_at = -1
        """Counter of BEGIN in the home lane."""
        self.last = -1
        """Counter of the last message in the target lane."""
        self.sent = 0
        """Sequence number of the next message."""
        self.held: list[tuple[str, bytes]] = []
        """Messages that wait for BEGIN."""
        self.tails: dict[str, bytes] = {}
        """Message type -> suffix."""
        self.waiting_end: bytes | None = None
        """Body of the END call that waits for the sends; b"" for a plain end."""
        self._prefix = head(Kind.MESSAGE, 0, Role.INITIATOR, target.address.tag, writer) + conversation

    def stage(self, message_type: str, body: bytes) -> Handed:
        """The record of the next message of an `open` dialog: what `Lane.put` does, inline."""
        tail = self.tails.get(message_type)
        if tail is None:
            tail = self.tails[message_type] = encode_suffix(Suffix(message_type, home=self.begin.home))
        sequence = self.sent
        self.sent = sequence + 1
        lane = self.target
        self.last = counter = lane.next
        number = SMALL[sequence] if sequence <= LOW_MASK else varint(sequence)
        record = (b"".join((self._prefix, lane.low[counter & LOW_MASK], lane.high, number, tail)), self.key, body)
        lane.next = counter = counter + 1
        if not counter & LOW_MASK:
            lane.carry()
        lane.kept.append(record)
        lane.bytes_waiting += len(body)
        return record


class Session:
    """One writer id and its lanes."""

    def __init__(self, writer: bytes) -> None:
        self.writer = writer
        """UUIDv7, 16 bytes; never used by another session."""
        self.lanes: dict[Address, Lane] = {}
        self.dialogs: dict[bytes, SessionDialog] = {}
        self._beginning: deque[SessionDialog] = deque()
        self._ending: deque[SessionDialog] = deque()
        self.closing = False

    # ------------------------------------------------------------------------------------------------------- calls

    def begin(self, conversation: bytes, begin: Begin) -> tuple[SessionDialog, list[Hand]]:
        """BEGIN DIALOG: a control record to the dialog's home; nothing reaches the target (behaviour 31)."""
        home = self._lane(begin.home)
        if home.full:
            raise QueueFull(f"{len(home.kept)} records to {home.address.topic} wait for Kafka; try again")
        dialog = SessionDialog(conversation, begin, self.writer, home, self._lane(begin.target))
        self.dialogs[conversation] = dialog
        dialog.begun_at = home.next
        prefix = head(Kind.BEGIN, 0, Role.INITIATOR, begin.home.tag, self.writer) + conversation
        home.put(prefix, _UNNUMBERED + encode_suffix(Suffix(begin=begin)), dialog.key, None)
        self._beginning.append(dialog)
        return dialog, self._hand(home)

    def send(self, dialog: SessionDialog, message_type: str, body: bytes) -> list[Hand]:
        """SEND: held until BEGIN counts, else one record for the target (the driver's hot path does this inline)."""
        self.check(dialog, body)
        if dialog.state is DialogState.BEGINNING:
            dialog.held.append((message_type, body))
            return []
        self._message(dialog, message_type, body)
        return self._hand(dialog.target)

    def check(self, dialog: SessionDialog, body: bytes) -> None:
        """Raise what forbids a send: ConversationEnded, BodyTooLarge, QueueFull; nothing was written then."""
        if dialog.state is DialogState.ENDED or dialog.waiting_end is not None:
            raise ConversationEnded(f"the dialog was ended; begin a new one to send to {dialog.begin.to_service}")
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLarge(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} fit into one message")
        if dialog.target.full or len(dialog.held) >= SESSION_WINDOW_RECORDS_MAX:
            raise QueueFull(f"{len(dialog.target.kept)} records to {dialog.target.address.topic} wait for Kafka")

    def end(self, dialog: SessionDialog, error_body: bytes = b"") -> list[Hand]:
        """END CONVERSATION: to home, when all sends count; a second END changes nothing."""
        if dialog.waiting_end is not None:
            return []
        dialog.waiting_end = error_body
        dialog.open = False
        self._ending.append(dialog)
        return self._release()

    def ended_by_peer(self, conversation: bytes) -> None:
        """News from home: the peer ended, so sends are refused early. END is still to be called."""
        dialog = self.dialogs.pop(conversation, None)
        if dialog is not None:
            dialog.state = DialogState.ENDED
            dialog.open = False

    def close(self) -> list[Hand]:
        """A clean end of the session: tell every destination that this writer sends nothing more. When all counts."""
        assert self.idle, "a session closes when everything counts"
        self.closing = True
        hands: list[Hand] = []
        for lane in self.lanes.values():
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, lane.address.tag, self.writer) + self.writer
            lane.put(prefix, _UNNUMBERED + _EMPTY, self.writer, None)
            hands += self._hand(lane)
        return hands

    # ---------------------------------------------------------------------------------------------------- outcomes

    def drained(self) -> list[Hand]:
        """The producer ran empty without a failure: everything handed over counts."""
        for lane in self.lanes.values():
            lane.window.drained()
            lane.forget()
        return self._release()

    def delivered(self, address: Address, counter: int, offset: int) -> list[Hand] | None:
        """One record is in the log; None when the order is wrong and a new producer is needed."""
        lane = self.lanes[address]
        if not lane.window.delivered(counter, offset):
            return None
        lane.forget()
        return self._release()

    def restart(self) -> list[Hand]:
        """The producer was replaced: everything that does not count goes again, with the same counters."""
        hands: list[Hand] = []
        for lane in self.lanes.values():
            lane.window.restart()
            hands += self._hand(lane)
        return hands

    @property
    def idle(self) -> bool:
        """Nothing waits, for Kafka or for an earlier record."""
        return not self._beginning and not self._ending and not any(lane.kept for lane in self.lanes.values())

    @property
    def gated(self) -> bool:
        """Something waits for records before it to count."""
        return bool(self._beginning or self._ending)

    # ---------------------------------------------------------------------------------------------------- inside

    def _release(self) -> list[Hand]:
        """Let go what waited: messages whose BEGIN counts, ENDs whose messages count."""
        touched: dict[Address, Lane] = {}
        for dialog in _take_while(self._beginning, lambda d: d.begun_at < d.home.window.acked):
            if dialog.state is DialogState.BEGINNING:
                dialog.state = DialogState.OPEN
            for message_type, body in dialog.held:
                self._message(dialog, message_type, body)
                touched[dialog.target.address] = dialog.target
            dialog.held.clear()
        for dialog in list(self._ending):
            if dialog.begun_at >= dialog.home.window.acked or dialog.last >= dialog.target.window.acked:
                continue
            self._ending.remove(dialog)
            error_body = dialog.waiting_end
            prefix = head(Kind.END_CALL, 0, Role.INITIATOR, dialog.begin.home.tag, self.writer) + dialog.conversation
            dialog.home.put(prefix, _UNNUMBERED + _END_SUFFIX, dialog.key, error_body or None)
            touched[dialog.home.address] = dialog.home
            dialog.state = DialogState.ENDED
            self.dialogs.pop(dialog.conversation, None)
        hands: list[Hand] = []
        for lane in touched.values():
            hands += self._hand(lane)
        return hands

    def _message(self, dialog: SessionDialog, message_type: str, body: bytes) -> None:
        if dialog.sent:
            dialog.stage(message_type, body)
            return
        dialog.sent = 1
        dialog.open = dialog.state is DialogState.OPEN and dialog.waiting_end is None
        dialog.last = dialog.target.next
        prefix = head(Kind.MESSAGE, FIRST, Role.INITIATOR, dialog.begin.target.tag, self.writer) + dialog.conversation
        suffix = encode_suffix(Suffix(message_type, begin=dialog.begin))
        dialog.target.put(prefix, SMALL[0] + suffix, dialog.key, body)

    def _lane(self, address: Address) -> Lane:
        lane = self.lanes.get(address)
        if lane is None:
            lane = self.lanes[address] = Lane(address)
        return lane

    def _hand(self, lane: Lane) -> list[Hand]:
        records = lane.unsent()
        return [Hand(lane.address, records)] if records else []


def _take_while(queue: deque[SessionDialog], ready: Callable[[SessionDialog], bool]) -> Iterable[SessionDialog]:
    """Take from the front what is ready; dialogs of different homes may stand in any order."""
    rest = []
    while queue:
        dialog = queue.popleft()
        if ready(dialog):
            yield dialog
        else:
            rest.append(dialog)
    queue.extend(rest)


_UNNUMBERED: Final = varint(-1)
_EMPTY: Final = encode_suffix(Suffix())
_END_SUFFIX: Final = encode_suffix(Suffix(END_DIALOG))
