"""The checks: one partition against itself, and all partitions against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from konverse.bridge.verifier.fold.fold import SecondFold, as_said
from konverse.bridge.verifier.fold.moved_state import MovedState
from konverse.bridge.verifier.fold.state import NOT_YET, Facts
from konverse.schemas.counting import counted
from konverse.schemas.errors import MalformedRecord, PartitionHalted
from konverse.schemas.identifiers import Address, Role, incarnation_tag, owner_writer
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.journal import FOLD_VERSION, Claim, Commit
from konverse.schemas.wire.records import Envelope, Kind

from .bounces import astray
from .journal import JournalJudge
from .records import Key, LogRecord
from .snapshots import differences
from .starting_state import UNKNOWN, StartingState, begin_at

KINDS: Final = {
    "I3": "contradiction",
    "I4": "accepted twice",
    "I5": "reordered",
    "I6": "came back wrongly",
    "I7": "consumed wrongly",
    "I8": "false output",
    "I9": "after the end",
    "I10": "false timer",
    "I17": "broken journal",
    "I19": "torn batch",
    "lost": "lost",
    "cut": "cut log",
    "view": "wrong view",
    "I20": "overtaken",
    "I23": "forged",
}
"""Rule of a finding -> what is wrong. Rules with a number are the invariants of protocol.md section 10."""


SPOKEN: Final = (Kind.MESSAGE, Kind.END, Kind.ERROR)
"""Kinds of records in which a target must name its own partition, so that an answer finds it."""


class Finding(NamedTuple):
    """Something that contradicts the promise."""

    rule: str
    """Key of `KINDS`."""
    partition: str
    """Topic and partition."""
    text: str
    """What is wrong, and at which offset."""


class Held(NamedTuple):
    """The logs of a partition that another producer's open transaction holds up: they cannot be read to the end."""

    data: bool = False
    journal: bool = False
    snapshots: bool = False


class Place(NamedTuple):
    """The partition to verify, and the extent of its logs."""

    topic: str
    partition: int
    incarnation: bytes
    data_topic_id: bytes
    journal_topic_id: bytes
    certain_to: int
    """End of the data log, asked for before the ends of the journals: the COMMIT of an output below it can be read."""
    data_end: int
    """End of the data log, asked for after the ends of the journals: all data that they have ingested is below it."""
    data_start: int = 0
    journal_start: int = 0
    shown_at: int = -1
    """Journal offset of the view in Redis; -1: without a view."""
    start: StartingState | None = None
    """The snapshot at which the verification begins; None: the beginning of the logs."""
    snapshots: Sequence[StartingState] = ()
    """Snapshots to compare with the second fold at their journal offsets."""
    held: Held = Held()

    @property
    def identity(self) -> tuple[bytes, bytes, bytes]:
        """Incarnation, and topic ids of data log and journal."""
        return self.incarnation, self.data_topic_id, self.journal_topic_id

    @property
    def address(self) -> Address:
        """The partition as records name it."""
        return Address(self.topic, self.partition, incarnation_tag(self.incarnation))

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}/{self.partition}"


