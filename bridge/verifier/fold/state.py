"""State of the second fold: lists that only grow, and the steps that several rules share.

`SecondState` holds one partition. Its endpoints are `Side`s: `sides` keeps each of them permanently, `living` and
`table` only those that the product still knows. `AcceptedRecord` is a record that a side accepted, `Output` an output.
The other classes hold what one group of rules needs: cleanups, batches, moves, timers, attempts, and the mailbox.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from konverse.bridge.verifier.records import Key, LogRecord
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import CLEANED_ENTRIES_MAX, END_WRITERS_MAX, QUERY_ENTRIES_MAX, TOMBSTONES_MAX
from konverse.schemas.system_messages import END_DIALOG, ERROR, Rejection
from konverse.schemas.wire.batches import Batch
from konverse.schemas.wire.records import (
    ACKED,
    NAMED,
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

from .ended import EndedNames, how_it_ends
from .forgeries import TakenContents
from .holes import SecondLosses
from .moved_state import SecondMoves

Facts = tuple[str, int, int, int, int, bool]
"""A side as the view shows it: state, next sequence number, accepted, consumed, unread, whether an Error waits."""
CODES: Final = ("SO", "SI", "CO", "DI", "DO", "ER", "CD")
TALLIED: Final = (
    "duplicate", "gap", "foreign", "malformed", "misnumbered", "Error overtook", "row void", "row twice",
    "BATCH too late", "BATCH refused", "veto too late",
    "FIN", "FIN without an endpoint", "FIN answered", "transaction", "gated",
    "confirmed", "redirected",
    "redirected first", "redirected by another", "redirected again", "redirected without effect", "bounce unknown",
    "bounce of another", "let go", "no peer", "no peer heard",
    "lifetime over after an end", "gone with its lifetime", "timer cancelled",
    "begun when over", "FIRST when over", "opened at home", "opened at home first",
    "reply after missed ones", "END after missed replies",
    "stranger", "closed by a PRUNE", "forgotten", "forged", "late heir", "redirected first, opened by another",
    "moved", "moved again", "moved back", "moved with unread", "moved finished", "installed from pieces",
    "END met a stub", "END CONVERSATION met a stub", "FIN met a stub", "FIN answer met a stub", "row met a stub",
    "no peer met a stub", "CLOSED walked on", "bounced after a move", "FIN after a move", "moved as a group",
    "redirected to what has moved", "owner went on after a loss", "session went on after a loss", "failed by a loss",
    "missed after a loss", "freed by a loss", "told of a loss", "late after a loss", "failed elsewhere by a loss",
    "acknowledged and lost",
    "rejected", "rejected at once", "begun in a group", "begun in a target's group", "moved to a group",
    "moved to a group with unread", "moved to a group elsewhere", "followed its group",
    "cleaned up", "cleaned up, not open", "taken back", "cleaned up and spoken to", "cleaned up elsewhere", "given up",
    "timer set", "timer set anew", "timer rang", "timer rang beside an Error", "timer waited", "timer met a stub",
    "moved with a timer", "lifetime over", "ranked", "moved with a level",
)  # fmt: skip
NOT_YET: Final = sys.maxsize
"""Order of an output that may not leave yet."""
Track = tuple[bytes, bool, bytes]
"""Query id, whether its rows are BEGINs for homes or messages for targets, and the writer that decides about them."""


class AcceptedRecord(NamedTuple):
    """A record that a side accepted."""

    offset: int
    type: str
    body: bytes
    writer: bytes
    counter: int
    kind: Kind
    timestamp_ms: int = 0
    origin: Origin | None = None
    """Where it was written first; None: here."""
    decided_at: int = -1
    """Offset of the DECISION that accepted it, if it was a row of a batch; else -1."""


PAST: Final = AcceptedRecord(-1, "", b"", b"", -1, Kind.MESSAGE)
"""Stands for a message that was consumed elsewhere, or before the snapshot at which the verification begins."""


class Output(NamedTuple):
    """An output: the record that must be under its counter in the destination's log, and since when it may be there."""

    order: int
    kind: Kind
    role: int
    conversation: bytes
    sequence: int
    type: str
    body: bytes
    detail: Detail
    origin: bytes | None = None
    """The session for which it was sent, or whose message came back."""
    flags: int = 0


