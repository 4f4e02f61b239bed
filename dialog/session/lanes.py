"""Where the records of a session go: a lane for each destination partition, and the dialogs that fill the lanes."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple, Protocol

from konverse.dialog.rules.holes import hole_at
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import NOBODY
from konverse.dialog.window import Window
from konverse.schemas.errors import QueueFull
from konverse.schemas.identifiers import Address, time_of_writer
from konverse.schemas.limits import SESSION_RECORD_BYTES, SESSION_WINDOW_BYTES_MAX
from konverse.schemas.wire.envelope import CONVERSATION_AT
from konverse.schemas.wire.records import Begin, Kind
from konverse.schemas.wire.token import Sent
from konverse.schemas.wire.varint import LOW_MASK, SMALL, high_part, low_table, varint

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


class Speaker(Protocol):
    """A dialog as its lanes see it: what the headers of its messages are made of."""

    @property
    def conversation(self) -> bytes:
        """Its id."""

    @property
    def begin(self) -> Begin:
        """What it was begun with."""

    @property
    def prefix(self) -> bytes:
        """The constant part of the headers."""

    @property
    def key(self) -> bytes:
        """Of the records in Kafka."""

    @property
    def sent(self) -> int:
        """How many messages were numbered."""

    def go_along(self) -> None:
        """A message of it goes on under another id of its session."""


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
        self.origins: deque[Speaker | Single] = deque()
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

    def put(self, origin: Speaker | Single, suffix: bytes, body: bytes | None) -> None:
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
    """The messages of a lane that do not count, dialog by dialog."""
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
    """What a record counts in the window of its lane, in bytes."""
    return (len(body) if body else 0) + SESSION_RECORD_BYTES


def heard(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether a partition has taken the record that a session put into this lane under this counter.

    It has not taken what was deleted before it was read, although it has taken what stands behind.
    """
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    if known is None:  # forgotten, or not heard yet
        return lane.counts(counter) and (time_of_writer(lane.writer) or state.floor_ms) < state.floor_ms
    return counter < (known.next if known.closed_at is None else known.closed_at) and not hole_at(known.holes, counter)


def refused(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether a partition will never take that record: somebody else has closed the session there before it.

    Or it was deleted before it was read. Or its id was ahead of time: then nothing is known there of what Kafka has.
    """
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    if known is None:
        return lane.moved is not None and heard(state, lane.moved, lane.window.acked + lane.shift - 1)
    if known.closed_at is None or counter < known.closed_at:
        return lost(state, lane, counter)
    return known.heir is NOBODY or lane.counts(counter)


class Hand(NamedTuple):
    """Effect: hand these records to the producer, in this order."""

    address: Address
    records: list[Handed]


def lost(state: Partition, lane: Lane, counter: int) -> bool:
    """Whether the record that a session put into this lane was deleted before the partition read it."""
    lane, counter = lane.find(counter)
    known = state.writers.get(lane.writer)
    return known is not None and hole_at(known.holes, counter) is not None
