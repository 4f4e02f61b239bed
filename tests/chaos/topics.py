"""What the topics say of a run, as far as the checker asks: taken from the product's verifier, the one second fold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from konverse.bridge.verifier.check import Finding, PartitionVerdict
from konverse.bridge.verifier.second_fold import SecondFold
from konverse.bridge.verifier.second_state import Heard, Side
from konverse.schemas.records import Kind

SideKey = tuple[str, int]
"""Conversation and role of a side."""

Facts = tuple[str, int, int, int, int, bool]
"""How a side stands: state, number of its next output, accepted, consumed, unread, whether an Error waits."""


class Word(NamedTuple):
    """A record that a side accepted."""

    body: str
    """Digest in hexadecimal; empty for an END."""
    ends: bool = False
    """It was the peer's END or ERROR."""


@dataclass
class Talk:
    """One side of a conversation, with all that it accepted."""

    conversation: str
    role: int
    place: str
    heard: list[Word] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    """The number of the commit that consumed it, for each that was consumed."""
    ended: bool = False
    """This side ended: what came later was discarded."""
    facts: Facts | None = None
    """How it stands now; None when both sides have ended and it was forgotten."""


@dataclass
class Partition:
    """One partition of a queue."""

    name: str
    commits: dict[int, str] = field(default_factory=dict)
    """Number of each COMMIT that counts -> its owner."""
    claims: list[str] = field(default_factory=list)
    """Owners whose CLAIM counts, one after the other."""
    not_ingested: int = 0
    """Records at the end of the data log that no commit has ingested."""
    not_delivered: int = 0
    """Outputs that the journal does not know to be delivered."""


@dataclass
class Topics:
    """All that the logs say."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    talks: list[Talk] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    """Bodies of the messages that commits which count have sent."""
    bounced: Counter[str] = field(default_factory=Counter)
    """Conversation -> messages that came when it was over, and went back."""
    findings: list[Finding] = field(default_factory=list)
    """What the verifier itself objects to."""


def observe(verdicts: Iterable[PartitionVerdict], findings: Iterable[Finding]) -> Topics:
    """Take over what the verifier has read; bodies are digests there already."""
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
        topics.bounced.update(conversation.hex() for _, _, conversation in fold.too_late)
    topics.talks += _talks(parts)
    return topics


def place_name(topic: str, partition: int) -> str:
    """How histories name a partition: by topic and number."""
    return f"{topic}/{partition}"


def living(topics: Topics) -> dict[str, dict[SideKey, Facts]]:
    """How all sides stand that are not forgotten, by partition."""
    found: defaultdict[str, dict[SideKey, Facts]] = defaultdict(dict)
    for talk in topics.talks:
        if talk.facts is not None:
            found[talk.place][talk.conversation, talk.role] = talk.facts
    return found


def _not_delivered(fold: SecondFold) -> int:
    made = {address: len(said) for address, said in fold.outputs.items()}
    return sum(count - fold.acknowledged.get(address, 0) for address, count in made.items())


def _talks(parts: list[tuple[str, Side, bool]]) -> Iterator[Talk]:
    """Each side with all that it accepted, in all the places where it lived."""
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


def _word(heard: Heard) -> Word:
    ends = heard.kind is not Kind.MESSAGE
    return Word("" if ends else heard.body.hex(), ends)
