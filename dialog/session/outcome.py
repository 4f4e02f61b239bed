"""Outcome: which messages of a sender that is gone were received (protocol.md section 5, M136).

The question is a CLOSE_WRITER, so the first answer holds for ever: records below the closing counter were received, the
others never will be. If the sender itself had closed its id to continue under a new one (its heir), the heir is asked
about as well, for the counter that the record got under it.

A session with transactions is closed at the transmission partition first. Its other destinations are asked when the
outputs of its transactions have arrived: the transactions have happened, but a destination that has closed their
session would not accept their outputs.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from konverse.dialog.rules.heirs import is_behind
from konverse.dialog.rules.holes import hole_at
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import MERGED, NO_HEIR, Heir, Hole, Writer
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix
from konverse.schemas.wire.token import Sent, Token
from konverse.schemas.wire.varint import varint

from .lanes import Handed
from .rotation import CloseQuery, Unheard, reply


class Outcome(NamedTuple):
    """Which of the messages named by a token were received."""

    missing: dict[UUID, int]
    """Conversation -> number of its first message that was not received. Neither it nor a later one ever will be.

    NO_SEQUENCE where messages were redirected to the conversation, so that its session did not number its own.
    """

    @property
    def received(self) -> bool:
        """Whether all of them were received."""
        return not self.missing


class OutcomeQuery:
    """Questions about the writers of some messages, asked under one id. They close these writers, without an heir."""

    def __init__(self, token: Token) -> None:
        self._trails = [_Trail(one) for one in token.sent]
        self._transmission = token.transmission
        self._awaited: dict[bytes, tuple[Partition, dict[Address, int]]] = {}
        """Writer closed at the transmission partition -> a fold that shows it, and that fold's output counters."""
        self._arrived: set[bytes] = set()
        """Writers whose transactions have arrived."""
        self._wanted: dict[tuple[Address, bytes], CloseQuery] = {}
        self._next: dict[Address, int] = {}
        self._closed: dict[tuple[Address, bytes], tuple[int, Heir, tuple[Hole, ...]]] = {}
        self.expired = False
        """The outcome of some messages cannot be known any more."""

    def ask(self, asker: bytes) -> list[tuple[Address, Handed]]:
        """Records to write, in this order. A new `asker` asks every question again that has no answer."""
        if any(wanted.asker != asker for wanted in self._wanted.values()):
            self._wanted.clear()
            self._next.clear()
        out: list[tuple[Address, Handed]] = []
        for trail in self._trails:
            key = (self._asked_at(trail), trail.writer)
            if trail.over or key in self._wanted or (key[0] != trail.sent.address and key[1] in self._awaited):
                continue
            counter = self._next.get(key[0], 0)
            self._next[key[0]] = counter + 1
            self._wanted[key] = CloseQuery(*key, asker, counter)
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, key[0].tag, asker) + trail.writer
            out.append((key[0], (prefix + varint(counter) + varint(-1) + _NOTHING, asker, None)))
        return out

    def _asked_at(self, trail: _Trail) -> Address:
        """The partition where its writer has to be closed next."""
        through = self._transmission
        return trail.sent.address if through is None or trail.writer in self._arrived else through

    def read(self, state: Partition) -> Unheard | None:
        """Take the answers from a destination's state. Returns ANOTHER when a new asker is needed."""
        for key, wanted in [*self._wanted.items()]:
            said = reply(state, wanted) if wanted.address == state.address else None
            if said is None:
                continue
            if said is Unheard.ANOTHER:
                return said
            if said is Unheard.LATER:
                del self._wanted[key]
                continue
            if state.address == self._transmission:
                self._awaited.setdefault(wanted.asked, (state, _sent_by(state)))
            if said is Unheard.EXPIRED:
                self._expire(key)
            else:
                writer = state.writers[wanted.asked]
                assert writer.closed_at is not None
                self._closed[key] = (writer.closed_at, writer.heir or NO_HEIR, writer.holes)
        if state.address == self._transmission:
            self._read_arrivals(state)
        for trail in self._trails:
            if trail.sent.address == state.address:
                self._follow(trail, state)
        return None

    def _read_arrivals(self, state: Partition) -> None:
        """Note the writers whose transactions have arrived.

        Output counters are compared within one fold, because another fold may have given others.
        """
        asked = {trail.sent.address for trail in self._trails}
        for writer, (source, sent) in self._awaited.items():
            if source is not state:
                self._awaited[writer] = (state, sent := _sent_by(state))
            if all(state.streams[to].acked >= number for to, number in sent.items() if to in asked):
                self._arrived.add(writer)

    def _expire(self, key: tuple[Address, bytes]) -> None:
        for trail in self._trails:
            if (trail.sent.address, trail.writer) == key:
                self.expired = trail.over = True

    def _follow(self, trail: _Trail, state: Partition) -> None:
        while not trail.over:
            closed = self._closed.get((state.address, trail.writer))
            if closed is None:
                return
            self.expired |= trail.follow(*closed, state)

    @property
    def addresses(self) -> list[Address]:
        """Partitions whose states are wanted."""
        return list(dict.fromkeys(self._asked_at(trail) for trail in self._trails if not trail.over))

    @property
    def outcome(self) -> Outcome | None:
        """The answer; None while anything is unknown."""
        if self.addresses:
            return None
        missing: dict[UUID, int] = {}
        for trail in self._trails:
            if trail.number < trail.end:
                number = NO_SEQUENCE if trail.sent.sequence == NO_SEQUENCE else trail.number
                missing.setdefault(UUID(bytes=trail.sent.conversation), number)
        return Outcome(missing)


