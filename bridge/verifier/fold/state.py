"""What the second fold knows of a partition: lists that only grow, and how a side stands by them.

What the second fold knows of batches: rows that wait, in one list, and all that was ever decided.

What a side takes along when it moves, and what it leaves, for the second fold.

What the second fold remembers of attempts and of time.

What the second fold keeps of messages that came back (protocol.md section 3, bounces), and of those that wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from konverse.bridge.verifier.records import Key, LogRecord
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import QUERY_ENTRIES_MAX
from konverse.schemas.system_messages import END_DIALOG, ERROR, Rejection
from konverse.schemas.wire.batches import Batch
from konverse.schemas.wire.records import (
    Bounce,
    BounceId,
    BounceReason,
    Closed,
    Detail,
    End,
    Envelope,
    Kind,
    Notice,
    Origin,
    WriterClosed,
)

from .ended import Cleanups, NamedSides, how_it_ends
from .forgeries import Contents
from .holes import SecondLosses

Facts = tuple[str, int, int, int, int, bool]
"""How a side stands: state, number of its next output, accepted, consumed, unread, whether an Error waits."""
CODES: Final = ("SO", "SI", "CO", "DI", "DO", "ER", "CD")
TALLIED: Final = (
    "duplicate", "gap", "foreign", "malformed", "misnumbered", "Error overtook", "row void", "row twice",
    "BATCH too late", "BATCH refused", "veto too late",
    "FIN", "FIN of nobody", "FIN answered", "transaction", "gated",
    "confirmed", "redirected",
    "redirected first", "redirected by another", "redirected again", "redirected in vain", "bounce unknown",
    "bounce of another", "let go", "no peer", "no peer heard",
    "lifetime over behind an end", "gone with its lifetime", "timer cancelled",
    "begun when over", "begun anew", "FIRST when over", "of a former life",
    "stranger", "closed by a PRUNE", "forgotten", "forged", "late heir", "redirected first, opened by another",
    "moved", "moved again", "moved back", "moved with unread", "moved finished", "installed from pieces",
    "END met a stub", "END CONVERSATION met a stub", "FIN met a stub", "FIN answer met a stub", "row met a stub",
    "no peer met a stub", "CLOSED walked on", "bounced behind a move", "FIN behind a move", "moved as a group",
    "redirected to what has moved", "owner went on behind a loss", "session went on behind a loss", "failed by a loss",
    "missed behind a loss", "freed by a loss", "told of a loss", "late behind a loss", "failed elsewhere by a loss",
    "rejected", "rejected at once", "begun in a group", "begun in a target's group", "moved to a group",
    "moved to a group with unread", "moved to a group elsewhere", "followed its group",
    "cleaned up", "cleaned up, not open", "taken back", "cleaned up and spoken to", "given up",
    "timer set", "timer set anew", "timer rang", "timer rang beside an Error", "timer waited", "timer met a stub",
    "moved with a timer", "lifetime over", "ranked", "moved with a level",
)  # fmt: skip
NOT_YET: Final = sys.maxsize
"""In place of the order of an output that may not leave yet."""
Track = tuple[bytes, bool]
"""Query, and whether BEGINs."""


class Heard(NamedTuple):
    """A record that an endpoint accepted."""

    offset: int
    type: str
    body: bytes
    writer: bytes
    counter: int
    kind: Kind
    timestamp_ms: int = 0
    origin: Origin | None = None
    """Where it was written first, when not here."""
    decided_at: int = -1
    """Offset of the decision that accepted it, where it was a row of a batch."""


PAST: Final = Heard(-1, "", b"", b"", -1, Kind.MESSAGE)
"""A message that was consumed before: elsewhere, or before the snapshot at which a verification begins."""


class Said(NamedTuple):
    """An output: what must stand at its counter in the destination's log, and since when it may."""

    order: int
    kind: Kind
    role: int
    conversation: bytes
    sequence: int
    type: str
    body: bytes
    detail: Detail
    origin: bytes | None = None
    """The session for which it was said, or whose message came back."""
    flags: int = 0