@dataclass(slots=True)
class PartitionVerdict:
    """The result of folding the logs of one partition."""

    place: Place
    fold: SecondFold
    journal: JournalJudge
    owners: list[tuple[int, Envelope, bytes]] = field(default_factory=list)
    """Data records written by owners of the verified partitions: offset, envelope, body."""
    reached: dict[bytes, int] = field(default_factory=dict)
    """Writer id of an owner -> number of its records in this data log, counted up to the first that is missing."""
    undecodable: int = 0
    void: int = 0
    """Journal records that do not count: those of owners that had lost the partition, and the `undecodable` ones."""
    then: dict[Key, Facts] = field(default_factory=dict)
    """The living endpoints as they were at the journal offset of the view."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def conversations(self) -> int:
        """Endpoints that began here."""
        return sum(not side.generation for side in self.fold.sides)

    @property
    def accepted(self) -> int:
        """Messages that were accepted."""
        return sum(len(side.heard) - side.brought for side in self.fold.sides)

    @property
    def consumed(self) -> int:
        """Messages that COMMITs received, or that operators skipped."""
        return sum(len(side.consumed) - side.consumed_before for side in self.fold.sides)

    @property
    def unread(self) -> int:
        """Accepted messages that wait for a handler."""
        return sum(
            len(side.heard) - len(side.consumed) - len(side.thrown_away)
            for side in self.fold.sides
            if not (side.ended or side.left)
        )

    @property
    def waiting_offsets(self) -> int:
        """Offsets of the data log that no owner has ingested: they are not judged."""
        return max(0, self.place.data_end - self.fold.ingested_to)

    @property
    def outputs(self) -> int:
        """Messages and control records that commits sent."""
        return sum(map(len, self.fold.outputs.values()))

    @property
    def duplicates(self) -> int:
        """Duplicates, which were dropped as they must be."""
        return self.fold.tally["duplicate"]

    @property
    def forged(self) -> int:
        """Records with other content under a writer and counter that were already used; they were accepted as well."""
        return self.fold.tally["forged"]

    @property
    def foreign(self) -> int:
        """Records without a header of konverse."""
        return self.fold.tally["foreign"] - self.fold.contents.copied

    @property
    def malformed(self) -> int:
        """Records whose konverse header cannot be decoded."""
        return self.fold.tally["malformed"]

    @property
    def copied(self) -> int:
        """Records that name another incarnation: another queue, or an earlier one of this name."""
        return self.fold.contents.copied


def judge(
    place: Place,
    journal: Iterable[LogRecord],
    data: Sequence[LogRecord],
    owners: Collection[bytes],
    brief: Callable[[bytes], bytes] = bytes,
) -> PartitionVerdict:
    """Fold the logs of one partition a second time, and report where they contradict themselves.

    With a `place.start`, `journal` and `data` begin after that snapshot. `owners` are the writer ids of all partitions
    that are verified together. `brief` is the function that shortened the bodies of `data`, such as a digest.
    Raises PartitionHalted where a CLAIM that counts has newer fold rules (M19).
    """
    fold = SecondFold(place.address, owner_writer(place.incarnation, place.partition), brief)
    fold.incarnation = place.incarnation
    verdict = PartitionVerdict(place, fold, JournalJudge(place.identity))
    if place.start is not None:
        counters = begin_at(place.start, fold, verdict.journal)
        verdict.reached = {writer: counters[writer] for writer in owners if writer in counters}
    for record in journal:
        judged = verdict.journal.judge(record)
        verdict.undecodable += judged.decision is None
        verdict.void += not judged.counts and isinstance(judged.decision, Claim | Commit)
        if judged.counts and isinstance(judged.decision, Claim) and judged.decision.fold_version > FOLD_VERSION:
            raise newer_rules(
                f"the journal of {place.name} from offset {record.offset} on", judged.decision.fold_version
            )
    verdict.findings += _whole(verdict)
    heard_to = verdict.journal.judged[-1].record.offset if verdict.journal.judged else -1
    stops = [
        (start.end.offset, partial(_recall, verdict, start))
        for start in place.snapshots
        if start.end.offset <= heard_to
    ]
    fold.fold(verdict.journal.judged, data, [*stops, (place.shown_at, partial(_show, verdict))])
    for problem in (*verdict.journal.problems, *fold.problems):
        rule, _, text = problem.partition(": ")
        verdict.findings.append(Finding(rule, place.name, text))
    _reach(verdict, data, owners)
    verdict.journal.judged.clear()  # frees the bodies of all commits
    return verdict


def newer_rules(what: str, version: int) -> PartitionHalted:
    """The error for a log that was written by newer fold rules (M19)."""
    return PartitionHalted(
        f"{what} needs fold rules {version}; this verifier has only {FOLD_VERSION}, so nothing was judged: upgrade "
        "konverse"
    )


def _recall(verdict: PartitionVerdict, start: StartingState) -> None:
    fold = verdict.fold
    fold.problems += differences(start, fold, is_whole=verdict.place.start is None)


def _show(verdict: PartitionVerdict) -> None:
    verdict.then = verdict.fold.facts()


def _whole(verdict: PartitionVerdict) -> Iterator[Finding]:
    """Report missing records that the journal depends on, and COMMITs that go back in the data log."""
    place = verdict.place
    if place.held.snapshots and (place.journal_start or place.data_start):
        return  # the snapshot to begin at may be after the open transaction
    if place.journal_start:
        text = f"the journal begins at {place.journal_start}: earlier records cannot be verified"
        yield Finding("cut", place.name, text)
    if place.data_start:
        text = f"the data log begins at {place.data_start}: earlier records cannot be verified"
        yield Finding("cut", place.name, text)
    ingested = [j.decision.ingest_to for j in verdict.journal.judged if j.counts and isinstance(j.decision, Commit)]
    if ingested and max(ingested) > place.data_end:
        text = (
            f"the journal has ingested to {max(ingested)} and the data log ends at {place.data_end}: its tail is gone"
        )
        yield Finding("lost", place.name, text)
    for before, after in pairwise(ingested):
        if after < before:
            yield Finding("I17", place.name, f"a commit goes back in the data log, from {before} to {after}")


def _reach(verdict: PartitionVerdict, data: Sequence[LogRecord], owners: Collection[bytes]) -> None:
    """Collect the records of owners, and count each owner's records up to its first gap."""
    reached, tag = verdict.reached, verdict.place.address.tag
    for record in data:
        try:
            envelope = decode(record.header or b"")
        except MalformedRecord:
            continue
        if envelope.tag != tag or envelope.writer not in owners:
            continue
        if envelope.counter == reached.get(envelope.writer, 0):
            reached[envelope.writer] = envelope.counter + 1
        verdict.owners.append((record.offset, envelope, record.body or b""))


