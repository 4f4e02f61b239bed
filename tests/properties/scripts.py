"""Random histories of a data log: several writers, conversations and message types, with all kinds of faults.

A script is a list of steps, small tuples that hypothesis can shrink. `rows_of` turns it into records with running
counters. The fold decides what a step means when its conversation is over or its writer closed.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from konverse.dialog.state.endpoint import NOTHING, Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import Writer
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import PREFIX_BYTES, decode, encode
from konverse.schemas.wire.records import (
    FIRST,
    NO_SEQUENCE,
    Bounce,
    BounceId,
    BounceReason,
    End,
    Envelope,
    Kind,
    Suffix,
)
from tests.kit.builders import GARBAGE, Row, Scribe, Side, address_of, begin_block, identifier, record
from tests.kit.digests import digest

HERE: Final = address_of("orders")
AWAY: Final = address_of("replies")
WRITERS: Final = [identifier(f"writer {number}") for number in range(3)]
CONVERSATIONS: Final = [identifier(f"conversation {number}") for number in range(3)]
STARTS: Final = [0, 60, 8185, 8190, 16380, 16383]
"""Counters and sequence numbers from which a few records cross a boundary of the prediction."""


class Step(NamedTuple):
    """One event. The meaning of `option` depends on `what`."""

    what: str
    writer: int
    conversation: int
    role: Role
    option: int


OFTEN: Final = ["message", "burst"]
SOMETIMES: Final = ["message", "first", "begin", "again", "gap", "close", "end", "error", "end call", "nothing"]
SELDOM: Final = ["bounce", "elsewhere", "other kind", "confirm", "redirect", "no peer"]

steps: Final = st.builds(
    Step,
    st.sampled_from(OFTEN) | st.sampled_from(SOMETIMES) | st.sampled_from(SOMETIMES + SELDOM),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.sampled_from([Role.INITIATOR, Role.INITIATOR, Role.TARGET]),
    st.integers(0, 11),
)
scripts: Final = st.lists(st.lists(steps, max_size=12), max_size=10).map(lambda parts: [*chain.from_iterable(parts)])
"""In parts, because hypothesis makes lists of five on average."""


class _Author:
    """Writes the records of a script. The reference tells the next sequence number."""

    def __init__(self, counter: int, sequence: int) -> None:
        self.rows: list[Row] = []
        self.scribes = [Scribe(f"writer {number}") for number in range(len(WRITERS))]
        self.reference = opened(counter, sequence)
        for scribe in self.scribes:
            scribe.next[HERE] = counter

    def play(self, step: Step) -> None:
        scribe, conversation, option = self.scribes[step.writer], CONVERSATIONS[step.conversation], step.option
        match step.what:
            case "message":
                self._message(step)
            case "burst":
                for _ in range(1 + option % 6):
                    self._message(step)
            case "first":
                block = begin_block(group=conversation, key=b"a key" if option == 1 else None)
                self._put(scribe.first(HERE, conversation, block, role=step.role, sequence=option % 2))
            case "begin":
                group = conversation if option % 2 else identifier("a group")
                self._put(scribe.begin(conversation, begin_block(home="orders", target="replies", group=group)))
            case "again":
                if self.rows:
                    self.rows.append(self.rows[-1 - option % len(self.rows)])
            case "gap":
                ahead = scribe.next[HERE] + 1 + option
                self._put(scribe.message(HERE, conversation, role=step.role, counter=ahead))
            case "close":
                self._put(scribe.close(HERE, WRITERS[option % 3]))
            case "bounce":
                detail = Bounce(WRITERS[step.writer], option // 4, [HERE, AWAY][option % 2], BounceReason.ENDED)
                self._put(scribe.bounce(HERE, conversation, detail))
            case "confirm" | "redirect" | "no peer":
                kind = {"confirm": Kind.CONFIRM, "redirect": Kind.REDIRECT}.get(step.what, Kind.NO_PEER)
                suffix = Suffix(detail=BounceId(WRITERS[step.writer], option // 4, [HERE, AWAY][option % 2]))
                self._put(scribe.write(kind, HERE, conversation, role=step.role, suffix=suffix))
            case "elsewhere":
                other = Address("orders", 0, b"else")
                self._put(scribe.message(other, conversation, role=step.role, counter=scribe.next[HERE]))
            case "other kind":
                kind = (Kind.FIN, Kind.OPEN, Kind.SET_TIMER, Kind.BATCH)[option % 4]
                self._put(scribe.write(kind, HERE, conversation))
            case "nothing":
                self._put(self._no_record(scribe, conversation, step))
            case _:
                self._end(scribe, conversation, step)

    def _message(self, step: Step) -> None:
        """A message, mostly correct; else without a number, or with one off by one or by a round of the tables."""
        conversation, option = CONVERSATIONS[step.conversation], step.option
        right = self.reference.received.get((Role(1 - step.role), conversation), 0)
        number = {7: NO_SEQUENCE, 8: NO_SEQUENCE, 9: right + 1, 10: max(right - 8192, 0)}.get(option, right)
        suffix = Suffix("order" if option not in (6, 8) else "rücknahme", home=AWAY if option else None)
        flags = 2 if option == 11 else 0
        scribe = self.scribes[step.writer]
        self._put(scribe.message(HERE, conversation, role=step.role, sequence=number, suffix=suffix, flags=flags))

    def _end(self, scribe: Scribe, conversation: bytes, step: Step) -> None:
        if step.what == "end call":
            body = b"<Error/>" if step.option % 3 == 1 else b""
            self._put(scribe.write(Kind.END_CALL, HERE, conversation, role=step.role), body)
            return
        detail = End(WRITERS[step.option % 3], AWAY)
        suffix = Suffix("its end", detail=detail if step.option else None)
        kind = Kind.END if step.what == "end" else Kind.ERROR
        number = step.option % 4 - 1
        self._put(scribe.end(HERE, conversation, detail, kind, role=step.role, suffix=suffix, sequence=number))

    def _no_record(self, scribe: Scribe, conversation: bytes, step: Step) -> bytes | None:
        """No header, no envelope, or an envelope with an ending that fits a lane without a prediction."""
        if step.option < 4:
            return [None, b"", GARBAGE, b"\x00" * 39][step.option]
        header = scribe.message(HERE, conversation, role=step.role, counter=scribe.next[HERE])
        number = self.reference.received.get((Role(1 - step.role), conversation), 0)
        return encode(header[:PREFIX_BYTES], scribe.next[HERE], number, b"\xff" * 12 if step.option < 8 else b"")

    def _put(self, header: bytes | None, body: bytes | None = b"body") -> None:
        self.rows.append((header, record(body)))
        self.reference.read_header(header)


def rows_of(script: list[Step], counter: int = 0, sequence: int = 0) -> list[Row]:
    """The records of a script whose writers start at `counter` and conversations at `sequence`."""
    author = _Author(counter, sequence)
    for step in script:
        author.play(step)
    return author.rows


def prepared(counter: int = 0, sequence: int = 0) -> Side:
    """A partition in use: known writers, and both sides of two conversations that have received `sequence` messages."""
    side = Side("orders")
    if counter:
        for name in WRITERS:
            writer = side.state.writers[name] = Writer(name)
            writer.next = counter
            writer.carry()
    founder = Scribe("founder")
    for number, conversation in enumerate(CONVERSATIONS[:2]):
        side.take(founder.first(side.address, conversation, begin_block(key=b"key" if number else None)))
        side.take(founder.begin(conversation, begin_block(home="orders", target="replies")))
    for endpoint in side.state.live():
        endpoint.queue.clear()
        endpoint.received = endpoint.consumed = sequence
    side.state.unread = 0
    side.state.ready.clear()
    return side


def opened(counter: int = 0, sequence: int = 0) -> Reference:
    """The reference's state for a prepared partition."""
    reference = Reference()
    reference.next = {identifier("founder"): 4, **(dict.fromkeys(WRITERS, counter) if counter else {})}
    for role in Role:
        for conversation in CONVERSATIONS[:2]:
            reference.open(role, conversation, sequence)
    return reference