@dataclass(slots=True)
class Side:
    """An endpoint. It is kept even after the product has forgotten it."""

    key: Key
    index: int
    opener: bytes
    peer_at: Address
    numbering: int
    """Sequence number of its next output; -1: a session numbers them."""
    heard: list[AcceptedRecord] = field(default_factory=list)
    consumed: list[tuple[int, AcceptedRecord]] = field(default_factory=list)
    """Messages that were received, each with the number of the COMMIT."""
    thrown_away: list[AcceptedRecord] = field(default_factory=list)
    error: AcceptedRecord | None = None
    rang: AcceptedRecord | None = None
    """A DialogTimer that waits to be received."""
    reminded: int = 0
    """DialogTimers that were received here."""
    timer_ms: int | None = None
    """When the next DialogTimer is due."""
    expires_ms: int | None = None
    end_of_stream: str | None = None
    """Type of the message that its home sends when the timer rings, for a conversation of a pool."""
    voices: dict[bytes, int] = field(default_factory=dict)
    """Writer -> highest counter that was accepted."""
    speakers: set[bytes] = field(default_factory=set)
    """Sessions and owners whose messages were accepted. Messages sent by an owner for a session are the session's."""
    taken_back: int | None = 0
    """Number of VOID records from its peer: outputs that the peer took back. None: unknown, after a snapshot."""
    talked: bool = False
    begun_again: bool = False
    """A second FIRST was accepted: another BEGIN of the conversation numbers its messages from 0."""
    group: bytes = b""
    skipped: list[int] = field(default_factory=list)
    """Offsets of messages that an operator dropped; they are in `consumed`, too."""
    ended: bool = False
    ended_by_session: bytes = b""
    """The session that called END CONVERSATION."""
    peer_ended: bool = False
    peer_failed: bool = False
    finished: bool = False
    """This side has sent FIN."""
    peer_finished: bool = False
    finisher: bytes = b""
    """Writer of the peer's FIN: a session or an owner."""
    answer: tuple[tuple[bytes, int], ...] | None = None
    """Writer and highest accepted counter, as the peer's answer to this side's FIN names them; None before it."""
    askers: list[bytes] = field(default_factory=list)
    """Writers whose FIN the peer has answered."""
    generation: int = 0
    """How often the side has moved."""
    previous: Address | None = None
    named: bool = False
    """The side moved here, and a caller chose the id of its conversation."""
    brought: int = 0
    """Number of messages that were accepted before the side came here."""
    consumed_before: int = 0
    thrown_before: int = 0
    left: bool = False
    """The side has moved to another partition."""
    level: int = DEFAULT_LEVEL
    since: int = -1
    """Order of the COMMIT with which the side began here; -1 if that COMMIT was not read."""

    def latest(self) -> tuple[tuple[bytes, int], ...]:
        """Writers with their highest accepted counters, latest first: those that an END or a FIN answer names (M51)."""
        return tuple(islice(reversed(self.voices.items()), END_WRITERS_MAX))

    def forget_urgent(self) -> None:
        """Drop the waiting Error, the waiting DialogTimer and the timer. Only the lifetime of the side stays."""
        self.error = self.rang = self.timer_ms = self.end_of_stream = None

    @property
    def gone(self) -> bool:
        """Whether both sides have ended, so that the product has forgotten this one."""
        return self.ended and (self.peer_ended or self.peer_failed)

    @property
    def has_something(self) -> bool:
        """Whether it has something to receive."""
        overtakes = self.error is not None or self.rang is not None
        return not self.ended and (overtakes or len(self.consumed) < len(self.heard))

    @property
    def code(self) -> str:
        """The two-letter code of its state, which the product must have as well."""
        if self.ended:
            return "CD" if self.gone else "DO"
        if self.peer_failed:
            return "ER"
        if self.peer_ended:
            return "DI"
        return "CO" if self.talked or self.key[0] else "SO"

    @property
    def facts(self) -> Facts:
        """The side as the view must show it."""
        consumed = len(self.consumed)
        unread = 0 if self.ended else len(self.heard) - consumed
        return self.code, self.numbering, len(self.heard), consumed, unread, self.error is not None


def minted_ms(writer: bytes) -> int | None:
    """The time in a UUIDv7; None for any other id, such as an owner's."""
    number = int.from_bytes(writer, "big")
    return number >> 80 if number >> 76 & 15 == 7 and number >> 62 & 3 == 2 else None