def compare(verdicts: Sequence[PartitionVerdict]) -> Iterator[Finding]:
    """Compare partitions with each other.

    Each record in an owner's name must be an output of a COMMIT that counts, and each acknowledged output must be in
    the log of its destination. Each message is either received or comes back to its home (I6).
    """
    sources = {verdict.fold.writer: verdict for verdict in verdicts}
    by_address = {verdict.place.address: verdict for verdict in verdicts}
    for address, text in astray({address: verdict.fold for address, verdict in by_address.items()}):
        yield Finding("I6", by_address[address].place.name, text)
    for verdict in verdicts:
        for offset, envelope, body in verdict.owners:
            source = sources.get(envelope.writer)
            if source is not None:
                certain_to = 0 if source.place.held.journal else verdict.place.certain_to
                place = verdict.place._replace(certain_to=certain_to)
                yield from _said(place, source.fold, offset, envelope, body)
    for verdict in verdicts:
        for address, counter in verdict.fold.acknowledged.items():
            there = by_address.get(address)
            if there is None or there.place.held.data:
                continue  # a queue of another database, a dropped one, or one that cannot be read to its end
            reached = there.reached.get(verdict.fold.writer, 0)
            if reached < counter:
                acknowledged = counted(counter, "output")
                here = counted(reached, "of them is here", "of them are here")
                text = f"{verdict.place.name} has {acknowledged} acknowledged, and {here}"
                yield Finding("lost", there.place.name, text)
    if not any(verdict.place.held.journal or verdict.place.held.data for verdict in verdicts):
        yield from _moved(verdicts, by_address)  # these checks need all records of all partitions
        yield from _overtaken(verdicts)
        yield from _lives_again(verdicts, by_address)


def _lives_again(
    verdicts: Sequence[PartitionVerdict], by_address: Mapping[Address, PartitionVerdict]
) -> Iterator[Finding]:
    """Report targets that live again although no session has begun the conversation again."""
    begun = {
        (side.key[1], side.opener)
        for verdict in verdicts
        for side in verdict.fold.sides
        if side.key[0] == Role.INITIATOR
    }
    refused: set[bytes] = set()
    for verdict in verdicts:  # every partition, because the home may have moved
        begun |= verdict.fold.named.begun_here()
        refused |= verdict.fold.named.refused
    for verdict in verdicts:
        for conversation, opener, home in verdict.fold.again:
            there = by_address.get(home)
            if there is None or there.place.start is not None or there.fold.losses.any:
                continue  # the BEGIN may precede the records that were read, or be lost
            behind = there.fold.ingested_to < there.place.data_end
            if not (behind or (conversation, opener) in begun or conversation in refused):
                text = f"the target of {conversation.hex()} lives again, although no initiator began it again"
                yield Finding("I9", verdict.place.name, text)


