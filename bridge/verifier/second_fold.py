"""The fold of one partition, written a second time and differently: lists that only grow, no look-up tables, no states.

What the product keeps as a number, this keeps as a list with everything in it, so that the checks can ask what happened
to each message (protocol.md section 3). A log that contradicts itself is a problem to be told, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from konverse.schemas.catalog import END_DIALOG, ERROR
from konverse.schemas.envelope import decode
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.journal import SYSTEM_BITS, TOOK_ERROR, Commit
from konverse.schemas.records import Bounce, BounceReason, End, Envelope, Kind, Role

from .journals import Judged
from .records import LogRecord

Key = tuple[int, bytes]
"""One side of a conversation: role and conversation."""

Facts = tuple[str, int, int, int, int, bool]
"""How a side stands: state, number of its next output, accepted, consumed, unread, whether an Error waits."""


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

    @property
    def facts(self) -> Facts:
        """How it stands now."""
        consumed = len(self.consumed)
        unread = 0 if self.ended else len(self.heard) - consumed
        return self.code, self.numbering, len(self.heard), consumed, unread, self.error is not None


class SecondFold:
    """All that a partition ever decided."""

    def __init__(self, address: Address, writer: bytes, brief: Callable[[bytes], bytes] = bytes) -> None:
        self.address = address
        self.brief = brief
        """What was made of the bodies of data records, to be made of a commit's bodies too."""
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

    def fold(self, journal: Iterable[Judged], data: Sequence[LogRecord], shown_at: int = -1) -> dict[Key, Facts]:
        """Everything, from the beginning; returns how the living sides stood at journal offset `shown_at`."""
        at = 0
        then: dict[Key, Facts] | None = None
        for record, decision, counts in journal:
            if then is None and record.offset > shown_at:
                then = self.facts()
            if not counts or not isinstance(decision, Commit):
                continue
            self._order = record.order
            while at < len(data) and data[at].offset < decision.ingest_to:
                if data[at].order > record.order:
                    self.problem(f"I3: a commit ingested record {data[at].offset} before it was written")
                self._hear(data[at])
                at += 1
            self.ingested_to = decision.ingest_to
            self._decide(decision)
        return self.facts() if then is None else then

    # ------------------------------------------------------------------------------------------------------ commits

    def _decide(self, commit: Commit) -> None:
        for address, counter in commit.output_acks:
            known = self.acknowledged.get(address, 0)
            if counter > len(self.outputs.get(address, ())):
                self.problem(f"I8: commit {commit.number} acknowledges output {counter} that was never made")
            self.acknowledged[address] = max(known, counter)
        operations = commit.operations
        for conversation, begin in operations.begins:
            self._create((int(Role.INITIATOR), conversation), self.writer, begin.target, 0)
        for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
            side = self._at(index, commit)
            if side is not None:
                self._consume(commit.number, side, position >> SYSTEM_BITS, error=bool(position & TOOK_ERROR))
        for index, name, body in ((index, name, body) for index, name, bodies in operations.sends for body in bodies):
            side = self._at(index, commit)
            if side is None:
                continue
            side.talked = True
            self._say(side.peer_at, Said(
                self._order, Kind.MESSAGE, side.key[0], side.key[1], side.numbering, name, self.brief(body), None
            ))  # fmt: skip
            if side.numbering >= 0:
                side.numbering += 1
        for end in operations.ends:
            side = self._at(end.endpoint, commit)
            if side is None:
                continue
            if side.ended:
                self.problem(f"I9: commit {commit.number} ends {side.key[1].hex()} a second time")
                continue
            self._end(side, failed=end.code > 0)

    def _at(self, index: int, commit: Commit) -> Side | None:
        side = self.table.get(index)
        if side is None:
            self.problem(f"I3: commit {commit.number} speaks of endpoint {index}, where nobody lives")
        return side

    def _consume(self, number: int, side: Side, up_to: int, *, error: bool) -> None:
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

    def _create(self, key: Key, opener: bytes, peer_at: Address, numbering: int) -> None:
        if key in self.refused_for_ever:
            self.problem(f"I9: the {Role(key[0]).name.lower()} of {key[1].hex()} lives again")
        index = self.unused.pop() if self.unused else len(self.table)
        side = Side(key, index, opener, peer_at, numbering)
        self.sides.append(side)
        self.living[key] = self.table[index] = side

    # --------------------------------------------------------------------------------------------------------- data

    def _hear(self, record: LogRecord) -> None:
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

    def _judge(self, envelope: Envelope, record: LogRecord) -> str:
        if envelope.writer in self.closed:
            return self._answer_closed(envelope, record)
        match envelope.kind:
            case Kind.MESSAGE:
                return self._message(envelope, record)
            case Kind.BEGIN:
                begin = envelope.suffix.begin
                key = (int(Role.INITIATOR), envelope.conversation)
                if begin is not None and key not in self.living:
                    self._create(key, envelope.writer, begin.target, -1)
            case Kind.END_CALL:
                side = self.living.get((int(envelope.role), envelope.conversation))
                if side is not None and not side.ended:
                    side.ended_by_session = True
                    self._end(side, failed=bool(record.body))
            case Kind.END | Kind.ERROR:
                self._peer_end(envelope, record)
            case Kind.BOUNCE:
                detail = envelope.suffix.detail
                if isinstance(detail, Bounce):
                    self.mailbox[detail.writer, detail.at, detail.counter] = detail.reason
            case Kind.CLOSE_WRITER:
                self._close(envelope.conversation)
            case _:
                return "unknown kind"
        return "control"

    def _message(self, envelope: Envelope, record: LogRecord) -> str:
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
            self._create(key, envelope.writer, begin.home, 0)
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

    def _peer_end(self, envelope: Envelope, record: LogRecord) -> None:
        role = Role(1 - envelope.role)
        side = self.living.get((int(role), envelope.conversation))
        detail = envelope.suffix.detail
        if not isinstance(detail, End):
            self.tally["malformed"] += 1
            return
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

    def _answer_closed(self, envelope: Envelope, record: LogRecord) -> str:
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

    def _bounce(self, envelope: Envelope, record: LogRecord, reason: BounceReason, why: str = "") -> str:
        suffix = envelope.suffix
        home = suffix.home or (suffix.begin.home if suffix.begin else None)
        if home is not None:
            detail = Bounce(suffix.origin or envelope.writer, envelope.counter, self.address, reason)
            self._say(home, Said(
                self._order, Kind.BOUNCE, 1 - envelope.role, envelope.conversation, -1, suffix.message_type,
                record.body or b"", detail,
            ))  # fmt: skip
        return f"bounced {why or reason.name}"


def as_said(envelope: Envelope, body: bytes, order: int) -> Said:
    """A record in the words in which the second fold keeps outputs."""
    return Said(
        order,
        envelope.kind,
        int(envelope.role),
        envelope.conversation,
        envelope.sequence,
        envelope.suffix.message_type,
        b"" if envelope.kind in (Kind.END, Kind.ERROR) else body,
        envelope.suffix.detail or None,  # type: ignore[arg-type]  # owners send these details only
    )