class SecondState:
    """Everything that a partition has ever accepted and decided, and the steps that several rules share."""

    def __init__(self, address: Address, writer: bytes, brief: Callable[[bytes], bytes] = bytes) -> None:
        self.address = address
        self.brief = brief
        """Shortens a body from a COMMIT, in the same way as the bodies of the data records were shortened."""
        self.writer = writer
        self.ingested_to = self.floor_ms = 0
        self.accepted: dict[bytes, list[int]] = {}
        """Writer -> its counters, in the order in which they were accepted."""
        self.losses = SecondLosses()
        self.closed: dict[bytes, int] = {}
        self.heirs: dict[bytes, tuple[bytes, int]] = {}
        """Writer that CLOSE_WRITER closed -> its heir (zeros: none), and the heir's counter after which it resends
        the unreceived records (-1: it does not)."""
        self.seen: dict[bytes, tuple[int, int]] = {}
        """Writer -> number of its records at the PRUNE that found it changed, and the time of that PRUNE."""
        self.forgotten: set[bytes] = set()
        self.told: dict[bytes, int] = {}
        self.answers: dict[tuple[bytes, Address], Notice | WriterClosed] = {}
        self.now_ms = 0
        """The time by which data records are judged."""
        self.journal_ms = 0
        """The latest time of a journal record that counts."""
        self.verdicts: dict[tuple[bytes, int], str] = {}
        self.contents = TakenContents(self.problem)
        self.too_late: list[tuple[bytes, int, bytes]] = []
        """Writer, counter and conversation of messages that came after the end of the conversation."""
        self.behind_end: list[tuple[bytes, int, bytes]] = []
        """The entries of `too_late` whose target was over or had accepted the END of its peer."""
        self.sides: list[Side] = []
        self.living: dict[Key, Side] = {}
        self.table: dict[int, Side] = {}
        self.unused: list[int] = []
        self.outputs: dict[Address, list[Output]] = {}
        self.acknowledged: dict[Address, int] = {}
        self.tombstones: dict[bytes, bytes] = {}
        self.cleanups = Cleanups()
        self.named = EndedNames()
        self.strays: set[bytes] = set()
        """Conversations whose target sent a record here although no initiator had ever lived here."""
        self.over: dict[Key, tuple[bytes, bool]] = {}
        """Side that is over -> its last opener, and whether it ever lived: some ENDs come before any FIRST."""
        self.again: list[tuple[bytes, bytes, Address]] = []
        """Targets that were over and live again: conversation, opener and home of the new one."""
        self.sent_back: list[tuple[Bounce, bytes]] = []
        """Bounces that were sent, each with the session that sent the message."""
        self.batches = SecondBatches()
        self.deciding = -1
        """Offset of the DECISION that is being folded; -1: none."""
        self.mailbox: dict[BounceId, BouncedRecord] = {}
        self.mailbox_bytes = self.order = 0
        self.fates: dict[BounceId, MailboxOutcome] = {}
        """How each message left the mailbox."""
        self.incarnation = b""
        self.moves = SecondMoves()
        self.rejected: dict[int, Rejection] = {}
        self.given_back = 0
        """Messages and notes that GIVE_BACK has sent to mailboxes."""
        self.given_up: set[bytes] = set()
        """Conversations that failed here although neither side had ended them."""
        self.far_verdicts: dict[tuple[bytes, Address, int], str] = {}
        """Verdicts about forwarded records, by writer, place and counter where they were written first."""
        self.tally: dict[str, int] = dict.fromkeys(TALLIED, 0)
        self.problems: list[str] = []
        self.past = HandlerFailures()
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
        """Note a contradiction, as "rule: text"."""
        self.problems.append(text)

    def facts(self) -> dict[Key, Facts]:
        """All living sides as the view must show them."""
        return {key: side.facts for key, side in self.living.items()}

    def end(self, side: Side, *, failed: bool) -> None:
        """End a side: its unreceived messages are discarded, and its peer is notified."""
        flags = NAMED if side.key[0] == Role.INITIATOR and self.is_named(side) else 0
        self.named.end(side.key, how_it_ends(side.code, failed=failed), self.now_ms)
        side.ended = True
        side.forget_urgent()
        side.thrown_away += side.heard[len(side.consumed) :]
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        received = side.latest()
        kind, name = (Kind.ERROR, ERROR) if failed else (Kind.END, END_DIALOG)
        detail = End(side.opener, home, received)
        self.stage(side.peer_at, Output(self.order, kind, *side.key, side.numbering, name, b"", detail, None, flags))
        self.bury(side)

    def is_named(self, side: Side) -> bool:
        """Whether the caller chose the id of its conversation."""
        return side.named or side.key in self.named.living

    def fail(self, side: Side, offset: int, body: bytes) -> None:
        """Fail a conversation: both sides get an Error; messages accepted before can still be received."""
        self.await_home(side)
        side.peer_failed = True
        self.given_up.add(side.key[1])
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        told = End(side.opener, home, side.latest())
        flags = NAMED if side.key[0] == Role.INITIATOR and self.is_named(side) else 0
        self.stage(
            side.peer_at, Output(self.order, Kind.ERROR, *side.key, side.numbering, ERROR, b"", told, None, flags)
        )
        side.error = AcceptedRecord(offset, ERROR, self.brief(body), b"", -1, Kind.ERROR, self.now_ms)

    def expected(self, address: Address, counter: int, kind: Kind) -> Output | None:
        """Return the output that a record of this kind under this counter must be; None if that is not known.

        An output that was taken back may have left before: under its counter the log has either the output or VOID.
        """
        said = self.outputs[address][counter]
        return said if kind is Kind.VOID else self.cleanups.taken_back.get((address, counter), said)

    def bury(self, side: Side) -> None:
        """Remove a side if its peer has ended, too."""
        if side.gone:
            self.remove(side)

    def remove(self, side: Side) -> None:
        """Remove a side that is over, and have the stub at its previous place removed."""
        self.take_away(side)
        self.over[side.key] = side.opener, True
        if side.previous is not None:
            closed = Closed(side.generation - 1)
            if side.key[0] == Role.TARGET:
                home, _ = self.cleanups.cleaned.get(side.key[1], (None, 0))
                closed = Closed(side.generation - 1, home, self.heard_of_home(side.key[1]))
            self.say_closed(side.key, side.previous, closed)

    def over_before_it_began(self, key: Key, opener: bytes) -> None:
        """Note that a side must not begin: its opener ended it before it began here."""
        if key not in self.over or self.over[key][0] != opener:
            self.over[key] = opener, False

    def take_away(self, side: Side) -> None:
        """Take a side out of everything that lists living sides."""
        del self.living[side.key]
        del self.table[side.index]
        self.past.forget(side.key)
        self.groups[side.group].remove(side)
        if not self.groups[side.group]:
            del self.groups[side.group]
            self.moves.leaving.pop(side.group, None)
        self.unused.append(side.index)

    def say_closed(self, key: Key, address: Address, closed: Closed) -> None:
        """Send CLOSED, so that the stub of a side that has moved is removed."""
        self.stage(address, Output(self.order, Kind.CLOSED, key[0], key[1], -1, "", b"", closed))

    def stage(self, address: Address, said: Output) -> None:
        """Add an output. It may leave at once, unless it must follow outputs that have not arrived."""
        if any(gate.to == address for gate in self.gates):
            said = said._replace(order=NOT_YET)
            self.tally["gated"] += 1
        before = self.outputs.setdefault(address, [])
        if before and self.acknowledged.get(address, 0) == len(before):
            said = said._replace(flags=said.flags | ACKED)
        before.append(said)

    def mates(self, side: Side) -> list[Side]:
        """All sides of its group."""
        return self.groups[side.group]

    def hold(self, to: Address, behind: Address) -> None:
        """Make later outputs to one address wait for everything that was sent to the other one so far."""
        said = len(self.outputs.get(behind, ()))
        if to != behind and self.acknowledged.get(behind, 0) < said:
            self.gates.append(SecondGate(to, len(self.outputs.get(to, ())), behind, said))

    def release(self) -> None:
        """Open the gates whose awaited outputs the journal has acknowledged."""
        opened = [gate for gate in self.gates if self.acknowledged.get(gate.behind, 0) >= gate.needs]
        self.gates = [gate for gate in self.gates if gate not in opened]
        for gate in opened:
            said = self.outputs.get(gate.to, [])
            end = min((left.first for left in self.gates if left.to == gate.to), default=len(said))
            for at in range(gate.first, end):
                if said[at].order == NOT_YET:
                    said[at] = said[at]._replace(order=self.order)

    def may_live(self, key: Key, opener: bytes, said_by: bytes) -> None:
        """Check that a side which is over begins again only by another opener, or by its opener's own second BEGIN."""
        last, lived = self.over.get(key, (b"", False))
        if last == opener and not (lived and said_by == opener):
            self.problem(f"I9: the {Role(key[0]).name.lower()} of {key[1].hex()} lives again")

    def refuse_first(self, conversation: bytes, opener: bytes) -> None:
        """Refuse the FIRST of this opener, once. The oldest entry is dropped when there are too many."""
        if len(self.tombstones) >= TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        self.tombstones[conversation] = opener

    def await_home(self, side: Side) -> None:
        """Refuse the FIRST that home may still send to a target that ends by itself."""
        if side.key[0] == Role.TARGET:
            self.refuse_home(side.key[1])

    def refuse_home(self, conversation: bytes) -> None:
        """Refuse the FIRST of home, unless the session's FIRST is refused already."""
        if conversation not in self.tombstones:
            self.refuse_first(conversation, conversation)

    def heard_of_home(self, conversation: bytes) -> bool:
        """Stop awaiting a FIRST of home; return whether one was awaited."""
        awaited = self.tombstones.get(conversation) == conversation
        if awaited:
            del self.tombstones[conversation]
        return awaited

    def create(self, key: Key, opener: bytes, peer_at: Address, numbering: int, group: bytes = b"") -> Side:
        """Begin a side."""
        index = self.unused.pop() if self.unused else len(self.table)
        role, conversation = key
        side = Side(key, index, opener, peer_at, numbering, group=group or own_group(Role(role), conversation))
        side.since = self.order
        self.sides.append(side)
        self.living[key] = self.table[index] = side
        self.join(side)
        return side

    def join(self, side: Side) -> None:
        """Add a side to its group. If the group is suspended, the side is, too."""
        mates = self.groups.setdefault(side.group, [])
        reasons = [self.past.suspended[mate.key] for mate in mates if mate.key in self.past.suspended]
        if reasons:
            self.past.suspended[side.key] = reasons[0]
        mates.append(side)


