"""How a session goes on under a new id: it closes the old one, and sends again what was not received (protocol.md 5).

    old lane    … 41 42 43 44 …          W is closed at 43: 43, 44 … were not received and never will be
    new lane    0 (CLOSE_WRITER of W)  1 (what was 43)  2 (what was 44) …

A lane with nothing on its way goes on at once. Any other one is retired: it takes what is sent, hands over nothing, and
waits for the answer to the CLOSE_WRITER. So is one to which messages will go that wait for a BEGIN: somebody may have
asked about them, and been told that they are not received and never will be. While the answer is awaited the new id may
have to be given up as well; then the lanes stand one behind another, and only the first one holds more than questions.
What is moved stands directly behind the question in its new lane. So everybody who has the place of a record under one
id finds its place under the next.

When a session must take a new id (protocol.md section 5, rule 5), as a machine that is told the time.

Whoever was silent for long may have been forgotten somewhere. So a session's records follow one another within half a
day, and an acknowledgement that comes a day after its record was made counts for nothing. Nothing is noted when a
message is sent. The driver looks now and then, with a clock that also runs while the machine sleeps, and what lies
between two looks is taken for as old as it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from itertools import product
from typing import Final, NamedTuple

from konverse.dialog.rules.holes import hole_at
from konverse.dialog.rules.writers import closing_of
from konverse.dialog.state.partition import Partition
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.limits import SESSION_ANSWER_MS_MAX, SESSION_IDLE_MS_MAX, SESSION_LOOK_MS_MAX
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import FIRST, HEIR, NO_SEQUENCE, Kind, Notice, NoticeReason, Suffix, WriterClosed

from .dialogs import control_under, first_under
from .lanes import Lane, Single

LOOK_EVERY_MS: Final = 60_000
"""Looking more often than this finds nothing new."""


class Wanted(NamedTuple):
    """A question on its way: where was `asked` closed? It was asked under the id `asker`, by its record `counter`."""

    address: Address
    asked: bytes
    asker: bytes
    counter: int


class Unheard(Enum):
    """What a partition says to a question instead of an answer."""

    LATER = "later"
    """The writer that was asked about is ahead of the partition's time: ask again."""
    EXPIRED = "expired"
    """It is forgotten."""
    ANOTHER = "another"
    """Whoever asks is not heard: ask under another id."""


def reply(state: Partition, wanted: Wanted) -> WriterClosed | Unheard | None:
    """What the destination's state says to a question; None as long as it has not been heard there."""
    asker = state.writers.get(wanted.asker)
    if asker is None:
        # who is forgotten has asked in vain, or not yet and will not be heard
        never = (time_of_writer(wanted.asker) or state.floor_ms) < state.floor_ms
        return Unheard.ANOTHER if never or state.noticed.get(wanted.asker, 0) < 0 else None
    if asker.closed_at is not None and asker.closed_at <= wanted.counter:
        return Unheard.ANOTHER
    if asker.next <= wanted.counter:
        return None
    if hole_at(asker.holes, wanted.counter):
        return Unheard.LATER  # the question was deleted before it was read
    asked = state.writers.get(wanted.asked)
    if asked is not None and asked.heir is not None:
        return closing_of(state, asked)
    if asked is None and (time_of_writer(wanted.asked) or 0) < state.floor_ms:
        return Unheard.EXPIRED
    return Unheard.LATER  # it was not closed when we asked, because it was ahead of time


def concerns(said: object, lane: Lane) -> bool:
    """Whether what a partition says of the writer of a lane means that it needs another one.

    Not where a stranger writes in its name: all that it sends is taken as well, and a stranger can copy any id.
    """
    if isinstance(said, WriterClosed):
        return True
    reason = getattr(said, "reason", None)
    if reason is NoticeReason.FORGED:
        return False
    return reason is not NoticeReason.GAP or getattr(said, "next", 0) < lane.window.acked


def forgeries_told(home: Partition, ids: Iterable[bytes], addresses: Iterable[Address]) -> Iterator[Notice]:
    """What a home knows of strangers who write to these partitions in the name of a session."""
    for key in product(ids, addresses):
        said = home.answers.get(key)
        if isinstance(said, Notice) and said.reason is NoticeReason.FORGED:
            yield said


