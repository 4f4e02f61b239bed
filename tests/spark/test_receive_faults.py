"""Messages whose reader in Spark is replaced, fails, or returns rows of a wrong shape."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from konverse.bridge.broker import Broker
from konverse.bridge.reader import join_wait
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import InvalidSettings
from konverse.spark import map_arrow, process, route_arrow
from konverse.spark.receive.answers import Done
from konverse.spark.receive.mapping import QueueSource, in_tasks
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, answer_once, drain, sent, until
from tests.spark.test_mapping import answered, receipts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark writes"), pytest.mark.timeout(300)]

IDLE_S: Final = 2.0
TAKEN_OVER_WITHIN_S: Final = 100.0
QUICK: Final = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
"""So that a stopped driver is replaced soon."""

DRIVER: Final = """
import json, sys
from pathlib import Path
from konverse.spark import process
from konverse.spark.session import local_session
from tests.kit import until

place, held, release = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
spark = local_session("stopped")
spark.sparkContext.setLogLevel("OFF")

def late(frame):
    held.touch()
    until(release.exists, 200.0)
    return frame.selectExpr("receipt", "'//sales/Receipt' AS message_type", "CAST('zombie' AS BINARY) AS body")

print(process(spark, "Orders", late, **place), flush=True)
spark.stop()
"""
"""A driver that holds messages and waits until it may go on."""

KILLED: Final = """
import json, os, signal, sys
from konverse.bridge.owner.outputs import Outputs
from konverse.bridge.runtime.settings import Settings
from konverse.spark.receive.mapping import Answerer, Batches, QueueSource
from tests.spark.test_mapping import receipts

hand_over = Outputs._hand_over

def killed(outputs, owner, effect):
    if any(body for _, _, bodies in effect.batches() for body in bodies):
        os.kill(os.getpid(), signal.SIGKILL)
    hand_over(outputs, owner, effect)

Outputs._hand_over = killed
source = QueueSource(Settings.load(**json.loads(sys.argv[1])), "Orders", 100, 30.0)
with source.opened() as (_, reader):
    Batches(reader, Answerer(receipts)).work(source.rows)