class WaitingRow(NamedTuple):
    """A row that waits for a DECISION; the first six fields are its name, the first five its attempt's."""

    query: bytes
    begins: bool
    by: bytes
    """Writer whose DECISION decides."""
    batch: int
    attempt: bytes
    number: int
    judge: Address | None
    """Partition that judges the query; None: unknown, because a veto preceded the beginning of the verification."""
    envelope: Envelope
    record: LogRecord


class AcceptedRow(NamedTuple):
    """A row that a DECISION has accepted."""

    query: bytes
    begins: bool
    by: bytes
    batch: int
    attempt: bytes
    number: int
    offset: int


@dataclass(slots=True)
class Cleanups:
    """The traces of ENDs WITH CLEANUP."""

    cleaned: dict[bytes, tuple[Address, int]] = field(default_factory=dict)
    """Conversation of a target that was cleaned up -> its home, and when; kept until the home is notified."""
    cut_off: set[Key] = field(default_factory=set)
    """All sides that were cleaned up and whose peer was not notified."""
    taken_back: dict[tuple[Address, int], Output | None] = field(default_factory=dict)
    """Destination and counter of an output that became VOID -> the output; None if it is not known."""

    def remember(self, conversation: bytes, home: Address, now_ms: int) -> None:
        """Note that a target was cleaned up. The oldest entry is dropped when there are too many (M148)."""
        if len(self.cleaned) >= CLEANED_ENTRIES_MAX:
            del self.cleaned[next(iter(self.cleaned))]
        self.cleaned[conversation] = home, now_ms