class TakeOver:
    """The lanes of former ids that wait for answers."""

    def __init__(self) -> None:
        self.behind: dict[Address, list[Lane]] = {}
        """Oldest first; the newest is asked about."""
        self._asked: dict[Address, Wanted] = {}
        self.home: Address | None = None
        """Where answers go."""

    def wanted(self) -> list[Wanted]:
        """The questions whose answers are awaited."""
        return list(self._asked.values())

    def change(self, lanes: dict[Address, Lane], writer: bytes) -> dict[Address, Lane]:
        """The lanes of a new id; those of the old one are moved or retired."""
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
        """Put the question about the newest of the lanes behind into this one."""
        asked = self.behind[lane.address][-1].writer
        self._asked[lane.address] = Wanted(lane.address, asked, lane.writer, lane.next)
        _close(asked, lane, self.home, NO_SEQUENCE)

    def answered(self, said: WriterClosed, lane: Lane) -> list[bytes]:
        """The newest of the lanes behind was closed, for us: go on. Conversations whose BEGIN is sent again."""
        chain = self.behind[lane.address]
        asked = chain.pop()
        if not chain:
            del self.behind[lane.address], self._asked[lane.address]
            return move(asked, lane, min(said.closed_at, asked.next))  # a stranger may have gone further
        if said.closed_at < asked.next:
            self.ask(lane)  # its own last question was not heard
        else:
            self._asked[lane.address] = Wanted(lane.address, chain[-1].writer, asked.writer, asked.next - 1)
        return []


def _close(asked: bytes, lane: Lane, home: Address | None, known: int) -> None:
    """Put a CLOSE_WRITER into a lane; it is answered to `home`.

    So many of the other's records are `known` to be there. If they are not (its clock was ahead of time, or they were
    deleted), they come from nobody.
    """
    prefix = head(Kind.CLOSE_WRITER, HEIR, Role.INITIATOR, lane.address.tag, lane.writer) + asked
    lane.put(Single(prefix, known, lane.writer), encode_suffix(Suffix(home=home)), None)


def move(old: Lane, new: Lane, first: int) -> list[bytes]:
    """The records of a lane from `first` on go on in another one; the conversations whose BEGIN is among them."""
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
        single = origin._replace(prefix=origin.prefix[:7] + new.writer + origin.prefix[23:])
        if kind == Kind.MESSAGE and origin.prefix[1] & FIRST:
            suffix = first_under(suffix, old.writer)
        elif kind == Kind.SET_TIMER and origin.prefix[23:] in begun:
            suffix = control_under(suffix, new.writer)
        new.put(single, suffix, body)
    old.origins.clear()
    old.suffixes.clear()
    old.bodies.clear()
    old.weight = 0
    return begun


class Age(IntEnum):
    """What a session has to do about its id."""

    FRESH = 0
    OLD = 1
    """Another id, before anything more is handed over."""
    DOUBTFUL = 2
    """Another one at once: what is on its way may have been handed over too late."""


class _Seen:
    """A lane as it was looked at."""

    __slots__ = ("last_ms", "mark", "mark_ms", "next", "since_ms")

    def __init__(self, opened_ms: int) -> None:
        self.next = 0
        self.last_ms = opened_ms
        """Its last record was made after this; without any, the id."""
        self.mark = 0
        self.mark_ms = opened_ms
        """The records before `mark` were made before this, the others after it."""
        self.since_ms = opened_ms
        """The oldest one that does not count was made after this."""


class Ageing:
    """The clock of a session's present id."""

    def __init__(self, opened_ms: int) -> None:
        self._opened_ms = opened_ms
        """Before the id was asked for."""
        self._looked_ms = opened_ms
        self._lanes: dict[Address, _Seen] = {}
        self.age = Age.FRESH

    def look(self, lanes: Mapping[Address, Lane], now_ms: int) -> Age:
        """What to do now. To be asked before acknowledgements are counted."""
        before_ms = self._looked_ms
        if now_ms - before_ms < LOOK_EVERY_MS or self.age is Age.DOUBTFUL:
            return self.age
        self._looked_ms = now_ms
        early_ms = SESSION_IDLE_MS_MAX - SESSION_LOOK_MS_MAX
        age = Age.OLD if now_ms - self._opened_ms > early_ms else Age.FRESH
        for address, lane in lanes.items():
            seen = self._lanes.get(address)
            if seen is None:
                seen = self._lanes[address] = _Seen(self._opened_ms)
            age = max(age, self._look_at(seen, lane, before_ms, now_ms))
        self.age = age
        return age

    @staticmethod
    def _look_at(seen: _Seen, lane: Lane, before_ms: int, now_ms: int) -> Age:
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
