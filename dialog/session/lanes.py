"""Lanes: the records of a session for one destination partition, from the first unacknowledged one on.

A record keeps its counter until its lane moves to another writer id. Then `find` and `where` give its present place.
`has_ingested`, `refused` and `lost` tell from a partition's state what became of a record there.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple, Protocol

from konverse.dialog.rules.holes import hole_at
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import NO_HEIR
from konverse.dialog.window import Window
from konverse.schemas.counting import counted
from konverse.schemas.errors import QueueFull
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.limits import SESSION_RECORD_BYTES, SESSION_WINDOW_BYTES_MAX
from konverse.schemas.wire.envelope import CONVERSATION_AT, encode_suffix, flagged, head
from konverse.schemas.wire.records import ACKED, NO_SEQUENCE, Begin, Kind, Suffix
from konverse.schemas.wire.token import Sent
from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table, varint

NO_CONVERSATION: Final = bytes(16)
"""In place of a conversation id, in a record that concerns none."""
_NOTHING: Final = encode_suffix(Suffix())
Handed = tuple[bytes, bytes, bytes | None]
"""A record for the producer: header, key, body."""


class Single(NamedTuple):
    """A record with a header of its own: BEGIN, a first message, END, CLOSE_WRITER."""

    prefix: bytes
    """Everything in its header before the counter."""
    sequence: int
    key: bytes

    @property
    def is_message(self) -> bool:
        """Whether it is a message of the application."""
        return self.prefix[0] == Kind.MESSAGE << 1

    def vouching(self) -> Single:
        """The same record with the flag ACKED."""
        return self._replace(prefix=flagged(self.prefix, ACKED))


class Speaker(Protocol):
    """A dialog as its lanes see it: the parts of its message headers."""

    @property
    def conversation(self) -> bytes:
        """Conversation id, 16 bytes."""

    @property
    def begin(self) -> Begin:
        """The BEGIN block of the dialog."""

    @property
    def prefix(self) -> bytes:
        """The constant part of the headers."""

    @property
    def key(self) -> bytes:
        """Kafka key of its records."""

    @property
    def sent(self) -> int:
        """Number of messages numbered so far."""

    def go_along(self) -> None:
        """Called when a message of the dialog moves to a lane with another writer id."""


class Lane:
    """The session's send stream to one destination partition: counters of records, and the data to send them again.

    Its twin for the outputs of an owner is `dialog.state.outbox.Stream`.

    Of a message the lane keeps the dialog, suffix and body, and rebuilds the header from them to send it again.
    Complete headers would fill the CPU caches of a busy sender, and would have left the caches when they are freed.
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
        "vouched",
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
        self.origins: deque[Speaker | Single] = deque()
        """The dialog of each record window.acked … next-1, or the record's Single."""
        self.suffixes: deque[bytes] = deque()
        """The end of each header."""
        self.bodies: deque[bytes | None] = deque()
        self.contracts: dict[str, dict[str, bytes]] = {}
        """Contract -> message type -> header suffix, shared by the dialogs that have their home here."""
        self.weight = 0
        """Bytes kept: the bodies, and SESSION_RECORD_BYTES for each record."""
        self.room = SESSION_WINDOW_BYTES_MAX
        """Bytes that may be kept: the window, less the messages that are held for a BEGIN."""
        self.parked = False
        """The destination refused a record: nothing is handed over to it until it is tried again."""
        self.retired = False
        """Its writer is about to be closed: the lane takes records and hands over none."""
        self.moved: Lane | None = None
        """The lane that holds its records now, under another writer id."""
        self.shift = 0
        """Added to a counter of this lane, it gives the record's counter in `moved`."""
        self.vouched = 0
        """Counter after the last record that vouched for the earlier ones."""
        self.low = SMALL
        self.high = b""

    def vouch(self) -> None:
        """If all records are acknowledged, put a VOID that vouches for those since the last vouching record (M291)."""
        if self.vouched < self.next and self.window.acked == self.next:
            prefix = head(Kind.VOID, 0, Role.INITIATOR, self.address.tag, self.writer) + NO_CONVERSATION
            self.put(Single(prefix, NO_SEQUENCE, self.writer), _NOTHING, None)

    def put(self, origin: Speaker | Single, suffix: bytes, body: bytes | None) -> None:
        """Append a record (for messages the driver's hot path does this inline).

        A record with a header of its own vouches for the earlier ones if all of them are acknowledged (M291).
        """
        if isinstance(origin, Single) and self.next and self.window.acked == self.next:
            origin = origin.vouching()
            self.vouched = self.next + 1
        self.origins.append(origin)
        self.suffixes.append(suffix)
        self.bodies.append(body)
        self.weight += weight_of(body)
        self.next += 1
        if not self.next & LOW_MASK:
            self.carry()

    def trim(self) -> bool:
        """Drop the parts of a record that was put only in part. Returns whether there were any."""
        kept = self.next - self.window.acked
        torn = False
        for column in (self.origins, self.suffixes, self.bodies):
            while len(column) > kept:
                column.pop()
                torn = True
        self.weight = sum(map(weight_of, self.bodies))
        self.carry()
        return torn

    def carry(self) -> None:
        """Recompute the bytes of the counter; needed whenever its low part wraps around."""
        self.low = low_table(self.next)
        self.high = high_part(self.next)

    @property
    def quiet(self) -> bool:
        """Whether nothing is in flight, and no message for this destination is held for a BEGIN."""
        return self.window.acked == self.next and self.room >= SESSION_WINDOW_BYTES_MAX

    @property
    def present(self) -> Lane:
        """The lane that holds its records now."""
        lane = self
        while lane.moved is not None:
            lane = lane.moved
        return lane

    def counts(self, counter: int) -> bool:
        """Whether the record of this counter is acknowledged, in whichever lane it is now."""
        return self.where(counter) < self.present.window.acked

    def find(self, counter: int) -> tuple[Lane, int]:
        """The lane that holds the record of this counter, or in which it was acknowledged, and its counter there."""
        lane = self
        while counter >= lane.window.acked and lane.moved is not None:
            counter, lane = counter + lane.shift, lane.moved
        return lane, counter

    def where(self, counter: int) -> int:
        """The present counter of this record; -1 when it is acknowledged already."""
        lane, counter = self.find(counter)
        return counter if counter >= lane.window.acked else -1

    @property
    def full(self) -> bool:
        """Whether the window is full of unacknowledged bytes."""
        return self.weight >= self.room

    def park(self) -> None:
        """Hand over nothing more, because the destination refuses records. Keep them, and report the lane as full."""
        if not self.parked:
            self.parked = True
            self.room -= SESSION_WINDOW_BYTES_MAX

    def unpark(self) -> None:
        """Try the destination again."""
        if self.parked:
            self.parked = False
            self.room += SESSION_WINDOW_BYTES_MAX

    def reserve(self, old: Lane) -> None:
        """Take over from `old` the room for messages that are held for a BEGIN. `old` must not be parked."""
        self.room += old.room - SESSION_WINDOW_BYTES_MAX

    def forget(self) -> None:
        """Drop the acknowledged records."""
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
        """Raise QueueFull when the window is full."""
        if self.full:
            topic = self.address.topic
            waiting = counted(len(self.origins), f"record to {topic} waits", f"records to {topic} wait")
            raise QueueFull(f"{waiting} for Kafka; try again")

    def unsent(self) -> list[Handed]:
        """Records to hand over (again). Built from the last one backwards: a dialog knows its last sequence number."""
        window = self.window
        counter = self.next
        kept = zip(reversed(self.origins), reversed(self.suffixes), reversed(self.bodies), strict=True)
        sequences: dict[Speaker, int] = {}
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