@dataclass(slots=True)
class SecondBatches:
    """Batches of queries: the rows that wait, and everything that was ever decided."""

    waiting: list[WaitingRow] = field(default_factory=list)
    there: set[tuple[bytes, bool, bytes, int, bytes, int]] = field(default_factory=set)
    """Names of the rows that wait."""
    settled: dict[Track, int] = field(default_factory=dict)
    """Track -> highest batch that was decided, -1 for none; in the order in which the product met them."""
    asked: set[tuple[bytes, bool, bytes, int, bytes]] = field(default_factory=set)
    """Attempts that this partition has vetoed and whose answer has not come."""
    taken: list[AcceptedRow] = field(default_factory=list)
    told: list[tuple[bytes, bool, int]] = field(default_factory=list)
    """Query, whether it is about BEGINs, and batch of each DECISION that settled a batch here."""
    judged: dict[bytes, list[tuple[Batch, bytes]]] = field(default_factory=dict)
    """Query that is judged here -> its decided batches, and the writers of their BATCHes."""
    excluded: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """Query -> vetoed attempts, which must not win, and their batch."""
    missing: int = 0
    """Rows that won and were missing here."""

    def meet(self, track: Track) -> int:
        """Return the highest decided batch of a track, -1 for none.

        Where there are too many tracks, a new one displaces the oldest one without waiting rows.
        """
        if track not in self.settled:
            if len(self.settled) >= QUERY_ENTRIES_MAX:
                busy = {(row.query, row.begins, row.by) for row in self.waiting}
                for known in [known for known in self.settled if known not in busy][:1]:
                    del self.settled[known]
            self.settled[track] = -1
        return self.settled[track]

    def wait(self, row: WaitingRow) -> None:
        """Add a row that waits."""
        self.waiting.append(row)
        self.there.add(row[:6])

    def named(self, row: WaitingRow) -> Iterator[WaitingRow]:
        """The rows that wait under the name of this one."""
        return (other for other in self.waiting if other[:6] == row[:6]) if row[:6] in self.there else iter(())

    def release(self, rows: Iterable[WaitingRow]) -> None:
        """Remove rows that wait."""
        names = {row[:6] for row in rows}
        self.waiting = [row for row in self.waiting if row[:6] not in names]
        self.there -= names
        self.asked -= {name[:5] for name in names}

    def knows(self, query: bytes) -> bool:
        """Whether the query is judged here. A new query is admitted while there is room."""
        if query not in self.judged and len(self.judged) < QUERY_ENTRIES_MAX:
            self.judged[query] = []
            self.excluded[query] = {}
        return query in self.judged

    def end(self, query: bytes) -> None:
        """Stop judging a query."""
        self.judged.pop(query, None)
        self.excluded.pop(query, None)

    def decided(self, query: bytes) -> int:
        """The highest batch of a query that was decided here; -1: none."""
        return max((batch.number for batch, _ in self.judged[query]), default=-1)