def _moved(verdicts: Sequence[PartitionVerdict], by_address: Mapping[Address, PartitionVerdict]) -> Iterator[Finding]:
    """Report endpoints whose state on arrival differs from that on departure.

    A conversation that was begun again moves again, with the same generations. Where the verification of the previous
    place began at a snapshot, a departure may precede that snapshot. Then only departures from that place count, and if
    the side arrived more often than it was seen to leave, the unseen departure may explain the arrival.
    """
    left: dict[tuple[Key, int], list[MovedState]] = {}
    for verdict in verdicts:
        for move, packed in verdict.fold.moves.left.items():
            left.setdefault(move, []).extend(packed)
    for verdict in verdicts:
        for move, unpacked in verdict.fold.moves.arrived.items():
            for moved in unpacked:
                seen, origin = left.get(move, []), by_address.get(moved.previous)
                in_part = origin is None or origin.place.start is not None
                if in_part:
                    seen = [one for one in seen if one.previous == moved.previous]
                arrived = sum(one.previous == moved.previous for one in unpacked)
                if seen and moved not in seen and not (in_part and arrived > len(seen)):
                    text = f"{move[0][1].hex()} arrived as {moved}, and left as {seen}"
                    yield Finding("I3", verdict.place.name, text)


def _overtaken(verdicts: Sequence[PartitionVerdict]) -> Iterator[Finding]:
    """Report messages that arrived after the END of their own session (I20).

    A session sends END only when everything that it sent on the dialog has arrived. Three cases are no fault: a
    conversation that a partition gave up with an Error; one that another session had begun as well, whose BEGIN was
    refused; and a session that began its conversation again, since messages after its END may belong to its second
    dialog. Where data was lost nothing is reported: without its FIRST a conversation does not exist at the target, so
    all its later messages look late.
    """
    if any(verdict.fold.losses.any for verdict in verdicts):
        return
    given_up = frozenset[bytes]().union(*(verdict.fold.given_up | verdict.fold.named.refused for verdict in verdicts))
    ended = {
        side.key[1]: side.ended_by_session
        for verdict in verdicts
        for side in verdict.fold.sides
        if side.ended_by_session and side.key[1] not in given_up
    }
    partly = any(verdict.place.start is not None for verdict in verdicts)
    again = {name for verdict in verdicts for name, times in verdict.fold.named.begins.items() if times > 1}
    for verdict in verdicts:
        unknown = (
            verdict.fold.moves.over_elsewhere if partly else frozenset[bytes]()
        )  # their ends may not have been read
        for writer, counter, conversation in verdict.fold.behind_end:
            excused = conversation in unknown or (writer, conversation) in again
            if ended.get(conversation) == writer and not excused:
                text = f"record {counter} of {writer.hex()} came when its own END of {conversation.hex()} was heard"
                yield Finding("I20", verdict.place.name, text)


def _said(place: Place, source: SecondFold, offset: int, envelope: Envelope, body: bytes) -> Iterator[Finding]:
    """Compare one record of an owner with the output that its journal has under that counter."""
    said = source.outputs.get(place.address, [])
    if envelope.counter >= len(said):
        if offset < place.certain_to:
            text = f"offset {offset} holds output {envelope.counter} of {source.name}, which no commit made"
            yield Finding("I8", place.name, text)
        return
    expected = source.expected(place.address, envelope.counter, envelope.kind)
    if expected is None:
        return
    if expected.order == NOT_YET and offset < place.certain_to:
        text = f"offset {offset} holds output {envelope.counter} of {source.name} before others that it has to follow"
        yield Finding("I20", place.name, text)
        return
    named = envelope.role is Role.INITIATOR or envelope.sequence < 0 or envelope.suffix.home == source.address
    if envelope.kind in SPOKEN and not named:
        text = f"offset {offset} holds output {envelope.counter} of {source.name}, and does not name it"
        yield Finding("I8", place.name, text)
    if expected is not UNKNOWN and as_said(envelope, body, expected.order) != expected:
        text = (
            f"offset {offset} holds output {envelope.counter} of {source.name}, which differs from the output "
            "in its COMMIT"
        )
        yield Finding("I8", place.name, text)
