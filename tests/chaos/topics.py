"""The facts in the topics that the checker needs, taken from the second fold of the product's verifier."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from konverse.bridge.verifier.check import Finding, PartitionVerdict
from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.state import AcceptedRecord, Side
from konverse.bridge.verifier.reading import digest
from konverse.bridge.verifier.records import LogRecord
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.client_transaction import decode as decode_transaction
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import BounceId, Kind

SideKey = tuple[str, int]
"""Conversation and role of a side."""

Facts = tuple[str, int, int, int, int, bool]
"""State, number of the next output, accepted, consumed, unread, whether an Error waits."""

Bodies = Mapping[BounceId, Sequence[str]]
"""Name of a record → digests of its messages: one, or those of a client's transaction."""

DISCARDED: Final = ("discarded", "no peer")
"""The verifier's verdicts on messages for a side that has ended, and for a forgotten initiator."""


class Word(NamedTuple):
    """A record that a side accepted."""

    body: str
    """Digest in hexadecimal; empty for an END."""
    ends: bool = False
    """The record is the peer's END or ERROR."""


@dataclass
class Talk:
    """One side of a conversation, with all records that it accepted."""

    conversation: str
    role: int
    place: str
    heard: list[Word] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    """For each consumed record, the number of the commit that consumed it."""
    ended: bool = False
    """This side has ended; later messages were discarded."""
    facts: Facts | None = None
    """Current state; None when the side was forgotten after both ends."""


@dataclass
class Partition:
    """One partition of a queue."""

    name: str
    commits: dict[int, str] = field(default_factory=dict)
    """Number of each COMMIT that counts → its owner."""
    claims: list[str] = field(default_factory=list)
    """Owners whose CLAIMs count, in order."""
    not_ingested: int = 0
    """Records at the end of the data log that no commit has ingested."""
    not_delivered: int = 0
    """Outputs that the journal does not acknowledge."""


@dataclass
class Topics:
    """All facts from the logs."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    talks: list[Talk] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    """Bodies of the messages sent by commits that count."""
    returned: set[str] = field(default_factory=set)
    """Bodies of late messages that are in the mailbox of their home, or were confirmed there."""
    redirected: dict[str, set[str]] = field(default_factory=dict)
    """Late body → conversations to which it was redirected."""
    discarded: set[str] = field(default_factory=set)
    """Bodies of messages for a side that had ended."""
    findings: list[Finding] = field(default_factory=list)
    """The verifier's own findings."""


def bodies_in(address: Address, data: Iterable[LogRecord]) -> Iterator[tuple[BounceId, tuple[str, ...]]]:
    """The messages in records of a data log. The verifier has shortened their bodies to digests."""
    for record in data:
        try:
            envelope = decode(record.header or b"")
            name = BounceId(envelope.writer, envelope.counter, address)
            if envelope.kind is Kind.MESSAGE:
                yield name, ((record.body or b"").hex(),)
            elif envelope.kind is Kind.TRANSACTION:
                steps = decode_transaction(record.body or b"").steps
                yield name, tuple(digest(step.body or b"").hex() for step in steps if step.kind is Kind.MESSAGE)
        except MalformedRecord:
            continue


def observe(verdicts: Iterable[PartitionVerdict], findings: Iterable[Finding], bodies: Bodies) -> Topics:
    """Collect the verifier's facts, and the fate of each message that was not accepted."""
    topics = Topics(findings=[*findings])
    parts: list[tuple[str, Side, bool]] = []
    for verdict in verdicts:
        fold, place = verdict.fold, place_name(verdict.place.topic, verdict.place.partition)
        topics.partitions[place] = Partition(
            place,
            {number: owner.hex() for number, (_, owner) in verdict.journal.commits.items()},
            [owner.hex() for owner in verdict.journal.claims],
            max(0, verdict.place.data_end - max(fold.ingested_to, verdict.place.data_start)),
            _not_delivered(fold),
        )
        parts += [(place, side, fold.living.get(side.key) is side) for side in fold.sides]
        for said in fold.outputs.values():
            topics.said.update(output.body.hex() for output in said if output.kind is Kind.MESSAGE)
        for name in fold.mailbox:
            topics.returned.update(bodies.get(name, ()))
        for name, fate in fold.fates.items():
            for body in bodies.get(name, ()):
                if fate.how == "redirected":
                    topics.redirected.setdefault(body, set()).add(fate.conversation.hex())
                else:
                    topics.returned.add(body)
        for name in _discarded(fold):
            topics.discarded.update(bodies.get(name, ()))
    topics.talks += _talks(parts)
    return topics


def place_name(topic: str, partition: int) -> str:
    """A partition's name in histories: topic and number."""
    return f"{topic}/{partition}"


def living(topics: Topics) -> dict[str, dict[SideKey, Facts]]:
    """Partition → states of all sides that are not forgotten."""
    found: defaultdict[str, dict[SideKey, Facts]] = defaultdict(dict)
    for talk in topics.talks:
        if talk.facts is not None:
            found[talk.place][talk.conversation, talk.role] = talk.facts
    return found


def _discarded(fold: SecondFold) -> Iterator[BounceId]:
    verdicts = [(BounceId(writer, counter, fold.address), how) for (writer, counter), how in fold.verdicts.items()]
    verdicts += [(BounceId(writer, counter, at), how) for (writer, at, counter), how in fold.far_verdicts.items()]
    return (name for name, how in verdicts if how in DISCARDED)


def _not_delivered(fold: SecondFold) -> int:
    made = {address: len(said) for address, said in fold.outputs.items()}
    return sum(count - fold.acknowledged.get(address, 0) for address, count in made.items())


def _talks(parts: list[tuple[str, Side, bool]]) -> Iterator[Talk]:
    """Each side with all records that it accepted, in all partitions where it lived."""
    known: dict[tuple[int, bytes], Talk] = {}
    for place, side, living in sorted(parts, key=lambda part: part[1].generation):
        role, conversation = side.key
        talk = known.get(side.key) if side.generation else None
        if talk is None:
            talk = known[side.key] = Talk(conversation.hex(), role, place)
            yield talk
        talk.place = place
        talk.heard += [_word(heard) for heard in side.heard[side.brought :]]
        talk.consumed += [number for number, _ in side.consumed[side.consumed_before :]]
        talk.ended = side.ended
        talk.facts = side.facts if living else None


def _word(heard: AcceptedRecord) -> Word:
    ends = heard.kind is not Kind.MESSAGE
    return Word("" if ends else heard.body.hex(), ends)