@dataclass(slots=True)
class Side:
    """An endpoint, for ever: also after it was forgotten."""

    key: Key
    index: int
    opener: bytes
    peer_at: Address
    numbering: int
    """Sequence number of the next output, -1 where a session numbers them."""
    heard: list[Heard] = field(default_factory=list)
    consumed: list[tuple[int, Heard]] = field(default_factory=list)
    """With the number of the COMMIT."""
    thrown_away: list[Heard] = field(default_factory=list)
    error: Heard | None = None
    rang: Heard | None = None
    """A DialogTimer that waits."""
    reminded: int = 0
    """DialogTimers that were consumed here."""
    timer_ms: int | None = None
    """When the next one is due."""
    expires_ms: int | None = None
    end_of_stream: str | None = None
    """What its home says when its timer rings: of a conversation of a pool."""
    voices: dict[bytes, int] = field(default_factory=dict)
    """Writer -> highest counter that was accepted."""
    speakers: set[bytes] = field(default_factory=set)
    """The sessions and owners that were accepted; what an owner sends for a session is the session's."""
    taken_back: int = 0
    """Records that its peer was to have, and that say nothing."""
    talked: bool = False
    begun_again: bool = False
    """Another BEGIN of its conversation numbers its messages from 0 on. A target does the same to its initiator when it
    is ended in silence (WITH CLEANUP) and opened by another session."""
    group: bytes = b""
    skipped: list[int] = field(default_factory=list)
    """Offsets of messages that an operator dropped; they are among the consumed ones."""
    ended: bool = False
    ended_by_session: bytes = b""
    """Which one called END CONVERSATION."""
    peer_ended: bool = False
    peer_failed: bool = False
    finished: bool = False
    """A handler of this side said FIN."""
    peer_finished: bool = False
    finisher: bytes = b""
    """Who said so: a session, or an owner."""
    answer: tuple[tuple[bytes, int], ...] | None = None
    """What the peer said of this side's FIN."""
    askers: list[bytes] = field(default_factory=list)
    """Whose FIN the peer has answered."""
    generation: int = 0
    """How often it has moved."""
    previous: Address | None = None
    brought: int = 0
    """Messages that were accepted before it came here."""
    consumed_before: int = 0
    thrown_before: int = 0
    left: bool = False
    """It went on to another place."""
    level: int = DEFAULT_LEVEL
    since: int = -1
    """Order of the COMMIT with which it began here, where that was read."""

    def forget_urgent(self) -> None:
        """As it ends: nothing overtakes what waits any more, and of time only its lifetime is left."""
        self.error = self.rang = self.timer_ms = self.end_of_stream = None

    @property
    def gone(self) -> bool:
        """Both sides ended: the product has forgotten it."""
        return self.ended and (self.peer_ended or self.peer_failed)

    @property
    def has_something(self) -> bool:
        """Something can be received."""
        overtakes = self.error is not None or self.rang is not None
        return not self.ended and (overtakes or len(self.consumed) < len(self.heard))

    @property
    def code(self) -> str:
        """The state's two letters, as the product should call it."""
        if self.ended:
            return "CD" if self.gone else "DO"
        if self.peer_failed:
            return "ER"
        if self.peer_ended:
            return "DI"
        return "CO" if self.talked or self.key[0] else "SO"

    @property
    def facts(self) -> Facts:
        """How it stands now."""
        consumed = len(self.consumed)
        unread = 0 if self.ended else len(self.heard) - consumed
        return self.code, self.numbering, len(self.heard), consumed, unread, self.error is not None