def outcome(state: Partition) -> dict[str, Any]:
    """Everything in which two folds of one log must agree."""
    assert NOTHING == [], "the queue that all empty endpoints share was filled"
    return {
        "digest": digest(state),
        "statistics": state.statistics,
        "unread": state.unread,
        "endings": state.endings,
        "ready": [endpoint.conversation for endpoint in state.ready],
        "changed": [endpoint.conversation for endpoint in state.changed],
        "forgotten": [endpoint.conversation for endpoint in state.forgotten],
    }


Place = tuple[Role, bytes]


class Reference:
    """Invariants I4, I5 and I9 in as few lines as possible, without optimization."""

    def __init__(self) -> None:
        self.next: dict[bytes, int] = {}
        self.closed: set[bytes] = set()
        self.ended_by: dict[Place, set[str]] = {}
        self.finished: set[Place] = set()
        self.tombstones: dict[bytes, bytes] = {}
        self.queues: dict[Place, list[str]] = {}
        self.received: dict[Place, int] = {}

    def open(self, role: Role, conversation: bytes, received: int = 0) -> None:
        self.ended_by[role, conversation] = set()
        self.finished.discard((role, conversation))
        self.queues[role, conversation] = []
        self.received[role, conversation] = received

    def read_header(self, header: bytes | None) -> None:
        """Read one record of the log."""
        try:
            envelope = decode(header or b"")
        except MalformedRecord:
            return
        if envelope.tag == HERE.tag and envelope.counter == self.next.get(envelope.writer, 0):
            self.next[envelope.writer] = envelope.counter + 1
            if envelope.writer not in self.closed:
                self._hear(envelope)

    def _hear(self, envelope: Envelope) -> None:
        mine = (envelope.role, envelope.conversation)
        theirs = (Role(1 - envelope.role), envelope.conversation)
        match envelope.kind:
            case Kind.MESSAGE:
                self._message(theirs, envelope)
            case Kind.BEGIN if (Role.INITIATOR, envelope.conversation) not in self.ended_by:
                self.open(Role.INITIATOR, envelope.conversation)
            case Kind.CLOSE_WRITER:
                self.closed.add(envelope.conversation)
                self.next.setdefault(envelope.conversation, 0)
                self.tombstones = {c: w for c, w in self.tombstones.items() if w != envelope.conversation}
            case Kind.END | Kind.ERROR if isinstance(envelope.suffix.detail, End):
                self._peer_end(theirs, envelope, envelope.suffix.detail.opener)
            case Kind.FIN if theirs in self.ended_by:
                self.finished.add(theirs)
            case Kind.NO_PEER if theirs in self.ended_by:
                self._peer_end(theirs, envelope, b"")
            case Kind.END_CALL if mine in self.ended_by and "us" not in self.ended_by[mine]:
                self.queues[mine].clear()
                self._end(mine, "us")
            case _:
                pass

    def _message(self, place: Place, envelope: Envelope) -> None:
        if place not in self.ended_by and envelope.flags & FIRST and place[0] is Role.TARGET:
            if self.tombstones.get(place[1]) == envelope.writer:
                del self.tombstones[place[1]]
                return
            self._hears_of_home(place)
            self.open(*place)
        if self.ended_by.get(place) == set() and place not in self.finished and not self._skips(place, envelope):
            self._queue(place, envelope)

    def _hears_of_home(self, place: Place) -> None:
        """A target need not refuse a FIRST of its home any more (M289)."""
        if self.tombstones.get(place[1]) == place[1]:
            del self.tombstones[place[1]]

    def _peer_end(self, place: Place, envelope: Envelope, opener: bytes) -> None:
        if place[0] is Role.TARGET and envelope.kind is not Kind.NO_PEER:
            of_a_loss = envelope.kind is Kind.ERROR and envelope.sequence == NO_SEQUENCE and opener == envelope.writer
            if place in self.ended_by and of_a_loss:  # a place that it has left says so, not its peer
                self.tombstones.setdefault(place[1], place[1])
            else:
                self._hears_of_home(place)
        if place not in self.ended_by:
            if place[0] is Role.TARGET and opener not in self.closed:
                self.tombstones[place[1]] = opener
        elif "peer" not in self.ended_by[place]:
            if envelope.kind is Kind.END and not self.ended_by[place] and not self._skips(place, envelope):
                self._queue(place, envelope)
            self._end(place, "peer")

    def _skips(self, place: Place, envelope: Envelope) -> bool:
        """Whether a target goes on where its initiator has not heard its beginning (M283)."""
        return place[0] is Role.INITIATOR and self.received[place] == 0 and envelope.sequence > 0

    def _queue(self, place: Place, envelope: Envelope) -> None:
        self.queues[place].append(envelope.suffix.message_type)
        self.received[place] += 1

    def _end(self, place: Place, who: str) -> None:
        self.ended_by[place].add(who)
        if len(self.ended_by[place]) == 2:
            del self.ended_by[place], self.queues[place], self.received[place]


def place_of(endpoint: Endpoint) -> Place:
    """The reference's key of an endpoint."""
    return endpoint.role, endpoint.conversation
