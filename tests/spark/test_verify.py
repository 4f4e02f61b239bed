"""The fold and the verifier on Spark: the same states, verdicts and findings as on one machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.client.dialog import Dialog
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.reader.reader import Reader
from konverse.bridge.verifier.check import PartitionVerdict
from konverse.bridge.verifier.reading import Progress, Verification, Views
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.spark.connection.clients import fold, queue_of
from konverse.spark.connection.settings import ConnectionSettings, parse
from konverse.spark.verifier_job import verdicts
from tests.integration.test_verify import forge
from tests.kit.commands import CliRunner
from tests.kit.digests import digest
from tests.kit.servers import Servers
from tests.kit.shop import (
    ORDER,
    RECEIPT,
    answer,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    send_orders,
    sent,
    until,
    work,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

COUNTED = ("conversations", "accepted", "consumed", "unread", "outputs", "duplicates", "void", "undecodable")


def test_spark_and_one_machine_give_the_same_verdict_on_a_valid_and_a_forged_history(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    def judged(verification: Verification, views: Views, progress: Progress) -> Iterator[PartitionVerdict]:
        return verdicts(spark, verification, views, progress)

    send_orders(shop, dialogs=7, messages=70)
    with shop.reader("Orders", timeout=2.0) as reader:
        assert answer(reader) == 70

    def both() -> list[str]:
        verification = shop.operations.verification(shop.catalog.all(Queue))
        read: list[int] = []
        (ours, findings), (theirs, found) = verification.run(), verification.run(read.append, judged=judged)
        assert found == findings
        for one, other in zip(ours, theirs, strict=True):
            assert [getattr(one, name) for name in COUNTED] == [getattr(other, name) for name in COUNTED]
            assert one.fold.facts() == other.fold.facts()
        assert sum(read) == verification.records
        return [finding.text for finding in findings]

    assert both() == []
    forge(servers, shop, 1_000)
    refuted = both()
    assert refuted
    command = ["verify", "--spark", "--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    said = json.loads(result.stdout)
    assert not said["holds"]
    assert [finding["text"] for finding in said["findings"]] == refuted


# ------------------------------------------------------------------------------------------------------------- states

PARTITIONS: Final = 3
EACH: Final = 3
"""Conversations of each kind."""


def idle_states(broker: Broker, reader: Reader) -> dict[int, Partition]:
    """The states of a reader's partitions, once it has ingested everything."""
    reader.settle()
    with closing(LogReader(broker._kafka)) as log:
        ends = {number: log.ends(reader.queue.topic, number)[1] for number in reader.partitions}

    def idle() -> bool:
        work(reader)
        return not any(
            owner.committing or owner.snapshots.busy or owner.fold.state.ingest_to < ends[owner.identity.partition]
            for owner in reader.owners
        )

    until(idle, "nothing is left to do")
    return {owner.identity.partition: owner.fold.state for owner in reader.owners}


def folded_by_tasks(spark: SparkSession, settings: ConnectionSettings, times_ms: Mapping[int, int]) -> dict[int, bytes]:
    """Partition → hash of its state in a task of Spark, at the partition's time."""
    queue = queue_of(settings)

    def folded(number: int) -> tuple[int, bytes]:
        state = fold(settings, queue, number)
        state.now_ms = times_ms[number]  # by its own clock, the owner has looked beyond the commits
        return number, digest(state)

    numbers = spark.sparkContext.parallelize(range(queue.partitions), queue.partitions)
    return dict(numbers.map(folded).collect())


def begin_elsewhere(broker: Broker, than: Dialog) -> Dialog:
    """A dialog whose target is in another partition."""
    while (dialog := begin(broker)).begin.target.partition == than.begin.target.partition:
        pass
    return dialog


def treating(group: bytes) -> Callable[[Transaction], None]:
    """A handler that does what the body of an order says; `move` goes to this group."""

    def treat(transaction: Transaction) -> None:
        for message in transaction:
            match message.body:
                case b"answer":
                    transaction.send(message.dialog, RECEIPT, b"answered")
                case b"end":
                    transaction.end(message.dialog)
                case b"forget":
                    transaction.end(message.dialog, cleanup=True)
                case b"move":
                    transaction.move(message.dialog, UUID(bytes=group))
                case b"refuse":
                    raise RuntimeError("not this one")
                case b"remind":
                    transaction.set_timer(message.dialog, 3_600)
                case _:
                    pass  # only received

    return treat


def test_tasks_fold_each_partition_to_the_state_of_its_owner(
    spark: SparkSession, servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_BYTES", 1)  # so that tasks begin with a snapshot
    settings = parse({"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"})
    seen: list[dict[int, bytes]] = []

    def same(broker: Broker, reader: Reader) -> list[Endpoint]:
        """All sides, which must be equal in the tasks and the owners."""
        states = idle_states(broker, reader)
        seen.append({number: digest(state) for number, state in states.items()})
        assert folded_by_tasks(spark, settings, {number: state.now_ms for number, state in states.items()}) == seen[-1]
        return [endpoint for state in states.values() for endpoint in state.live()]

    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=PARTITIONS)
        with broker.reader("Orders", partitions=tuple(range(PARTITIONS)), timeout=1.0) as reader:
            reader.wait_for_partitions(PARTITIONS)
            host, guilty = sent(broker, b"answer"), sent(broker, b"refuse")
            guest = begin_elsewhere(broker, host)
            guest.send(ORDER, b"move")
            kinds = (b"answer", b"end", b"forget", b"remind")
            dialogs = {kind: [sent(broker, kind, b"more") for _ in range(EACH)] for kind in kinds}
            broker.flush()
            fill(reader, 3 + 2 * EACH * len(kinds))
            waiting = same(broker, reader)
            assert {len(side.queue) for side in waiting} == {1, 2}

            reader.run(treating(own_group(Role.TARGET, host.id.bytes)))
            for dialog in dialogs[b"answer"][:2]:
                dialog.end()
            dialogs[b"answer"][2].send(ORDER, b"unread")
            broker.flush()
            drain(broker, "Shop")
            sides = {side.conversation: side for side in same(broker, reader)}
            assert {side.state for side in sides.values()} == {
                State.CONVERSING,
                State.DISCONNECTED_INBOUND,
                State.DISCONNECTED_OUTBOUND,
            }
            assert [conversation for conversation, side in sides.items() if side.suspended] == [guilty.id.bytes]
            assert sides[guest.id.bytes].group_id == sides[host.id.bytes].group_id
            assert not {dialog.id.bytes for dialog in dialogs[b"forget"]} & {*sides}
            assert all(owner.snapshots._durable for owner in reader.owners)
    before, after = seen
    assert all(before[number] != after[number] for number in range(PARTITIONS)), "the hash tells them apart"