class _Trail:
    """Messages of one dialog, followed from one writer id to its heir."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.writer = sent.writer
        self.counters = list(sent.counters) or [sent.held]
        self.number = sent.sequence
        """Sequence number of the first message not known to be received."""
        self.end = sent.sequence + len(self.counters)
        self.over = False

    def follow(self, closed_at: int, heir: Heir, holes: tuple[Hole, ...], state: Partition) -> bool:
        """Process the closing of its writer at `closed_at`. Returns True when the outcome cannot be known."""
        there = [counter for counter in self.counters if counter < closed_at]
        if there and self.sent.held >= 0:
            return self._ask_endpoint(state)
        for received, counter in enumerate(there):
            hole = hole_at(holes, counter)
            if hole is not None:  # its conversation has failed, and the later messages have come back
                self.number += received
                self.over = True
                return hole.answered_to == MERGED
        self.number += len(there)
        rest = self.counters[len(there) :]
        heir_id, at = heir
        if not rest or at < 0:
            self.over = True
        else:
            self.writer = heir_id
            self.counters = [at + 1 + counter - closed_at for counter in rest]
        return False

    def _ask_endpoint(self, state: Partition) -> bool:
        """Records were ingested at counters of the held messages: the endpoint tells how many of these are received."""
        self.over = True
        endpoint = state.endpoint(Role.TARGET, self.sent.conversation)
        if endpoint is None or self.sent.sequence == NO_SEQUENCE or endpoint.index in state.moves.arrivals:
            return True  # after a move away and back, some of its messages may still be on their way
        key = Role.TARGET, self.sent.conversation
        speaks = any(lane.writer.id == self.writer for lane in endpoint.lanes())
        shared = state.named.living.get(key)
        if shared or (shared is False and not speaks) or key in state.named.over:
            return True  # other sessions may have begun it as well, and their messages are among the received ones
        if any(not self._is_ours(lane.writer, state) for lane in endpoint.lanes()):
            return True  # handlers at its home have sent as well, or another process that has adopted it
        self.number = min(max(self.number, endpoint.received), self.end)
        return False

    def _is_ours(self, writer: Writer, state: Partition) -> bool:
        """Whether `writer` wrote these messages, or is an earlier id of the session that did."""
        return writer.id == self.writer or is_behind(state, writer, self.writer)


def _sent_by(state: Partition) -> dict[Address, int]:
    return {to: stream.next for to, stream in state.streams.items()}


_NOTHING: Final = encode_suffix(Suffix())