class SecondState:
    """All that a partition ever decided, and the few moves that both inputs make."""

    def __init__(self, address: Address, writer: bytes, brief: Callable[[bytes], bytes] = bytes) -> None:
        self.address = address
        self.brief = brief
        """What was made of the bodies of data records, to be made of a commit's bodies too."""
        self.writer = writer
        self.ingested_to = self.floor_ms = 0
        self.accepted: dict[bytes, list[int]] = {}
        """Writer -> its counters in the order in which they were taken."""
        self.losses = SecondLosses()
        self.closed: dict[bytes, int] = {}
        self.heirs: dict[bytes, tuple[bytes, int]] = {}
        """Writers that a record closed -> who sends the rest again, and behind which counter; zeros: nobody."""
        self.seen: dict[bytes, tuple[int, int]] = {}
        """Writer -> how many of its records there were at the PRUNE that found it changed, and its time."""
        self.forgotten: set[bytes] = set()
        self.told: dict[bytes, int] = {}
        self.answers: dict[tuple[bytes, Address], Notice | WriterClosed] = {}
        self.now_ms = 0
        """The time by which data is judged."""
        self.journal_ms = 0
        """The time of the journal up to here."""
        self.verdicts: dict[tuple[bytes, int], str] = {}
        self.contents = Contents()
        self.too_late: list[tuple[bytes, int, bytes]] = []
        """Writer, counter and conversation of messages that came when the conversation was over."""
        self.behind_end: list[tuple[bytes, int, bytes]] = []
        """Those of them that came to a target which had heard END."""
        self.sides: list[Side] = []
        self.living: dict[Key, Side] = {}
        self.table: dict[int, Side] = {}
        self.unused: list[int] = []
        self.outputs: dict[Address, list[Said]] = {}
        self.acknowledged: dict[Address, int] = {}
        self.tombstones: dict[bytes, bytes] = {}
        self.cleanups = Cleanups()
        self.named = NamedSides()
        self.strays: set[bytes] = set()
        """Conversations of which a target was heard where no initiator lived."""
        self.over: dict[Key, tuple[bytes, bool]] = {}
        """Sides that are over: their last opener, and whether they lived at all; the end of some came first."""
        self.again: list[tuple[bytes, bytes, Address]] = []
        """Conversations whose target was over and lives again: opener and home of the new one."""
        self.sent_back: list[tuple[Bounce, bytes]] = []
        """What went back to a mailbox, and the session whose it is."""
        self.batches = SecondBatches()
        self.deciding = -1
        """Offset of the decision that is being heard."""
        self.mailbox: dict[BounceId, Letter] = {}
        self.mailbox_bytes = self.order = 0
        self.fates: dict[BounceId, Fate] = {}
        """Of the messages that were in the mailbox."""
        self.incarnation = b""
        self.moves = SecondMoves()
        self.rejected: dict[int, Rejection] = {}
        self.given_up: set[bytes] = set()
        """Conversations that failed here although nobody had ended them."""
        self.far_verdicts: dict[tuple[bytes, Address, int], str] = {}
        """Of records that were written elsewhere: writer, place and counter."""
        self.tally: dict[str, int] = dict.fromkeys(TALLIED, 0)
        self.problems: list[str] = []
        self.past = Past()
        self.clean = True
        """The last owner released the partition, or there was none."""
        self.groups: dict[bytes, list[Side]] = {}
        """Group -> its living sides."""
        self.gates: list[SecondGate] = []
        self.times = Times()

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.address.topic}/{self.address.partition}"

    def problem(self, text: str) -> None:
        """An invariant does not hold."""
        self.problems.append(text)

    def facts(self) -> dict[Key, Facts]:
        """How all living sides stand now."""
        return {key: side.facts for key, side in self.living.items()}

    def end(self, side: Side, *, failed: bool) -> None:
        """This side ends: what it did not read is thrown away, the peer is told."""
        flags = self.named.flags(side.key)
        self.named.end(side.key, how_it_ends(side.code, failed=failed), self.now_ms)
        side.ended = True
        side.forget_urgent()
        side.thrown_away += side.heard[len(side.consumed) :]
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        # the product names the writers latest first
        received = tuple(reversed(side.voices.items()))
        kind, name = (Kind.ERROR, ERROR) if failed else (Kind.END, END_DIALOG)
        detail = End(side.opener, home, received)
        self.say(side.peer_at, Said(self.order, kind, *side.key, side.numbering, name, b"", detail, None, flags))
        self.bury(side)

    def fail(self, side: Side, offset: int, body: bytes) -> None:
        """Both sides get an Error; what was accepted before can still be consumed."""
        side.peer_failed = True
        self.given_up.add(side.key[1])
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        told = End(side.opener, home, tuple(reversed(side.voices.items())))
        flags = self.named.flags(side.key)
        self.say(side.peer_at, Said(self.order, Kind.ERROR, *side.key, side.numbering, ERROR, b"", told, None, flags))
        side.error = Heard(offset, ERROR, self.brief(body), b"", -1, Kind.ERROR, self.now_ms)

    def expected(self, address: Address, counter: int, kind: Kind) -> Said | None:
        """What a record of this kind under this counter has to be; None: what it was cannot be known.

        What was taken back may have been there before.
        """
        said = self.outputs[address][counter]
        return said if kind is Kind.VOID else self.cleanups.taken_back.get((address, counter), said)

    def bury(self, side: Side) -> None:
        """A side of which both have ended is known no more."""
        if side.gone:
            self.remove(side)

    def remove(self, side: Side) -> None:
        """A side is known no more, nor where it lived before."""
        self.take_away(side)
        self.over[side.key] = side.opener, True
        if side.previous is not None:
            self.say_closed(side.key, side.previous, side.generation - 1)

    def over_before_it_began(self, key: Key, opener: bytes) -> None:
        """A side may not come that its opener has ended already."""
        if key not in self.over or self.over[key][0] != opener:
            self.over[key] = opener, False

    def take_away(self, side: Side) -> None:
        """A side does not live here any more."""
        del self.living[side.key]
        del self.table[side.index]
        self.past.forget(side.key)
        self.groups[side.group].remove(side)
        if not self.groups[side.group]:
            del self.groups[side.group]
            self.moves.leaving.pop(side.group, None)
        self.unused.append(side.index)

    def say_closed(self, key: Key, address: Address, generation: int) -> None:
        """The stub of a side that has moved may go."""
        self.say(address, Said(self.order, Kind.CLOSED, key[0], key[1], -1, "", b"", Closed(generation)))

    def say(self, address: Address, said: Said) -> None:
        """An output; it may leave now, or when those have arrived that it was put behind."""
        if any(gate.to == address for gate in self.gates):
            said = said._replace(order=NOT_YET)
            self.tally["gated"] += 1
        self.outputs.setdefault(address, []).append(said)

    def mates(self, side: Side) -> list[Side]:
        """All sides of its group."""
        return self.groups[side.group]

    def hold(self, to: Address, behind: Address) -> None:
        """What is said to one address from here on leaves after everything that was said to the other."""
        said = len(self.outputs.get(behind, ()))
        if to != behind and self.acknowledged.get(behind, 0) < said:
            self.gates.append(SecondGate(to, len(self.outputs.get(to, ())), behind, said))

    def let_go(self) -> None:
        """Outputs may leave whose others have arrived, as the journal says by now."""
        opened = [gate for gate in self.gates if self.acknowledged.get(gate.behind, 0) >= gate.needs]
        self.gates = [gate for gate in self.gates if gate not in opened]
        for gate in opened:
            said = self.outputs.get(gate.to, [])
            end = min((left.first for left in self.gates if left.to == gate.to), default=len(said))
            for at in range(gate.first, end):
                if said[at].order == NOT_YET:
                    said[at] = said[at]._replace(order=self.order)

    def may_live(self, key: Key, opener: bytes, said_by: bytes) -> None:
        """An id that is over is used again by another opener, or when the opener itself says so once more."""
        last, lived = self.over.get(key, (b"", False))
        if last == opener and not (lived and said_by == opener):
            self.problem(f"I9: the {Role(key[0]).name.lower()} of {key[1].hex()} lives again")

    def create(self, key: Key, opener: bytes, peer_at: Address, numbering: int, group: bytes = b"") -> Side:
        """A side lives from here on."""
        index = self.unused.pop() if self.unused else len(self.table)
        role, conversation = key
        side = Side(key, index, opener, peer_at, numbering, group=group or own_group(Role(role), conversation))
        side.since = self.order
        self.sides.append(side)
        self.living[key] = self.table[index] = side
        self.join(side)
        return side

    def join(self, side: Side) -> None:
        """It belongs to its group, and is suspended with it."""
        mates = self.groups.setdefault(side.group, [])
        reasons = [self.past.suspended[mate.key] for mate in mates if mate.key in self.past.suspended]
        if reasons:
            self.past.suspended[side.key] = reasons[0]
        mates.append(side)


