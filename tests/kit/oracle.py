"""Judges a run from the raw topics alone: an independent reading of the protocol, written for clarity and not speed.

It reads the journal and the data log of every partition, decodes them with `schemas`, and folds them by sections 3 and
4 of protocol.md, with lists that only grow. It shares no fold code with `konverse.dialog`; where the two results
differ, one of them is wrong. From the verifier it uses only the judge of journal records.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.verifier.check import Finding
from konverse.bridge.verifier.journal import JournalJudge
from konverse.bridge.verifier.reading import Verification
from konverse.bridge.verifier.records import Record
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role, incarnation_tag, journal_topic, owner_writer, snapshot_topic
from konverse.schemas.wire.envelope import HEADER, decode
from konverse.schemas.wire.journal import SYSTEM_BITS, Claim, Commit
from konverse.schemas.wire.records import FIRST, Envelope, Kind
from konverse.schemas.wire.snapshot import SnapshotEnd
from konverse.schemas.wire.snapshot import decode as decode_snapshot

READ_DEADLINE_S: Final = 60.0


class RawRecord(NamedTuple):
    """A record as Kafka holds it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


def read_raw(bootstrap: str, topic: str, partition: int) -> list[RawRecord]:
    """Read every record of the partition up to its end."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "konverse.oracle",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    })  # fmt: skip
    try:
        return list(_read(consumer, topic, partition))
    finally:
        consumer.close()


def snapshots_of(bootstrap: str, queue: Queue, partition: int = 0) -> list[SnapshotEnd]:
    """The END records of the snapshot topic: one for each complete snapshot."""
    records = read_raw(bootstrap, snapshot_topic(queue.topic, queue.subscription), partition)
    return [end for record in records if isinstance(end := decode_snapshot(record.value), SnapshotEnd)]


def _read(consumer: Consumer, topic: str, partition: int) -> Iterator[RawRecord]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    deadline = time.monotonic() + READ_DEADLINE_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.5):
            error = message.error()
            if error is None:
                headers: Any = message.headers() or []
                yield RawRecord(message.offset() or 0, message.key(), message.value() or b"", headers)
            elif error.code() == KafkaError._PARTITION_EOF:
                return
    raise AssertionError(f"{topic}/{partition} could not be read within {READ_DEADLINE_S} s")


# ------------------------------------------------------------------------------------------------------------- history


@dataclass(eq=False)
class Side:
    """One side of a conversation and its whole history."""

    conversation: bytes
    role: Role
    accepted: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Accepted messages in order: offset, type, body."""
    consumed: int = 0
    commits: list[int] = field(default_factory=list)
    """For each consumed message, the number of the COMMIT that consumed it."""
    errors_taken: int = 0
    error: bytes | None = None
    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    """Commit number and body of everything that handlers sent."""
    ended: bool = False
    peer_ended: bool = False

    @property
    def forgotten(self) -> bool:
        return self.ended and self.peer_ended


