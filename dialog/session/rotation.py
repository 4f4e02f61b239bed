"""Rotation of a session's writer id: when a new id is due, and how records move to it (protocol.md section 5).

When: a destination may forget a writer that has been silent for long. So a session's records to one destination follow
one another within half a day, and an acknowledgement that comes a day after its record was made is ignored (rule 5).
Sending takes no timestamp. Instead the driver calls `AgeWatch.check_age` at intervals, with a clock that keeps running
while the machine sleeps, and records made between two checks are assumed to be as old as they can be.

How: the new id closes the old one at each destination, and sends again the records that were not received.

    old lane    … 41 42 43 44 …          W is closed at 43: 43, 44 … were not received and never will be
    new lane    0 (CLOSE_WRITER of W)  1 (formerly 43)  2 (formerly 44) …

A lane with nothing in flight moves at once. Any other lane is retired: it takes records, hands over none, and waits for
the answer to the CLOSE_WRITER, which is also called a question here. A lane is also retired when messages held for a
BEGIN will go to it: another process may have asked about them and learned that they are not received and never will be.
While answers are awaited, the new id may have to be replaced as well. Then the lanes form a chain, and all but the
oldest hold only questions. Moved records follow the question directly in their new lane, so the counter of a record
under one id gives its counter under the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from itertools import product
from typing import Final, NamedTuple

from konverse.dialog.rules.heirs import closing_of
from konverse.dialog.rules.holes import hole_at
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.limits import SESSION_ANSWER_MS_MAX, SESSION_IDLE_MS_MAX, SESSION_LOOK_MS_MAX
from konverse.schemas.wire.envelope import encode_suffix, head, unflagged
from konverse.schemas.wire.records import (
    ACKED,
    FIRST,
    HEIR,
    NO_SEQUENCE,
    Kind,
    Notice,
    NoticeReason,
    Suffix,
    WriterClosed,
)

from .dialogs import first_under
from .lanes import Lane, Single

LOOK_EVERY_MS: Final = 60_000
"""Interval between checks; an earlier check does nothing."""


class CloseQuery(NamedTuple):
    """A pending question: where was writer `asked` closed? Record `counter` of writer `asker` asks it."""

    address: Address
    asked: bytes
    asker: bytes
    counter: int


class Unheard(Enum):
    """A partition's reply that does not answer the question."""

    LATER = "later"
    """The writer asked about is ahead of the partition's time, or the question was deleted unread: ask again."""
    EXPIRED = "expired"
    """The partition has forgotten the writer asked about."""
    ANOTHER = "another"
    """The partition accepts nothing from the asker: ask under another id."""


def reply(state: Partition, wanted: CloseQuery) -> WriterClosed | Unheard | None:
    """The reply to a question, read from the destination's state; None until the question was ingested there."""
    asker = state.writers.get(wanted.asker)
    if asker is None:
        # the asker was forgotten: its question had no effect, or will be refused when it arrives
        never = (time_of_writer(wanted.asker) or state.floor_ms) < state.floor_ms
        return Unheard.ANOTHER if never or state.noticed.get(wanted.asker, 0) < 0 else None
    if asker.closed_at is not None and asker.closed_at <= wanted.counter:
        return Unheard.ANOTHER
    if asker.next <= wanted.counter:
        return None
    if hole_at(asker.holes, wanted.counter):
        return Unheard.LATER  # the question was deleted before it was ingested
    asked = state.writers.get(wanted.asked)
    if asked is not None and asked.heir is not None:
        return closing_of(state, asked)
    if asked is None and (time_of_writer(wanted.asked) or 0) < state.floor_ms:
        return Unheard.EXPIRED
    return Unheard.LATER  # our CLOSE_WRITER closed nothing, because that id was ahead of the partition's time


def concerns(said: object, lane: Lane) -> bool:
    """Whether a partition's statement about the lane's writer requires a new id.

    FORGED does not: the partition also accepts all of the session's own records, and a stranger can copy any id.
    """
    if isinstance(said, WriterClosed):
        return True
    reason = getattr(said, "reason", None)
    if reason is NoticeReason.FORGED:
        return False
    return reason is not NoticeReason.GAP or getattr(said, "next", 0) < lane.window.acked


def forgeries_told(home: Partition, ids: Iterable[bytes], addresses: Iterable[Address]) -> Iterator[Notice]:
    """Notices at a home about strangers that write to these partitions under the ids of a session."""
    for key in product(ids, addresses):
        said = home.answers.get(key)
        if isinstance(said, Notice) and said.reason is NoticeReason.FORGED:
            yield said


