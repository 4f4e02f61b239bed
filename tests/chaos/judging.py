"""The end of a run: wait until everything has drained, then compare the history with the topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import redis

from konverse.bridge.broker import Broker
from konverse.bridge.client.transmission import find_queue
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.verifier.check import Finding, PartitionVerdict
from konverse.bridge.verifier.reading import Verification
from konverse.bridge.verifier.view import Shown, read_view
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import KonverseError, Unavailable
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from tests.kit.shop import until, work

from .archive import Archive, Proof
from .beliefs import place_of, rows_of
from .checker import BROKEN, LOST, UNSEEN, Anomaly, check
from .deeds import sides_of
from .history import read
from .topics import Facts, SideKey, Topics, observe, place_name

DRAIN_S: Final = 90.0
POLL_S: Final = 1.0

Views = Mapping[tuple[str, int], Shown]


@dataclass
class Verdict:
    """Result of a run."""

    anomalies: list[Anomaly]
    figures: dict[str, int] = field(default_factory=dict)


def look(
    bootstrap: str, queues: Sequence[Queue], views: Views = MappingProxyType({}), archive: Archive | None = None
) -> tuple[list[PartitionVerdict], Topics]:
    """The verifier's judgement of the topics, with those of the transmission queue.

    With an archive, all records that the topics ever held are judged.
    """
    kafka = Kafka(Settings(kafka=f"kafka://{bootstrap}"))
    transmission = find_queue(kafka, kafka.settings.instance)
    wanted = [*queues, *([transmission] if transmission else [])]
    with closing(Proof(kafka, wanted, archive)) as proof:
        verdicts, findings = proof.look(views)
        topics = observe(verdicts, findings, proof.bodies)
    return verdicts, topics


def what_is_left(bootstrap: str, queues: Sequence[Queue]) -> list[Finding]:
    """The verifier's findings in logs whose beginnings were deleted."""
    return Verification(Kafka(Settings(kafka=f"kafka://{bootstrap}")), queues).run()[1]


def drained(
    bootstrap: str,
    queues: Sequence[Queue],
    histories: Path,
    deadline_s: float = DRAIN_S,
    archive: Archive | None = None,
) -> float:
    """Wait until nothing is missing or waits. Returns the seconds it took, also after the deadline."""
    since = time.monotonic()
    while time.monotonic() - since < deadline_s:
        try:
            _, topics = look(bootstrap, queues, archive=archive)
        except Unavailable:  # a broker that has just started does not lead all partitions yet
            continue
        if not {LOST, UNSEEN} & {anomaly.name for anomaly in check(read(histories.glob("*.jsonl")), topics)}:
            break
        time.sleep(POLL_S)
    return time.monotonic() - since


def judge(
    broker: Broker, queues: Sequence[Queue], histories: Path, redis_url: str, archive: Archive | None = None
) -> Verdict:
    """Judge everything. All processes of the run have ended."""
    bootstrap = broker.settings.bootstrap
    views = _views(redis_url, queues)
    transmission = broker.operations.transmission_queue()
    folds, broken = _folds(broker, [*queues, *([transmission] if transmission else [])])
    verdicts, topics = look(bootstrap, queues, views, archive)
    if archive is not None:
        topics.findings += what_is_left(bootstrap, queues)
        broken += [Anomaly(BROKEN, "archive", hole) for hole in archive.holes]
    lines = read(histories.glob("*.jsonl"))
    verdict = Verdict([*broken, *check(lines, topics, folds)])
    for queue in queues:
        for number in range(queue.partitions):
            if redis_url and (queue.topic, number) not in views:
                place = place_name(queue.topic, number)
                verdict.anomalies.append(Anomaly(UNSEEN, place, "its view was not written again"))
    verdict.figures = {
        "operations in the history": len(lines),
        "messages sent by sessions": sum(line["op"] == "send" and line["type"] == "ok" for line in lines),
        **_figures(verdicts, topics),
        "records in the logs of snapshots": _snapshots(broker, queues),
        "records of data and journals that were deleted": _deleted(broker, queues),
    }
    return verdict


def _snapshots(broker: Broker, queues: Sequence[Queue]) -> int:
    with closing(LogReader(broker._kafka)) as log:
        names = [(snapshot_topic(queue.topic), number) for queue in queues for number in range(queue.partitions)]
        return sum(log.ends(*name)[1] for name in names)


def _deleted(broker: Broker, queues: Sequence[Queue]) -> int:
    with closing(LogReader(broker._kafka)) as log:
        topics = [(topic, queue.partitions) for queue in queues for topic in (queue.topic, journal_topic(queue.topic))]
        return sum(log.ends(topic, number)[0] for topic, partitions in topics for number in range(partitions))


def _figures(verdicts: Sequence[PartitionVerdict], topics: Topics) -> dict[str, int]:
    return {
        "messages accepted": sum(verdict.accepted for verdict in verdicts),
        "messages received by commits that count": sum(verdict.consumed for verdict in verdicts),
        "messages sent by commits that count": topics.said.total(),
        "conversations": len({talk.conversation for talk in topics.talks}),
        "claims that count": sum(len(partition.claims) for partition in topics.partitions.values()),
        "commits that count": sum(len(partition.commits) for partition in topics.partitions.values()),
        "journal records that do not count": sum(verdict.void for verdict in verdicts),
        "conversations that moved": sum(verdict.fold.tally["moved"] for verdict in verdicts),
        "records that came again and were dropped": sum(verdict.duplicates for verdict in verdicts),
        "messages that came too late and went back": len(topics.returned | {*topics.redirected}),
        "messages that were redirected then": len(topics.redirected),
        "messages that came to a side that had ended": len(topics.discarded),
    }


def _folds(broker: Broker, queues: Sequence[Queue]) -> tuple[dict[str, dict[SideKey, Facts]], list[Anomaly]]:
    """Fold all partitions again. A queue that the product refuses to fold is an anomaly."""
    folds: dict[str, dict[SideKey, Facts]] = {}
    broken = []
    for queue in queues:
        try:
            folds |= fold_again(broker, queue)
        except (KonverseError, AssertionError) as error:
            broken.append(Anomaly(BROKEN, queue.topic, f"the product does not fold it: {error}"))
    return folds, broken


def fold_again(broker: Broker, queue: Queue) -> dict[str, dict[SideKey, Facts]]:
    """The product's fold of snapshots and logs in a new reader, with the last CLOSE_WRITERs ingested."""
    folds: dict[str, dict[SideKey, Facts]] = {}
    own = broker.catalog.find(Queue, queue.name) == queue
    reading = broker.reader(queue.name, partitions=tuple(range(queue.partitions))) if own else broker.transmitter()
    with reading as reader:
        reader.wait_for_partitions(queue.partitions, DRAIN_S)  # without a group: Kafka may no longer have one
        ends = {one.place.partition: one.place.data_end for one in broker.operations.verification([queue]).extents}

        def ingested() -> bool:
            work(reader)
            assert len(reader.owners) == queue.partitions, f"a partition of {queue.topic} was lost while it was folded"
            return all(owner._journaled_to >= ends[owner.identity.partition] for owner in reader.owners)

        until(ingested, f"everything in {queue.topic} is ingested")
        for owner in reader.owners:
            folds[place_of(owner)] = sides_of(rows_of(owner))
    return folds


def _views(redis_url: str, queues: Sequence[Queue]) -> Views:
    if not redis_url:
        return {}
    with redis.Redis.from_url(redis_url) as client:
        found = {(queue.topic, n): read_view(client, queue, n) for queue in queues for n in range(queue.partitions)}
    return {place: shown for place, shown in found.items() if shown is not None}
