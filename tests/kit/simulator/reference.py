"""The fold of one partition, written a second time and differently: lists that only grow, no look-up tables, no states.

It reads the raw logs, decodes with `konverse.schemas` and shares nothing with `konverse.dialog`. Where both differ, one
of them does not keep protocol.md section 3. What the product keeps as a number, this keeps as a list with everything in
it, so that the checks can ask what happened to each message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.envelope import decode
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.journal import Commit
from konverse.schemas.records import Bounce, BounceReason, End, Envelope, Kind, Role

from .journals import Judged
from .kafka import Record

Key = tuple[int, bytes]
"""One side of a conversation: role and conversation."""


TALLIED: Final = ("duplicate", "gap", "foreign", "malformed", "misnumbered", "Error overtook")


class Heard(NamedTuple):
    """A record that an endpoint accepted."""

    offset: int
    type: str
    body: bytes
    writer: bytes
    counter: int
    kind: Kind


class Said(NamedTuple):
    """An output: what must stand at its counter in the destination's log, and since when it may."""

    order: int
    kind: Kind
    role: int
    conversation: bytes
    sequence: int
    type: str
    body: bytes
    detail: End | Bounce | None


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


class Reference:
    """All that a partition ever decided."""

    def __init__(self, address: Address, writer: bytes) -> None:
        self.address = address
        self.writer = writer
        self.ingested_to = 0
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
        self.tally: dict[str, int] = dict.fromkeys(TALLIED, 0)
        self.problems: list[str] = []
        self._order = 0

    def problem(self, text: str) -> None:
        """An invariant does not hold."""
        self.problems.append(f"{text} ({self.address.topic}/{self.address.partition})")

    def fold(self, journal: list[Judged], data: list[Record]) -> None:
        """Everything, from the beginning."""
        at = 0
        for record, decision, counts in journal:
            if not counts or not isinstance(decision, Commit):
                continue
            self._order = record.order
            while at < len(data) and data[at].offset < decision.ingest_to:
                if data[at].order > record.order:
                    self.problem(f"a commit ingested record {data[at].offset} before it was written")
                self._hear(data[at])
                at += 1
            self.ingested_to = decision.ingest_to
            self._decide(decision)

    # ------------------------------------------------------------------------------------------------------ commits

    def _decide(self, commit: Commit) -> None:
        for address, counter in commit.output_acks:
            known = self.acknowledged.get(address, 0)
            if counter > len(self.outputs.get(address, ())):
                self.problem(f"I8: commit {commit.number} acknowledges output {counter} that was never made")
            self.acknowledged[address] = max(known, counter)
        operations = commit.operations
        for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
            self._consume(commit.number, self.table[index], position >> 2, bool(position & 1))
        for index, name, body in ((index, name, body) for index, name, bodies in operations.sends for body in bodies):
            side = self.table[index]
            side.talked = True
            self._say(side.peer_at, Said(
                self._order, Kind.MESSAGE, side.key[0], side.key[1], side.numbering, name, body, None
            ))  # fmt: skip
            if side.numbering >= 0:
                side.numbering += 1
        for end in operations.ends:
            side = self.table[end.endpoint]
            if side.ended:
                self.problem(f"commit {commit.number} ends {side.key[1].hex()} a second time")
            self._end(side, failed=end.code > 0)

    def _consume(self, number: int, side: Side, up_to: int, error: bool) -> None:
        have = len(side.consumed) + len(side.thrown_away)
        if side.ended or not have <= up_to <= len(side.heard):
            self.problem(f"I7: commit {number} consumes {up_to} of {len(side.heard)} messages, {have} are gone already")
            return
        if error:
            if side.error is None:
                self.problem(f"I7: commit {number} consumes an Error that does not wait")
            elif have < len(side.heard):
                self.tally["Error overtook"] += 1
            side.error = None
        side.consumed += [(number, heard) for heard in side.heard[have:up_to]]

    def _end(self, side: Side, *, failed: bool) -> None:
        side.ended = True
        side.error = None
        side.thrown_away += side.heard[len(side.consumed) :]
        home = self.address if side.key[0] == Role.INITIATOR else side.peer_at
        # the product names the writers latest first
        received = tuple(reversed(side.voices.items()))
        kind, name = (Kind.ERROR, ERROR) if failed else (Kind.END, END_DIALOG)
        detail = End(side.opener, home, received)
        self._say(side.peer_at, Said(self._order, kind, side.key[0], side.key[1], side.numbering, name, b"", detail))
        self._bury(side)

    def _bury(self, side: Side) -> None:
        if side.gone:
            del self.living[side.key]
            del self.table[side.index]
            self.unused.append(side.index)
            self.refused_for_ever.add(side.key)

    def _say(self, address: Address, said: Said) -> None:
        self.outputs.setdefault(address, []).append(said)

    def _create(self, role: Role, envelope: Envelope, peer_at: Address, numbering: int) -> Side:
        key = (int(role), envelope.conversation)
        if key in self.refused_for_ever:
            self.problem(f"I9: {role.name} of {envelope.conversation.hex()} lives again")
        index = self.unused.pop() if self.unused else len(self.table)
        side = Side(key, index, envelope.writer, peer_at, numbering)
        self.sides.append(side)
        self.living[key] = self.table[index] = side
        return side

    # --------------------------------------------------------------------------------------------------------- data

    def _hear(self, record: Record) -> None:
        if record.header is None:
            self.tally["foreign"] += 1
            return
        try:
            envelope = decode(record.header)
        except MalformedRecord:
            self.tally["malformed"] += 1
            return
        if envelope.tag != self.address.tag:
            self.tally["foreign"] += 1
            return
        taken = self.accepted.get(envelope.writer, [])
        if envelope.counter != len(taken):
            self.tally["duplicate" if envelope.counter < len(taken) else "gap"] += 1
            return
        self.accepted[envelope.writer] = taken
        taken.append(envelope.counter)
        verdict = self._judge(envelope, record)
        self.verdicts[envelope.writer, envelope.counter] = verdict

    def _judge(self, envelope: Envelope, record: Record) -> str:
        if envelope.writer in self.closed:
            return self._answer_closed(envelope, record)
        match envelope.kind:
            case Kind.MESSAGE:
                return self._message(envelope, record)
            case Kind.BEGIN:
                begin = envelope.suffix.begin
                if begin is not None and (int(Role.INITIATOR), envelope.conversation) not in self.living:
                    self._create(Role.INITIATOR, envelope, begin.target, -1)
            case Kind.END_CALL:
                side = self.living.get((int(envelope.role), envelope.conversation))
                if side is not None and not side.ended:
                    side.ended_by_session = True
                    self._end(side, failed=bool(record.body))
            case Kind.END | Kind.ERROR:
                self._peer_end(envelope, record)
            case Kind.BOUNCE:
                detail = envelope.suffix.detail
                assert isinstance(detail, Bounce)
                self.mailbox[detail.writer, detail.at, detail.counter] = detail.reason
            case Kind.CLOSE_WRITER:
                self._close(envelope.conversation)
            case _:
                return "unknown kind"
        return "control"

    def _message(self, envelope: Envelope, record: Record) -> str:
        role = Role(1 - envelope.role)
        key = (int(role), envelope.conversation)
        begin = envelope.suffix.begin
        if key not in self.living:
            if not envelope.flags & 1 or begin is None or role is Role.INITIATOR:
                self.too_late.append((envelope.writer, envelope.counter, envelope.conversation))
                return self._bounce(envelope, record, BounceReason.NO_ENDPOINT)
            if self.tombstones.get(envelope.conversation) == envelope.writer:
                del self.tombstones[envelope.conversation]
                return self._bounce(envelope, record, BounceReason.ENDED, "tombstone")
            self._create(Role.TARGET, envelope, begin.home, 0)
        side = self.living[key]
        if side.ended:
            return "discarded"
        if side.peer_ended or side.peer_failed:
            self.too_late.append((envelope.writer, envelope.counter, envelope.conversation))
            return self._bounce(envelope, record, BounceReason.ENDED)
        side.talked = True
        misnumbered = envelope.sequence not in (-1, len(side.heard))
        self.tally["misnumbered"] += misnumbered
        if misnumbered and len({envelope.writer, *side.voices}) == 1:
            self.problem(f"I5: number {envelope.sequence} was accepted as {len(side.heard)} at {record.offset}")
        side.voices[envelope.writer] = envelope.counter
        side.heard.append(
            Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer, envelope.counter,
                  Kind.MESSAGE)
        )  # fmt: skip
        return "accepted"

    def _peer_end(self, envelope: Envelope, record: Record) -> None:
        role = Role(1 - envelope.role)
        side = self.living.get((int(role), envelope.conversation))
        detail = envelope.suffix.detail
        assert isinstance(detail, End)
        if side is None:
            if role is Role.TARGET:
                self.refused_for_ever.add((int(role), envelope.conversation))
                if detail.opener not in self.closed:
                    self.tombstones[envelope.conversation] = detail.opener
                answer = End(detail.opener, detail.home)
                self._say(detail.home, Said(
                    self._order, Kind.END, int(Role.TARGET), envelope.conversation, -1, END_DIALOG, b"", answer
                ))  # fmt: skip
            return
        if side.peer_ended or side.peer_failed:
            return
        failed = envelope.kind is Kind.ERROR
        side.peer_failed, side.peer_ended = failed, not failed
        heard = Heard(record.offset, envelope.suffix.message_type, record.body or b"", envelope.writer,
                      envelope.counter, envelope.kind)  # fmt: skip
        if side.ended:
            self._bury(side)
        elif failed:
            side.error = heard
        else:
            side.heard.append(heard)

    def _close(self, writer: bytes) -> None:
        if writer not in self.closed:
            self.closed[writer] = len(self.accepted.setdefault(writer, []))
        self.tombstones = {key: opener for key, opener in self.tombstones.items() if opener != writer}

    def _answer_closed(self, envelope: Envelope, record: Record) -> str:
        if envelope.kind is Kind.MESSAGE:
            return self._bounce(envelope, record, BounceReason.WRITER_CLOSED)
        begin = envelope.suffix.begin
        if envelope.kind is Kind.BEGIN and begin is not None:
            answer = End(envelope.writer, begin.home)
            self._say(begin.target, Said(
                self._order, Kind.END, int(Role.INITIATOR), envelope.conversation, -1, END_DIALOG, b"", answer
            ))  # fmt: skip
            return "refused BEGIN"
        return "closed"

    def _bounce(self, envelope: Envelope, record: Record, reason: BounceReason, why: str = "") -> str:
        suffix = envelope.suffix
        home = suffix.home or (suffix.begin.home if suffix.begin else None)
        if home is not None:
            detail = Bounce(suffix.origin or envelope.writer, envelope.counter, self.address, reason)
            self._say(home, Said(
                self._order, Kind.BOUNCE, 1 - envelope.role, envelope.conversation, -1, suffix.message_type,
                record.body or b"", detail,
            ))  # fmt: skip
        return f"bounced {why or reason.name}"
