"""Folding alone: the work of a recovering owner, a follower or a verifier on records in memory."""

from __future__ import annotations

from typing import Final

from confluent_kafka import TopicPartition

from konverse.dialog.fold.apply import apply
from konverse.dialog.fold.ingest import ingest
from konverse.dialog.session.session import Session
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.recent import RecordColumns
from konverse.schemas.identifiers import Address, LogIdentity
from konverse.schemas.wire.journal import SYSTEM_BITS, Commit, CommitOperations
from konverse.schemas.wire.records import Begin
from tests.bench import fill
from tests.bench.clients import PARTITIONS, consumer
from tests.bench.loop import take
from tests.bench.measure import Meter
from tests.bench.model import WARM_UP_BATCHES, Case, Figures, Load, Place, Row, Run


def raw(place: Place, load: Load) -> Figures:
    """Read body and headers of a plain topic's records in batches: the fastest possible input of a fold."""
    source = consumer(place.bootstrap, place.name, isolation_level="read_uncommitted")
    source.assign([TopicPartition(place.name, number, 0) for number in range(PARTITIONS)])
    for _ in range(WARM_UP_BATCHES):
        take(source, load.batch)
    read = 0
    with Meter() as meter:
        for _ in range(load.messages // load.batch):
            for m in take(source, load.batch):
                read += len(m.value() or b"") + len(m.headers() or ())
    source.close()
    if read != load.messages * (load.body_bytes + 1):
        raise RuntimeError("other bodies or headers were read than were written")
    return meter.figures(load.messages)


def product(place: Place, load: Load) -> Figures:
    """Fold `load.messages` records of `load.conversations` conversations in memory, `load.batch` at a time."""
    identity = LogIdentity("bench", 0, bytes(16), bytes(16), bytes(16))
    headers = _log(load, identity)
    bodies, stamps = [bytes(load.body_bytes)] * len(headers), [0] * len(headers)
    state = Partition(identity)
    position = 0
    with Meter() as meter:
        for start in range(0, len(headers), load.batch):
            end = min(start + load.batch, len(headers))
            rows = headers[start:end], bodies[start:end], stamps[start:end]
            ingest(state, RecordColumns(range(start, end), *rows, end, start))
            operations = CommitOperations()
            while state.ready:
                endpoint = state.ready.popleft()
                operations.receive_endpoints.append(endpoint.index)
                operations.receive_positions.append(endpoint.received << SYSTEM_BITS)
            position += 1
            apply(state, Commit(1, b"", position, b"", end, operations))
    if state.statistics.accepted != load.messages or state.unread:
        raise RuntimeError(f"{state.statistics.accepted} of {load.messages} were accepted, {state.unread} are unread")
    return meter.figures(load.messages)


def _log(load: Load, identity: LogIdentity) -> list[bytes]:
    """Headers of one session's messages, its conversations in turn."""
    session = Session(bytes([1]) * 16)
    home = Address("shop", 0, bytes(4))
    target = Address(identity.data_topic, 0, bytes(4))
    opened = []
    for i in range(load.conversations):
        conversation = i.to_bytes(16, "big")
        opened.append(
            session.begin(conversation, Begin("//shop", "//orders", "//order", home, target, conversation))[0]
        )
    session.drained()
    body = bytes(load.body_bytes)
    headers: list[bytes] = []
    for i in range(load.messages):
        for hand in session.send(opened[i % load.conversations], "//order/line", body):
            headers += [record[0] for record in hand.records]
        if not i % 1_000:
            session.drained()
    return headers


_LOAD: Final = Load(messages=500_000)
CASES: Final = (Case((Row("fold", "rate", "msg/s"),), Run(product, _LOAD), Run(raw, _LOAD, prepare=fill.topic)),)
