"""What the second fold knows of a partition: lists that only grow, and how a side stands by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.identifiers import Address
from konverse.schemas.records import Bounce, BounceReason, Closed, End, Forwarded, Kind, Origin, Role

from .second_gates import NOT_YET, Gates

Key = tuple[int, bytes]
"""One side of a conversation: role and conversation."""

Facts = tuple[str, int, int, int, int, bool]
"""How a side stands: state, number of its next output, accepted, consumed, unread, whether an Error waits."""


CODES: Final = ("SO", "SI", "CO", "DI", "DO", "ER", "CD")

TALLIED: Final = ("duplicate", "gap", "foreign", "malformed", "misnumbered", "Error overtook", *(
    "moved", "moved again", "moved back", "moved with unread", "installed from pieces", "END met a stub",
    "END CONVERSATION met a stub", "CLOSED walked on", "bounced behind a move",
))  # fmt: skip


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
    detail: End | Bounce | Forwarded | Closed | None


class Luggage(NamedTuple):
    """What a side takes along when it moves."""

    previous: Address
    code: str
    peer_at: Address
    opener: bytes
    received: int
    consumed: int
    numbering: int
    voices: tuple[tuple[bytes, int], ...]
    waiting: tuple[tuple[str, bytes, int, Origin], ...]
    error: tuple[str, bytes, int, Origin] | None


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
    voices: dict[bytes, int] = field(default_factory=dict)
    """Writer -> highest counter that was accepted."""
    talked: bool = False
    ended: bool = False
    ended_by_session: bool = False
    peer_ended: bool = False
    peer_failed: bool = False
    generation: int = 0
    """How often it has moved."""
    previous: Address | None = None
    brought: int = 0
    """Messages that were accepted before it came here."""
    consumed_before: int = 0
    thrown_before: int = 0
    left: bool = False
    """It went on to another place."""

    @property
    def gone(self) -> bool:
        """Both sides ended: the product has forgotten it."""
        return self.ended and (self.peer_ended or self.peer_failed)

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
        self.ingested_to = 0
        self.floor_ms = 0
        self.accepted: dict[bytes, list[int]] = {}
        """Writer -> its counters in the order in which they were taken."""
        self.closed: dict[bytes, int] = {}
        self.verdicts: dict[tuple[bytes, int], str] = {}
        self.too_late: list[tuple[bytes, int, bytes]] = []
        """Writer, counter and conversation of messages that came when the conversation was over."""
        self.sides: list[Side] = []
        self.living: dict[Key, Side] = {}
        self.table: dict[int, Side] = {}
        self.unused: list[int] = []
        self.outputs: dict[Address, list[Said]] = {}
        self.acknowledged: dict[Address, int] = {}
        self.tombstones: dict[bytes, bytes] = {}
        self.refused_for_ever: set[Key] = set()
        self.mailbox: dict[tuple[bytes, Address, int], BounceReason] = {}
        self.incarnation = b""
        self.stubs: dict[Key, dict[int, tuple[Address, Address | None]]] = {}
        """Side, then generation -> where it went, and where it was before it came here."""
        self.installing: dict[bytes, list[bytes]] = {}
        self.left: dict[tuple[Key, int], Luggage] = {}
        """What left, by its generation from then on."""
        self.arrived: dict[tuple[Key, int], Luggage] = {}
        self.far_verdicts: dict[tuple[bytes, Address, int], str] = {}
        """Of records that were written elsewhere: writer, place and counter."""
        self.gates = Gates()
        self.tally: dict[str, int] = dict.fromkeys(TALLIED, 0)
        self.problems: list[str] = []
        self.order = 0

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
        side.ended = True
        side.error = None
        side.thrown_away += side.heard[len(side.consumed) :]
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        # the product names the writers latest first
        received = tuple(reversed(side.voices.items()))
        kind, name = (Kind.ERROR, ERROR) if failed else (Kind.END, END_DIALOG)
        detail = End(side.opener, home, received)
        self.say(side.peer_at, Said(self.order, kind, side.key[0], side.key[1], side.numbering, name, b"", detail))
        self.bury(side)

    def bury(self, side: Side) -> None:
        """A side of which both have ended is known no more."""
        if side.gone:
            self.take_away(side)
            self.refused_for_ever.add(side.key)
            if side.previous is not None:
                self.say_closed(side.key, side.previous, side.generation - 1)

    def take_away(self, side: Side) -> None:
        """A side does not live here any more."""
        del self.living[side.key]
        del self.table[side.index]
        self.unused.append(side.index)

    def say_closed(self, key: Key, address: Address, generation: int) -> None:
        """The stub of a side that has moved may go."""
        self.say(address, Said(self.order, Kind.CLOSED, key[0], key[1], -1, "", b"", Closed(generation)))

    def say(self, address: Address, said: Said) -> None:
        """An output."""
        waits = address in self.gates.closed
        self.outputs.setdefault(address, []).append(said._replace(order=NOT_YET) if waits else said)

    def create(self, key: Key, opener: bytes, peer_at: Address, numbering: int) -> Side:
        """A side lives from here on."""
        if key in self.refused_for_ever:
            self.problem(f"I9: the {Role(key[0]).name.lower()} of {key[1].hex()} lives again")
        index = self.unused.pop() if self.unused else len(self.table)
        side = Side(key, index, opener, peer_at, numbering)
        self.sides.append(side)
        self.living[key] = self.table[index] = side
        return side
