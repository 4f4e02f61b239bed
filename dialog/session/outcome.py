"""What became of messages whose sender is gone: ask where their writer is closed, which closes it (protocol.md 5).

The first answer holds for ever: records below it were received, the others never will be. Where the sender itself had
closed its id, to go on under another one, that one is asked about as well, and the place that the record got under it.

A session that makes transactions is closed where they are first, and asked about when what they send has arrived:
they happened, and a destination that has closed their session takes nothing from them.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from konverse.dialog.rules.holes import hole_at
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.writer import MERGED, NOBODY, Heir, Hole
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix
from konverse.schemas.wire.token import Sent, Token
from konverse.schemas.wire.varint import varint

from .lanes import Handed
from .rotation import Unheard, Wanted, reply


class Outcome(NamedTuple):
    """What became of the messages that a token is about."""

    missing: dict[UUID, int]
    """Conversation -> number of its first message that was not received, and never will be, nor any behind it.

    NO_SEQUENCE where messages were redirected to it, and its session did not number its own any more.
    """

    @property
    def received(self) -> bool:
        """All of them were received."""
        return not self.missing


class Asking:
    """Questions about the writers of some messages, under one id. Of no use to anybody who goes on under theirs."""

    def __init__(self, token: Token) -> None:
        self._trails = [_Trail(one) for one in token.sent]
        self._transmission = token.transmission
        self._awaited: dict[bytes, tuple[Partition, dict[Address, int]]] = {}
        """Writer that was closed there -> the fold that says so, and how much it sends to whom."""
        self._arrived: set[bytes] = set()
        """Writers whose transactions have arrived."""
        self._wanted: dict[tuple[Address, bytes], Wanted] = {}
        self._next: dict[Address, int] = {}
        self._closed: dict[tuple[Address, bytes], tuple[int, Heir, tuple[Hole, ...]]] = {}
        self.expired = False
        """What became of some of them cannot be known any more."""

    def ask(self, asker: bytes) -> list[tuple[Address, Handed]]:
        """Records to be written now, in this order. Another `asker` asks anew what has no answer."""
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
            self._wanted[key] = Wanted(*key, asker, counter)
            prefix = head(Kind.CLOSE_WRITER, 0, Role.INITIATOR, key[0].tag, asker) + trail.writer
            out.append((key[0], (prefix + varint(counter) + varint(-1) + _NOTHING, asker, None)))
        return out

    def _asked_at(self, trail: _Trail) -> Address:
        """Where its writer has to be closed next."""
        through = self._transmission
        return trail.sent.address if through is None or trail.writer in self._arrived else through

    def read(self, state: Partition) -> Unheard | None:
        """Take the answers in the state of a destination; ANOTHER when they have to be asked for under another id."""
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
                self._awaited[wanted.asked] = (state, _sent_by(state))
            if said is Unheard.EXPIRED:
                self._expire(key)
            else:
                writer = state.writers[wanted.asked]
                assert writer.closed_at is not None
                self._closed[key] = (writer.closed_at, writer.heir or NOBODY, writer.holes)
        if state.address == self._transmission:
            self._look_what_arrived(state)
        for trail in self._trails:
            if trail.sent.address == state.address:
                self._follow(trail, state)
        return None

    def _look_what_arrived(self, state: Partition) -> None:
        """The numbers of one fold are compared with that fold's: another may have given others."""
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
        """Destinations whose state has to be read on."""
        return list(dict.fromkeys(self._asked_at(trail) for trail in self._trails if not trail.over))

    @property
    def outcome(self) -> Outcome | None:
        """The answer, when everything is known."""
        if self.addresses:
            return None
        missing: dict[UUID, int] = {}
        for trail in self._trails:
            if trail.number < trail.end:
                number = NO_SEQUENCE if trail.sent.sequence == NO_SEQUENCE else trail.number
                missing.setdefault(UUID(bytes=trail.sent.conversation), number)
        return Outcome(missing)


class _Trail:
    """Messages of one dialog under one id, which may be followed to the next one."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.writer = sent.writer
        self.counters = list(sent.counters) or [sent.held]
        self.number = sent.sequence
        """Of the first message that is not known to have been received."""
        self.end = sent.sequence + len(self.counters)
        self.over = False

    def follow(self, closed_at: int, heir: Heir, holes: tuple[Hole, ...], state: Partition) -> bool:
        """Its writer was closed there. True when that leaves open what became of the messages."""
        there = [counter for counter in self.counters if counter < closed_at]
        if there and self.sent.held >= 0:
            return self._look_up(state)
        for received, counter in enumerate(there):
            hole = hole_at(holes, counter)
            if hole is not None:  # its conversation has failed, and what stands behind has come back
                self.number += received
                self.over = True
                return hole.told == MERGED
        self.number += len(there)
        rest = self.counters[len(there) :]
        heir_id, at = heir
        if not rest or at < 0:
            self.over = True
        else:
            self.writer = heir_id
            self.counters = [at + 1 + counter - closed_at for counter in rest]
        return False

    def _look_up(self, state: Partition) -> bool:
        """Something was received where held messages would stand, or behind: look how far their conversation came."""
        self.over = True
        endpoint = state.endpoint(Role.TARGET, self.sent.conversation)
        if endpoint is None or self.sent.sequence == NO_SEQUENCE or endpoint.index in state.moves.arrivals:
            return True  # one that moved away and back does not know yet what still walks behind it
        self.number = min(max(self.number, endpoint.received), self.end)
        return False


def _sent_by(state: Partition) -> dict[Address, int]:
    return {to: stream.next for to, stream in state.streams.items()}


_NOTHING: Final = encode_suffix(Suffix())
