"""Beside Spark's own Kafka source: its records are decoded like ours, and it streams into a queue."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from konverse.bridge.broker import Broker
from konverse.deploy.java.jars import spark_connector_jars
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.schemas.errors import StackError
from konverse.schemas.wire.records import End
from tests.kit.builders import GARBAGE, Scribe, identifier
from tests.kit.servers import Servers, missing
from tests.kit.shop import DEADLINE_S, drain, receive
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, Log
from tests.spark.test_write import by_conversation

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[2]
CONVERSATION: Final = identifier("a conversation")
KEYS: Final = 3
COUNT: Final = 15


@pytest.fixture
def jars() -> None:
    """Require a machine that has the jars of Spark's Kafka source or can get them."""
    try:
        java = find_java()
        spark_java_home(java)
        spark_connector_jars(java)
    except StackError as error:
        missing(error)


def disturbed(new_log: NewLog) -> Log:
    """Messages with keys and headers, a duplicate, an END, garbage and a foreign record, in two partitions."""
    log, scribe = new_log(2), Scribe("writer")
    first, second = (scribe.message(ORDERS, CONVERSATION, sequence=number) for number in range(2))
    log.write(first, key=b"k", headers=[("trace", b"1"), ("more", None)])
    log.write(second, body=None)
    log.write(first)
    log.write(scribe.end(ORDERS, CONVERSATION, End(identifier("opener"), ORDERS), sequence=2), GARBAGE)
    other = Scribe("another writer")
    log.write(None, other.message(ORDERS, identifier("another"), sequence=0), partition=1, headers=[("trace", b"2")])
    return log


@pytest.mark.usefixtures("jars", "transmitting")
def test_records_read_by_sparks_kafka_source_are_decoded_and_streamed_into_a_queue(
    servers: Servers, shop: Broker, database: str, new_log: NewLog, tmp_path: Path
) -> None:
    records, orders = disturbed(new_log), new_log(2)
    producer = Producer({"bootstrap.servers": servers.bootstrap})
    for number in range(COUNT):
        key = number % KEYS
        producer.produce(orders.topic, b"%d" % number, b"%d" % key, key % 2, headers=[("place", b"%d" % number)])
    assert producer.flush(DEADLINE_S) == 0

    arguments = [servers.bootstrap, database, records.topic, orders.topic, str(tmp_path)]
    command = [sys.executable, "-m", "tests.spark.kafka_job", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    said = json.loads(done.stdout.splitlines()[-1])

    verdicts = [row.pop("verdict") for row in said["read"]]
    assert verdicts == ["accepted", "accepted", "duplicate", "accepted", "malformed", "foreign", "accepted"]
    for row, verdict in zip(said["decoded"], verdicts, strict=True):
        if verdict == "duplicate":
            assert row.pop("sequence") == 0, "the sender said so"
    assert said["read"][2].pop("sequence") is None
    assert said["decoded"] == said["read"]

    got = receive(shop, "Orders", COUNT)
    assert drain(shop, "Orders") == []
    assert all(message.headers == [("place", message.body)] for message in got)
    expected = [[b"%d" % number for number in range(key, COUNT, KEYS)] for key in range(KEYS)]
    assert sorted(by_conversation(got).values()) == sorted(expected)