@dataclass
class History:
    """The folded logs of one partition."""

    queue: Queue
    partition: int
    sides: dict[tuple[bytes, Role], Side] = field(default_factory=dict)
    """(conversation, role of this side) → side. Forgotten sides stay."""
    claims: int = 0
    commits: int = 0
    void: int = 0
    """Journal records that do not count."""
    undecodable: int = 0
    duplicates: int = 0
    gaps: int = 0
    foreign: int = 0
    acked: dict[tuple[str, int], int] = field(default_factory=dict)
    """Destination → number of outputs that the journal acknowledges."""
    table: list[Side | None] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    _counters: dict[bytes, int] = field(default_factory=dict)
    _closed: set[bytes] = field(default_factory=set)

    @classmethod
    def read(cls, bootstrap: str, queue: Queue, partition: int) -> History:
        """Fold the partition's logs. The journal is read first, so all data that it refers to are in the data log."""
        journal = read_raw(bootstrap, journal_topic(queue.topic, queue.subscription), partition)
        data = read_raw(bootstrap, queue.topic, partition)
        history = cls(queue, partition)
        history._fold(journal, data)
        return history

    def _fold(self, journal: list[RawRecord], data: list[RawRecord]) -> None:
        queue = self.queue
        judge = JournalJudge((queue.incarnation, queue.data_topic_id, queue.journal_topic_id))
        ingested = 0
        rest = iter([*data, None])
        record = next(rest)
        for entry in journal:
            _, decision, counts = judge.judge(Record(entry.offset, dict(entry.headers).get(HEADER), entry.value, 0))
            self.undecodable += decision is None
            if not counts:
                self.void += isinstance(decision, Claim | Commit)
            elif isinstance(decision, Commit):
                assert decision.ingest_to >= ingested, "a commit goes back in the data log"
                ingested = decision.ingest_to
                while record is not None and record.offset < ingested:
                    self._ingest(record)
                    record = next(rest)
                self._apply(decision)
        assert not judge.problems
        self.claims, self.commits = len(judge.claims), len(judge.commits)
        while record is not None:  # records that no owner has ingested yet are judged by the same rules
            self._ingest(record)
            record = next(rest)

    # ----------------------------------------------------------------------------------------------------- records

    def _ingest(self, record: RawRecord) -> None:
        header = next((value for name, value in record.headers if name == HEADER), None)
        try:
            envelope = decode(header or b"")
        except MalformedRecord:
            self.foreign += 1
            return
        if envelope.tag != incarnation_tag(self.queue.incarnation):
            self.foreign += 1
            return
        expected = self._counters.get(envelope.writer, 0)
        if envelope.counter != expected:
            self.duplicates += envelope.counter < expected
            self.gaps += envelope.counter > expected
            return
        self._counters[envelope.writer] = expected + 1
        if envelope.writer in self._closed:
            return
        if envelope.kind is Kind.CLOSE_WRITER:
            self._closed.add(envelope.conversation)
        elif envelope.kind is Kind.BEGIN:
            if (envelope.conversation, Role.INITIATOR) not in self.sides:
                self._add(Side(envelope.conversation, Role.INITIATOR))
        elif envelope.kind is Kind.END_CALL:
            side = self._live(envelope.conversation, envelope.role)
            if side is not None and not side.ended:
                self._end(side)
        elif envelope.kind in (Kind.MESSAGE, Kind.END, Kind.ERROR):
            self._hear(envelope, record)

    def _hear(self, envelope: Envelope, record: RawRecord) -> None:
        role = Role(1 - envelope.role)
        side = self._live(envelope.conversation, role)
        if side is None and envelope.kind is Kind.MESSAGE and envelope.flags & FIRST and role is Role.TARGET:
            assert (envelope.conversation, role) not in self.sides, "a forgotten conversation was opened again"
            side = self._add(Side(envelope.conversation, role))
        if side is None or side.peer_ended:
            return
        if envelope.kind is Kind.MESSAGE:
            if not side.ended:
                side.accepted.append((record.offset, envelope.suffix.message_type, record.value))
            return
        side.peer_ended = True
        if side.forgotten:
            self._forget(side)
        elif envelope.kind is Kind.ERROR:
            side.error = record.value
        else:
            side.accepted.append((record.offset, envelope.suffix.message_type, record.value))

    # ----------------------------------------------------------------------------------------------------- commits

    def _apply(self, commit: Commit) -> None:
        for address, counter in commit.output_acks:
            place = (address.topic, address.partition)
            self.acked[place] = max(self.acked.get(place, 0), counter)
        operations = commit.operations
        assert not operations.begins, "the oracle knows no handlers that begin dialogs"
        for index, position in zip(operations.receive_endpoints, operations.receive_positions, strict=True):
            side = self._at(index)
            up_to = position >> SYSTEM_BITS
            assert side.consumed <= up_to <= len(side.accepted), (
                f"commit {commit.number} consumes to {up_to}; {side.consumed} of {len(side.accepted)} were consumed"
            )
            side.commits += [commit.number] * (up_to - side.consumed)
            side.consumed = up_to
            if position & 1:
                assert side.error is not None, "an Error was taken that never came"
                side.error = None
                side.errors_taken += 1
        for index, _, bodies in operations.sends:
            self._at(index).outputs += [(commit.number, body) for body in bodies]
        for end in operations.ends:
            self._end(self._at(end.endpoint))

    def _at(self, index: int) -> Side:
        side = self.table[index]
        assert side is not None, f"a commit names endpoint {index}, which does not exist"
        return side

    def _live(self, conversation: bytes, role: Role) -> Side | None:
        side = self.sides.get((conversation, role))
        return None if side is None or side.forgotten else side

    def _add(self, side: Side) -> Side:
        if self.free:
            self.table[self.free.pop()] = side
        else:
            self.table.append(side)
        self.sides[side.conversation, side.role] = side
        return side

    def _end(self, side: Side) -> None:
        side.ended = True
        if side.forgotten:
            self._forget(side)

    def _forget(self, side: Side) -> None:
        index = self.table.index(side)
        self.table[index] = None
        self.free.append(index)

    def writer_counter(self, writer: bytes) -> int:
        """Number of records accepted from the writer."""
        return self._counters.get(writer, 0)