class TakeOver:
    """The lanes of former ids that await answers."""

    def __init__(self) -> None:
        self.behind: dict[Address, list[Lane]] = {}
        """Destination -> retired lanes, oldest first. The question is about the newest."""
        self._asked: dict[Address, CloseQuery] = {}
        self.home: Address | None = None
        """The home to which answers go."""

    def wanted(self) -> list[CloseQuery]:
        """The pending questions."""
        return list(self._asked.values())

    def change(self, lanes: dict[Address, Lane], writer: bytes) -> dict[Address, Lane]:
        """Make the lanes of a new id; move or retire those of the old one."""
        present: dict[Address, Lane] = {}
        for address, old in lanes.items():
            new = present[address] = Lane(address, writer)
            new.contracts = old.contracts
            old.unpark()
            if address in self.behind or not old.quiet:
                old.retired = True
                self.behind.setdefault(address, []).append(old)
                self.ask(new)
            else:
                _close(old.writer, new, None, old.next)
                move(old, new, old.next)
        return present

    def ask(self, lane: Lane) -> None:
        """Put the question about the newest retired lane into this lane."""
        asked = self.behind[lane.address][-1].writer
        self._asked[lane.address] = CloseQuery(lane.address, asked, lane.writer, lane.next)
        _close(asked, lane, self.home, NO_SEQUENCE)

    def answered(self, said: WriterClosed, lane: Lane) -> list[bytes]:
        """Process the closing of the newest retired lane. Returns the conversations whose BEGIN is sent again."""
        chain = self.behind[lane.address]
        asked = chain.pop()
        if not chain:
            del self.behind[lane.address], self._asked[lane.address]
            return move(asked, lane, min(said.closed_at, asked.next))  # a forger may have used higher counters
        if said.closed_at < asked.next:
            self.ask(lane)  # that lane's own question was not received
        else:
            self._asked[lane.address] = CloseQuery(lane.address, chain[-1].writer, asked.writer, asked.next - 1)
        return []


def _close(asked: bytes, lane: Lane, home: Address | None, known: int) -> None:
    """Put a CLOSE_WRITER of `asked` into a lane; the answer goes to `home`.

    `known` is the number of the closed writer's records if Kafka has acknowledged all of them, else NO_SEQUENCE. They
    are not sent again, so those that the destination does not have are lost, and it says so to both sides (M292).
    """
    prefix = head(Kind.CLOSE_WRITER, HEIR, Role.INITIATOR, lane.address.tag, lane.writer) + asked
    lane.put(Single(prefix, known, lane.writer), encode_suffix(Suffix(home=home)), None)


def move(old: Lane, new: Lane, first: int) -> list[bytes]:
    """Move the records from counter `first` on to another lane. Returns the conversations whose BEGIN is among them."""
    begun: list[bytes] = []
    old.window.acked = first
    old.forget()
    old.shift = new.next - first
    new.reserve(old)
    old.moved = new
    for origin, kept, body in zip(old.origins, old.suffixes, old.bodies, strict=True):
        suffix = kept
        if not isinstance(origin, Single):
            origin.go_along()
            new.put(origin, suffix, body)
            continue
        kind = origin.prefix[0] >> 1
        if kind == Kind.BEGIN:
            begun.append(origin.prefix[23:])
        prefix = unflagged(origin.prefix, ACKED)  # the question before it in the new lane is not acknowledged
        single = origin._replace(prefix=prefix[:7] + new.writer + prefix[23:])
        if kind == Kind.MESSAGE and origin.prefix[1] & FIRST:
            suffix = first_under(suffix, old.writer)
        new.put(single, suffix, body)
    old.origins.clear()
    old.suffixes.clear()
    old.bodies.clear()
    old.weight = 0
    return begun


class Age(IntEnum):
    """Whether a session needs a new id, and how urgently."""

    FRESH = 0
    OLD = 1
    """Take a new id before anything more is handed over."""
    DOUBTFUL = 2
    """Take a new id at once: records in flight may have been handed over too late."""


class _Seen:
    """A lane at the last check."""

    __slots__ = ("last_ms", "mark", "mark_ms", "next", "since_ms")

    def __init__(self, opened_ms: int) -> None:
        self.next = 0
        self.last_ms = opened_ms
        """Its last record was made after this time; if it has no record, its id was."""
        self.mark = 0
        self.mark_ms = opened_ms
        """The records before `mark` were made before this time, the others after it."""
        self.since_ms = opened_ms
        """The oldest unacknowledged record was made after this time."""


class AgeWatch:
    """Watches the age of a session's present id and of its records."""

    def __init__(self, opened_ms: int) -> None:
        self._opened_ms = opened_ms
        """A time before the id was requested."""
        self._looked_ms = opened_ms
        self.has_looked = False
        """Whether a check has taken place that the session has not acted on yet."""
        self._lanes: dict[Address, _Seen] = {}
        self.age = Age.FRESH

    def check_age(self, lanes: Mapping[Address, Lane], now_ms: int) -> Age:
        """Whether the session needs a new id at this time. Call it before taking acknowledgements into account."""
        before_ms = self._looked_ms
        if now_ms - before_ms < LOOK_EVERY_MS or self.age is Age.DOUBTFUL:
            return self.age
        self._looked_ms, self.has_looked = now_ms, True
        early_ms = SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX
        age = Age.OLD if now_ms - self._opened_ms > early_ms else Age.FRESH
        for address, lane in lanes.items():
            seen = self._lanes.get(address)
            if seen is None:
                seen = self._lanes[address] = _Seen(self._opened_ms)
            age = max(age, self._age_of(seen, lane, before_ms, now_ms))
        self.age = age
        return age

    @staticmethod
    def _age_of(seen: _Seen, lane: Lane, before_ms: int, now_ms: int) -> Age:
        waiting = lane.window.acked < lane.next
        if lane.window.acked >= seen.mark:
            seen.since_ms = seen.mark_ms
            seen.mark, seen.mark_ms = lane.next, now_ms
        doubtful = waiting and now_ms - seen.since_ms > SESSION_ANSWER_MS_MAX
        if lane.next > seen.next:
            doubtful |= waiting and now_ms - seen.last_ms > SESSION_IDLE_MS_MAX
            seen.next, seen.last_ms = lane.next, before_ms
        if doubtful:
            return Age.DOUBTFUL
        return Age.OLD if now_ms - seen.last_ms > SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX else Age.FRESH