class Waits(NamedTuple):
    """A row that waits for a decision; the first five are its name, the first four its attempt's."""

    query: bytes
    begins: bool
    batch: int
    attempt: bytes
    number: int
    judge: Address | None
    """None when it is not known: the attempt was vetoed before."""
    envelope: Envelope
    record: LogRecord


class Taken(NamedTuple):
    """A row that a decision has accepted."""

    query: bytes
    begins: bool
    batch: int
    attempt: bytes
    number: int
    offset: int


@dataclass(slots=True)
class SecondBatches:
    """What a partition ever knew of batches."""

    waiting: list[Waits] = field(default_factory=list)
    there: set[tuple[bytes, bool, int, bytes, int]] = field(default_factory=set)
    """Names of the rows that wait."""
    settled: dict[Track, int] = field(default_factory=dict)
    """Highest batch that was decided; -1 for none. In the order in which the product met them."""
    asked: set[tuple[bytes, bool, int, bytes]] = field(default_factory=set)
    """Attempts that this partition has vetoed, until the answer."""
    taken: list[Taken] = field(default_factory=list)
    told: list[tuple[bytes, bool, int]] = field(default_factory=list)
    """Query, whether BEGINs, and batch of each decision that was heard."""
    judged: dict[bytes, list[tuple[Batch, bytes]]] = field(default_factory=dict)
    """Decided batches of each query that is judged here, and the writers of their BATCHes."""
    excluded: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """Query -> attempts that shall not win, and their batch."""
    missing: int = 0
    """Rows that won and were not here."""

    def meet(self, track: Track) -> int:
        """The highest batch decided; whoever meets a query too many forgets one of which nothing waits."""
        if track not in self.settled:
            if len(self.settled) >= QUERY_ENTRIES_MAX:
                busy = {(row.query, row.begins) for row in self.waiting}
                for known in [known for known in self.settled if known not in busy][:1]:
                    del self.settled[known]
            self.settled[track] = -1
        return self.settled[track]

    def wait(self, row: Waits) -> None:
        """A row waits."""
        self.waiting.append(row)
        self.there.add(row[:5])

    def release(self, rows: Iterable[Waits]) -> None:
        """Rows wait no more."""
        names = {row[:5] for row in rows}
        self.waiting = [row for row in self.waiting if row[:5] not in names]
        self.there -= names
        self.asked -= {name[:4] for name in names}

    def knows(self, query: bytes) -> bool:
        """Whether the query is judged here, or may be from now on."""
        if query not in self.judged and len(self.judged) < QUERY_ENTRIES_MAX:
            self.judged[query] = []
            self.excluded[query] = {}
        return query in self.judged

    def end(self, query: bytes) -> None:
        """The query is judged no more."""
        self.judged.pop(query, None)
        self.excluded.pop(query, None)

    def decided(self, query: bytes) -> int:
        """Number of the highest batch that was decided here."""
        return max((batch.number for batch, _ in self.judged[query]), default=-1)