def read_queue(bootstrap: str, queue: Queue) -> list[History]:
    """The history of every partition."""
    return [History.read(bootstrap, queue, partition) for partition in range(queue.partitions)]


def sides_of(histories: list[History], role: Role) -> dict[bytes, Side]:
    """Conversation → its side in that role. Raises AssertionError when one lives in two partitions."""
    found: dict[bytes, Side] = {}
    for history in histories:
        for (conversation, side_role), side in history.sides.items():
            if side_role is role:
                assert conversation not in found, "a conversation lives in two partitions"
                found[conversation] = side
    return found


# --------------------------------------------------------------------------------------------------------------- proof


@dataclass(frozen=True)
class Proof:
    """What was proved, and the disturbances that the run had."""

    messages: int
    replies: int
    claims: int
    void: int
    """Journal records of owners that had lost the partition."""
    duplicates: int
    """Duplicate records that the partitions of both queues dropped."""


def prove_exactly_once(
    bootstrap: str, target: Queue, home: Queue, sent: dict[bytes, list[bytes]], *, replies: bool = True
) -> Proof:
    """Raise AssertionError unless each message was consumed exactly once, in order, none missing, and answered once.

    `sent` holds the acknowledged bodies by conversation, in the order of the calls. With `replies`, every COMMIT that
    consumed n messages of a conversation must have sent n replies on it. Their bodies must be unique, and the initiator
    must have accepted exactly these, in order. The product's own verifier must find no problem either.
    """
    assert verify(bootstrap, [target, home]) == []
    targets, homes = read_queue(bootstrap, target), read_queue(bootstrap, home)
    received, answered = sides_of(targets, Role.TARGET), sides_of(homes, Role.INITIATOR)
    assert not any(history.undecodable for history in (*targets, *homes))
    assert set(sent) <= set(received), f"{len(set(sent) - set(received))} conversations never reached their target"
    seen: set[bytes] = set()
    count = 0
    for conversation, bodies in sent.items():
        side = received[conversation]
        assert [body for _, _, body in side.accepted[: len(bodies)]] == bodies, "not what was sent, or not in order"
        assert side.consumed == len(side.accepted), f"{len(side.accepted) - side.consumed} messages are not consumed"
        if replies:
            _prove_answers(side, answered[conversation], seen)
            count += len(side.outputs)
    _prove_emission(targets, homes)
    every = [*targets, *homes]
    return Proof(
        sum(map(len, sent.values())),
        count,
        sum(history.claims for history in targets),
        sum(history.void for history in targets),
        sum(history.duplicates for history in every),
    )


def verify(bootstrap: str, queues: list[Queue]) -> list[Finding]:
    """The findings of `konverse verify`."""
    return Verification(Kafka(Settings(kafka=f"kafka://{bootstrap}")), queues).run()[1]


def _prove_answers(side: Side, initiator: Side, seen: set[bytes]) -> None:
    assert [number for number, _ in side.outputs] == side.commits, "a commit consumed and did not answer as often"
    bodies = [body for _, body in side.outputs]
    accepted = [body for _, _, body in initiator.accepted if body]
    assert accepted == bodies, "the initiator did not accept the replies of the commits that count, in order"
    assert len(set(bodies)) == len(bodies), "an answer came twice"
    assert not seen & set(bodies), "an answer came on two conversations"
    seen.update(bodies)


def _prove_emission(sources: list[History], destinations: list[History]) -> None:
    """Outputs that a journal acknowledges must be in the log of their destination."""
    by_place = {(history.queue.topic, history.partition): history for history in destinations}
    for source in sources:
        writer = owner_writer(source.queue.incarnation, source.partition)
        for place, counter in source.acked.items():
            history = by_place.get(place)
            if history is not None:
                assert history.writer_counter(writer) >= counter, (
                    "the journal acknowledges an output that is not in its destination's log"
                )


def executions(events: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(conversation, sequence number) → handler executions in the workers' diaries."""
    found: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["event"] == "handled":
            found[event["conversation"], event["sequence"]].append(event)
    return found