@dataclass(slots=True)
class Times:
    """Timers and lifetimes (protocol.md section 7.9)."""

    expecting: dict[Key, None] = field(default_factory=dict)
    """Sides that may have a timer or a lifetime."""
    next_ms: int = -1
    """Nothing is due before this time."""

    def include(self, *times_ms: int | None) -> None:
        """Note times at which something is due."""
        self.next_ms = min([self.next_ms, *(time_ms for time_ms in times_ms if time_ms is not None)])


@dataclass(slots=True)
class HandlerFailures:
    """Sides whose handlers failed, and sides that a dead owner had handed out (protocol.md section 7.1)."""

    failures: dict[Key, int] = field(default_factory=dict)
    """Side -> failed attempts in a row."""
    suspended: dict[Key, str] = field(default_factory=dict)
    """Suspended side -> reason."""
    handed: list[Key] = field(default_factory=list)
    """Sides of the open TRY."""
    accused: list[list[Key]] = field(default_factory=list)
    """For each unexplained death of an owner: the sides that may have caused it."""
    wary: bool = False
    tried: set[bytes | Key] | None = None
    """Groups that a TRY of this owner named and no COMMIT has received from since; None if its CLAIM was not read."""

    @property
    def busy(self) -> bool:
        """Whether a COMMIT can change any of this."""
        return bool(self.failures or self.suspended or self.handed or self.accused)

    def forget(self, key: Key) -> None:
        """Forget a side."""
        self.failures.pop(key, None)
        self.suspended.pop(key, None)
        self.handed = [other for other in self.handed if other != key]
        self.accused = without(self.accused, [key])


def without(accused: list[list[Key]], gone: Collection[Key]) -> list[list[Key]]:
    """The deaths without these suspects. A death with no other suspect is dropped."""
    left = ([key for key in case if key not in gone] for case in accused)
    return [case for case in left if case]


class BouncedRecord(NamedTuple):
    """A message that came back, in the mailbox of its home."""

    session: bytes
    conversation: bytes
    sequence: int
    reason: BounceReason
    type: str
    body: bytes
    weight: int
    """Size of the whole body in bytes."""


class MailboxOutcome(NamedTuple):
    """How a message left the mailbox."""

    how: str
    """"confirmed", "redirected" or "let go"."""
    conversation: bytes = b""
    """Conversation to which it was redirected."""
    to: Address | None = None
    """Partition to which the redirected message was sent."""
    counter: int = -1
    """Counter of the redirected message there."""


class SecondGate(NamedTuple):
    """Outputs to one address, from `first` on, wait until `needs` outputs to another one are acknowledged."""

    to: Address
    first: int
    behind: Address
    needs: int