class Luggage(NamedTuple):
    """What a side takes along."""

    previous: Address
    code: str
    peer_at: Address
    opener: bytes
    group: bytes
    received: int
    consumed: int
    numbering: int
    voices: tuple[tuple[bytes, int], ...]
    waiting: tuple[tuple[str, bytes, int, Origin], ...]
    error: tuple[str, bytes, int, Origin] | None
    finished: tuple[bool, bool, tuple[tuple[bytes, int], ...] | None, tuple[bytes, ...]]
    """Whether it has said FIN, whether its peer has, what the peer said of the first, and to whom."""
    rang: tuple[str, bytes, int, Origin] | None
    times: tuple[int | None, int | None, str | None]
    """When its timer is due, when its lifetime ends, and what is said when the timer rings."""
    level: int


class SecondStub(NamedTuple):
    """What it leaves."""

    to: Address
    previous: Address | None
    """Where it lived before it came here."""
    opened: bool
    """Something was said on it, in one direction or the other, as far as was known here."""


class SecondMoves:
    """What moved away from one partition, and to it."""

    def __init__(self) -> None:
        self.stubs: dict[Key, dict[int, SecondStub]] = {}
        """By side, then by the generation that left."""
        self.away: dict[Key, bytes] = {}
        """Openers of the sides that have left stubs, if they left behind the place where the fold begins."""
        self.over_elsewhere: set[bytes] = set()
        """Conversations whose sides have left stubs, and ended where they went."""
        self.installing: dict[bytes, list[bytes]] = {}
        """Pieces of a side that is arriving, by who sends them."""
        self.groups: dict[bytes, Address] = {}
        """Groups that the commit which is folded moves, and where to."""
        self.leaving: dict[bytes, Address] = {}
        """Groups that are to go to other partitions, because those live there to which something was moved."""
        self.left: dict[tuple[Key, int], list[Luggage]] = {}
        """What left, by its generation from then on; of several conversations when an id was used again."""
        self.arrived: dict[tuple[Key, int], list[Luggage]] = {}