def sent_of(lane: Lane) -> list[Sent]:
    """The unacknowledged messages of a lane, dialog by dialog."""
    numbers: dict[Speaker, int] = {}
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
    """Bytes that a record takes in the window of its lane."""
    return (len(body) if body else 0) + SESSION_RECORD_BYTES


def has_ingested(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether a partition has ingested the record that a session put into this lane under this counter.

    False for a record that was deleted before the partition read it, even when later records were ingested.
    """
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    if known is None:  # the writer was forgotten, or is not known yet
        return lane.counts(counter) and (time_of_writer(lane.writer) or state.floor_ms) < state.floor_ms
    return counter < (known.next if known.closed_at is None else known.closed_at) and not hole_at(known.holes, counter)


def refused(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether a partition will never ingest the record that a session put into this lane under this counter.

    Either another process closed the session there first, or the record was deleted before it was ingested, or the
    session's id was ahead of the partition's time, so that none of its records in the log was accepted.
    """
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    if known is None:
        if lane.moved is None:
            return False
        # the counter of CLOSE_WRITER; the next id's clock may also be ahead of the partition's time
        behind = lane.window.acked + lane.shift - 1
        return has_ingested(state, lane.moved, behind) or refused(state, lane.moved, behind)
    if known.closed_at is None or counter < known.closed_at:
        return lost(state, lane, counter)
    return known.heir is NO_HEIR or lane.counts(counter)


class Produce(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    records: list[Handed]


def lost(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether the record that a session put into this lane was deleted before the partition ingested it."""
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    return known is not None and hole_at(known.holes, counter) is not None