"""
"""A driver without Spark. It is killed when its COMMIT counts, before the first answer leaves."""


@pytest.fixture
def place(servers: Servers, database: str) -> dict[str, Any]:
    """Arguments of `konverse.connect`."""
    return {"kafka": f"kafka://{servers.bootstrap}", "database": database, "timeout": IDLE_S}


def capitals(frame: DataFrame) -> DataFrame:
    """A receipt for each order, with its body in capitals."""
    body = f.upper(f.col("body").cast("string")).cast("binary")
    return frame.select("receipt", f.lit(RECEIPT).alias("message_type"), body.alias("body"))


def test_messages_taken_by_another_reader_midway_are_answered_only_by_that_reader(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    bodies = [b"order %d" % number for number in range(12)]
    for body in bodies:
        sent(shop, body)
    stolen: list[int] = []

    def robbed(frame: DataFrame) -> DataFrame:
        if not stolen:
            with shop.reader("Orders", partitions=(0, 1), timeout=1) as thief:
                stolen.append(answer_once(thief))
        return capitals(frame)

    process(spark, "Orders", robbed, **place)
    assert stolen == [12]
    drained = drain(shop, "Shop")
    assert len(drained) == len(bodies)
    assert not {message.body for message in drained} & {body.upper() for body in bodies}


@pytest.mark.slow
def test_a_stopped_driver_that_wakes_up_after_it_was_replaced_answers_nothing(
    spark: SparkSession, shop: Broker, place: dict[str, Any], tmp_path: Path
) -> None:
    bodies = [b"order %d" % number for number in range(6)]
    for body in bodies:
        sent(shop, body)
    held, release = tmp_path / "held", tmp_path / "release"
    quick = {**place, "group_protocol": "classic", "client": QUICK}
    program = [sys.executable, "-c", DRIVER, json.dumps(quick), str(held), str(release)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as driver:
        try:
            until(held.exists, "the driver has messages", TAKEN_OVER_WITHIN_S)
            driver.send_signal(signal.SIGSTOP)
            done = Done()

            def rest_is_answered() -> bool:
                nonlocal done
                done = done.plus(process(spark, "Orders", capitals, **quick))
                return done.replies >= len(bodies)

            until(rest_is_answered, "the successor answers all", TAKEN_OVER_WITHIN_S)
            driver.send_signal(signal.SIGCONT)
            release.touch()
            said, _ = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert done == Done(6, 6, 0, 0)
    assert "replies=0" in said
    assert answered(shop) == Counter(body.upper() for body in bodies)


def test_answers_of_a_driver_killed_after_its_commit_are_delivered_without_a_second_receive(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    bodies = [b"order %d" % number for number in range(6)]
    sent(shop, *bodies)
    quick = {**place, "group_protocol": "classic", "client": QUICK}
    settings = {name: value for name, value in quick.items() if name != "timeout"}
    program = [sys.executable, "-c", KILLED, json.dumps(settings)]
    assert subprocess.run(program, timeout=100, check=False).returncode == -signal.SIGKILL
    assert answered(shop) == Counter(), "nothing has left"
    received, answers = 0, Counter[bytes]()

    def all_are_answered() -> bool:
        nonlocal received
        received += process(spark, "Orders", lambda frame: capitals(frame).where("false"), **quick).messages
        answers.update(answered(shop))
        return answers.total() >= len(bodies)

    until(all_are_answered, "its answers come", TAKEN_OVER_WITHIN_S)
    assert (received, answers) == (0, Counter(body.upper() for body in bodies))


def test_a_job_that_is_started_again_at_once_waits_until_kafka_misses_the_driver_that_was_killed(
    spark: SparkSession, shop: Broker, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"order %d" % number for number in range(6)]
    for body in bodies:
        sent(shop, body)
    settings = {name: value for name, value in place.items() if name != "timeout"}
    program = [sys.executable, "-c", KILLED, json.dumps(settings)]
    assert subprocess.run(program, timeout=100, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(join_wait, "JOIN_S", 0.5)  # shorter than a session with the brokers' default
    process(spark, "Orders", capitals, **{**place, "timeout": 0.5})
    assert answered(shop) == Counter(body.upper() for body in bodies)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_job_detects_an_active_reader_of_its_queue(
    spark: SparkSession, shop: Broker, place: dict[str, Any], protocol: str
) -> None:
    settings = {name: value for name, value in place.items() if name != "timeout"}
    source = QueueSource(Settings.load(**settings, group_protocol=protocol), "Orders", 100, IDLE_S)
    assert source.begun() == source, "nobody has ever received"
    with source.opened() as (_, reader):
        reader.wait_for_partitions(2)
        assert source.begun() == source._replace(may_follow_dead_reader=True)
        assert source._replace(timeout=None).begun().timeout is None
        told = in_tasks(spark, source, lambda mine: {"behind": mine.may_follow_dead_reader})
        assert {one["behind"] for one in told} == {True}
    assert source.begun() == source, "who leaves is no member"


def test_of_a_batch_whose_rows_are_all_filtered_out_every_message_is_received_and_none_answered(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    for number in range(5):
        sent(shop, b"order %d" % number)
    assert process(spark, "Orders", lambda frame: capitals(frame).where("false"), **place) == Done(5, 0, 0, 0)
    assert map_arrow(spark, "Orders", receipts, **place) == Done()
    assert drain(shop, "Shop") == []


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_transform_that_shuffles_into_another_number_of_tasks_answers_each_message_once(
    spark: SparkSession, shop: Broker, place: dict[str, Any], adaptive: str
) -> None:
    bodies = [b"order %d" % number for number in range(40)]
    for at in range(0, 40, 4):
        sent(shop, *bodies[at : at + 4])
    tasks = iter([7, 1, 3, 5, 2] * 10)
    before = spark.conf.get("spark.sql.adaptive.enabled")
    assert before is not None
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        done = process(spark, "Orders", lambda frame: capitals(frame.repartition(next(tasks), "body")), rows=9, **place)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    assert done == Done(40, 40, 0, 0)
    assert answered(shop) == Counter(body.upper() for body in bodies)


def test_a_task_function_that_drops_the_receipt_column_is_refused_and_no_message_is_lost(
    spark: SparkSession, shop: Broker, place: dict[str, Any]
) -> None:
    sent(shop, b"order")

    def dropped(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["body"])

    for receive in (map_arrow, route_arrow):
        with pytest.raises(InvalidSettings, match="no column 'receipt', they have body"):
            receive(spark, "Orders", dropped, **place)
    assert map_arrow(spark, "Orders", receipts, **place) == Done(1, 1, 0, 0)