@dataclass(slots=True)
class Times:
    """What the second fold remembers of timers and lifetimes (protocol.md section 7.9)."""

    expecting: dict[Key, None] = field(default_factory=dict)
    """Sides that may have one."""
    next_ms: int = -1
    """Nothing happens before that."""

    def look(self, *times_ms: int | None) -> None:
        """Something may happen then."""
        self.next_ms = min([self.next_ms, *(time_ms for time_ms in times_ms if time_ms is not None)])


@dataclass(slots=True)
class Past:
    """Which sides failed, and which were with an owner that died (protocol.md section 7.1)."""

    failures: dict[Key, int] = field(default_factory=dict)
    """In a row."""
    suspended: dict[Key, str] = field(default_factory=dict)
    """And why."""
    handed: list[Key] = field(default_factory=list)
    """The open TRY."""
    accused: list[list[Key]] = field(default_factory=list)
    """For each death that nothing explains: those that may have caused it."""
    wary: bool = False
    tried: set[bytes | Key] | None = None
    """Circles of which a TRY of this owner was not heard again; None where it stands before the snapshot."""

    @property
    def busy(self) -> bool:
        """A COMMIT may change something."""
        return bool(self.failures or self.suspended or self.handed or self.accused)

    def forget(self, key: Key) -> None:
        """The side is known no more."""
        self.failures.pop(key, None)
        self.suspended.pop(key, None)
        self.handed = [other for other in self.handed if other != key]
        self.accused = without(self.accused, [key])


def without(accused: list[list[Key]], gone: Collection[Key]) -> list[list[Key]]:
    """The deaths of which somebody else is accused."""
    left = ([key for key in case if key not in gone] for case in accused)
    return [case for case in left if case]


class Letter(NamedTuple):
    """A message that came back to its home."""

    session: bytes
    conversation: bytes
    sequence: int
    reason: BounceReason
    type: str
    body: bytes
    weight: int
    """Bytes of the body as it was."""


class Fate(NamedTuple):
    """How a message left the mailbox."""

    how: str
    """"confirmed", "redirected" or "let go"."""
    conversation: bytes = b""
    """To which it was redirected."""
    to: Address | None = None
    """Where the redirected message must come to stand,"""
    counter: int = -1
    """as this output."""


class SecondGate(NamedTuple):
    """The outputs to an address from `first` on wait until another one has `needs` outputs."""

    to: Address
    first: int
    behind: Address
    needs: int
