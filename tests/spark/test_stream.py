"""A stream returns each message once, wherever it was stopped and whatever is left of its state."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from konverse.schemas.errors import InvalidSettings, TopicMismatch
from konverse.schemas.identifiers import consumer_group, data_topic
from konverse.spark.connection.settings import ConnectionSettings, parse
from konverse.spark.log import states
from konverse.spark.log.topic import Bounds, Topic
from konverse.spark.read import stream
from konverse.spark.read.journal_stream import JournalStreamReader
from konverse.spark.read.registration import Registration
from konverse.spark.read.stream import TASK_RECORDS, MessagesStreamReader, Position, Ranges
from tests.kit.builders import GARBAGE, Scribe, identifier
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, Log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("spark")]

CONVERSATION = identifier("a conversation")
COUNTERS = StructType([StructField("counter", LongType()), StructField("offset", LongType())])


def reader(log: Log, folder: Path, **options: str) -> MessagesStreamReader:
    return MessagesStreamReader(parse(log.options(stateFolder=str(folder), **options)), COUNTERS)


def fetch(made: MessagesStreamReader, start: Position, end: Position) -> list[int]:
    """The counters from the tasks of a micro-batch, each with a pickled reader."""
    task: MessagesStreamReader = pickle.loads(pickle.dumps(made))
    ranges = made.partitions(start, end)
    return [row["counter"] for one in ranges for batch in task.read(one) for row in batch.to_pylist()]


def messages(scribe: Scribe, count: int) -> list[bytes]:
    return [scribe.message(ORDERS, CONVERSATION) for _ in range(count)]


def test_a_stream_gives_the_rows_of_a_batch_and_warns_of_contested_records_of_one_micro_batch(
    new_log: NewLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, scribe = new_log(), Scribe("writer")
    first, second, third = messages(scribe, 3)
    for header, body in ((first, b"a stranger's"), (first, b"the sender's"), (second, b"a stranger's")):
        log.write(header, body=body)
    made = reader(log, tmp_path)
    start = made.initialOffset()
    middle = made.latestOffset(start, ReadAllAvailable())
    with caplog.at_level(logging.WARNING, "konverse.spark"):
        assert fetch(made, start, middle) == [0, 1]
        log.write(second, third, body=b"the sender's")
        assert fetch(made, middle, made.latestOffset(middle, ReadAllAvailable())) == [2]
    (told,) = [record.message for record in caplog.records if "other content" in record.message]
    assert "the first at offset 1; the earlier one is at 0" in told
    made.stop()


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("left", ["process", "file", "torn file", "file of another place", "nothing"])
def test_a_duplicate_of_an_earlier_micro_batch_is_left_out(new_log: NewLog, tmp_path: Path, left: str) -> None:
    log, scribe = new_log(), Scribe("writer")
    sent = messages(scribe, 6)
    log.write(*sent[:4])
    made = reader(log, tmp_path)
    start = made.initialOffset()
    middle = made.latestOffset(start, ReadAllAvailable())
    assert fetch(made, start, middle) == [0, 1, 2, 3]
    if left != "process":
        states._WARM.clear()
        (file,) = tmp_path.glob("*/0.4")
        if left == "torn file":
            file.write_bytes(file.read_bytes()[:-1])
        elif left == "file of another place":
            file.write_bytes(file.read_bytes().replace(b"/0.4", b"/1.4"))
        elif left == "nothing":
            file.unlink()
    log.write(sent[3], sent[4], GARBAGE, sent[2], sent[5])
    end = made.latestOffset(middle, ReadAllAvailable())
    assert fetch(made, middle, end) == [4, 5]
    assert fetch(made, middle, end) == [4, 5], "a task that runs again says the same"
    assert fetch(made, start, middle) == [0, 1, 2, 3], "so does a batch before it"
    made.stop()


def test_a_micro_batch_has_so_many_rows_of_all_partitions(new_log: NewLog, tmp_path: Path) -> None:
    log = new_log(partitions=3)
    for partition, count in ((0, 60), (2, 30)):
        log.fill(messages(Scribe(f"writer {partition}"), count), partition=partition)
    made = reader(log, tmp_path, maxRows="30")
    assert made.getDefaultReadLimit() == ReadMaxRows(30)
    start = made.initialOffset()
    assert made.latestOffset(start, ReadMaxRows(30))["partitions"] == {"0": 20, "1": 0, "2": 10}
    assert made.latestOffset(start, ReadMaxRows(1))["partitions"] == {"0": 1, "1": 0, "2": 0}
    assert made.latestOffset(start, ReadAllAvailable())["partitions"] == {"0": 60, "1": 0, "2": 30}
    made.prepareForTriggerAvailableNow()
    log.write(*messages(Scribe("late"), 3), partition=1)
    assert made.latestOffset(start, ReadMaxRows(1_000))["partitions"] == {"0": 60, "1": 0, "2": 30}
    made.stop()


def test_small_ranges_share_a_task_and_a_large_one_has_its_own(new_log: NewLog, tmp_path: Path) -> None:
    log = new_log(partitions=6)
    counts = (200, 200, 200, TASK_RECORDS + 1, 0, 3)
    for partition, count in enumerate(counts):
        log.fill(messages(Scribe(f"writer {partition}"), count), partition=partition)
    made = reader(log, tmp_path)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())

    def tasks() -> list[list[int]]:
        return [
            [one.partition for one in task.ranges] for task in made.partitions(start, end) if isinstance(task, Ranges)
        ]

    assert tasks() == [[0], [1], [2], [3], [5]], "whoever begins reads whole logs, and that side by side"
    assert tasks() == [[0, 1], [2], [3], [5]]
    assert sorted(fetch(made, start, end)) == sorted(number for count in counts for number in range(count))
    made.stop()


def test_the_next_task_reuses_a_client_unless_it_failed_or_is_in_use(new_log: NewLog, tmp_path: Path) -> None:
    log = new_log()
    settings = parse(log.options(stateFolder=str(tmp_path)))
    with Topic(settings) as first:
        client = first._client
    with Topic(settings) as second, Topic(settings) as beside:
        assert second._client is client
        assert beside._client is not client
        assert second.partitions() == beside.partitions() == [0]
    third = Topic(settings)
    client = third._client
    with pytest.raises(ZeroDivisionError), third:
        raise ZeroDivisionError
    with Topic(settings) as fourth:
        assert fourth._client is not client
        fourth._client.trouble = "a broker went away"
        client = fourth._client
    with Topic(settings) as fifth:
        assert fifth._client is not client


def test_a_log_that_ends_before_the_checkpoint_is_another_one(new_log: NewLog, tmp_path: Path) -> None:
    log = new_log()
    log.write(*messages(Scribe("writer"), 3))
    made = reader(log, tmp_path)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    other: Position = {**start, "topic": "0" * 32}
    with pytest.raises(TopicMismatch, match="was deleted and created again"):
        made.partitions(other, end)
    restarted = reader(log, tmp_path)
    with pytest.raises(TopicMismatch, match="was deleted and created again"):
        restarted.latestOffset({**other, "partitions": {"0": 100}}, ReadAllAvailable())
    for one in (made, restarted):
        one.stop()


def test_a_stream_of_what_is_there_may_begin_at_the_end_of_a_log_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the trigger availableNow Spark asks for the ends before it asks for the beginning."""

    class Growing:
        end = 3

        def partitions(self) -> list[int]:
            return [0, 1]

        def bounds(self, partitions: list[int]) -> dict[int, Bounds]:
            self.end += 1
            return dict.fromkeys(partitions, Bounds(0, self.end))

    monkeypatch.setattr(MessagesStreamReader, "_topic_id", lambda _: "id")
    settings = parse({"bootstrap": "one:9092", "topic": "orders", "startingOffsets": '{"0": "latest"}'})
    made = MessagesStreamReader(settings, StructType([StructField("counter", LongType())]))
    made._topic = cast("Topic", Growing())
    made.prepareForTriggerAvailableNow()
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    assert (start["partitions"], end["partitions"]) == ({"0": 5, "1": 0}, {"0": 5, "1": 4})


def test_a_log_that_has_become_shorter_is_a_loss(
    new_log: NewLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log()
    log.write(*messages(Scribe("writer"), 3))
    made, tolerant = reader(log, tmp_path), reader(log, tmp_path, failOnDataLoss="false")
    start = made.initialOffset()
    ahead: Position = {**start, "partitions": {"0": 100}}
    with pytest.raises(TopicMismatch, match=r"partition 0 of .* ends at 3, before the checkpoint's 100"):
        made.latestOffset(ahead, ReadAllAvailable())
    with caplog.at_level(logging.WARNING):
        assert tolerant.latestOffset(ahead, ReadAllAvailable())["partitions"] == {"0": 3}
        assert fetch(tolerant, start, ahead) == [0, 1, 2]
    assert "goes on without them" in caplog.text
    for one in (made, tolerant):
        one.stop()


def test_a_registration_that_was_refused_is_tried_again(
    new_log: NewLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log()
    made = Registration(parse(log.options()), "reader")
    tried: list[int] = []

    class Refusing:
        def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
            assert not asynchronous
            tried.append(offsets[0].offset)
            if len(tried) < 2:
                raise KafkaException(KafkaError(KafkaError._WAIT_COORD))
            refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED) if len(tried) == 2 else None
            return [SimpleNamespace(topic=log.topic, error=refused)]

        def poll(self, _timeout: float) -> Any:
            return SimpleNamespace(error=lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    made.close()
    monkeypatch.setattr(made, "_consumer", Refusing())
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            made.needs({0: 5})
    assert tried == [5, 5, 5]
    assert caplog.text.count("could not be registered") == 1
    assert f"Grant READ on group {log.topic}.queue.spark-reader to" in caplog.text
    monkeypatch.setattr(made, "_tell_again_at", 0.0)  # an hour later
    for _ in range(2):
        made.needs({0: 5})
    assert tried == [5, 5, 5, 5], "or Kafka would forget the offset of a stream to which nothing comes"


@pytest.mark.usefixtures("cold")
def test_records_deleted_before_they_are_read_fail_the_stream_unless_fail_on_data_loss_is_false(
    new_log: NewLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log()
    log.write(*messages(Scribe("writer"), 6))
    made = reader(log, tmp_path)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    place = TopicPartition(log.topic, 0, 4)
    admin.delete_records([place])[place].result()
    with pytest.raises(TopicMismatch, match=r"partition 0 of .* holds offsets 4 up to 6.*from 0 to 6.*failOnDataLoss"):
        made.partitions(start, end)
    made.stop()
    tolerant = reader(log, tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert fetch(tolerant, start, end) == [4, 5]
    assert "goes on without them" in caplog.text
    tolerant.stop()


def of_queue(new_log: NewLog, folder: Path) -> tuple[Log, ConnectionSettings]:
    """The data of a queue, whose streams register as readers."""
    database = f"registered{uuid4().hex[:8]}"
    log = new_log(name=data_topic("konverse", database, "Orders"))
    options = {"bootstrap": log.bootstrap, "database": database, "queue": "Orders", "stateFolder": str(folder)}
    return log, parse(options)


def needed(log: Log, start: Position) -> int:
    """The first offset of partition 0 that a stream needs."""
    group = f"{consumer_group(log.topic)}.spark-{start['reader']}"
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(log.topic, 0)], timeout=10)
    consumer.close()
    return found.offset


def test_a_stream_is_a_registered_reader_of_its_queue(new_log: NewLog, tmp_path: Path) -> None:
    log, settings = of_queue(new_log, tmp_path)
    log.write(*messages(Scribe("writer"), 6))
    made = MessagesStreamReader(settings, COUNTERS)
    start = made.initialOffset()
    end = made.latestOffset(start, ReadMaxRows(4))
    made.partitions(start, end)
    assert needed(log, start) == 0
    made.commit(end)
    assert needed(log, start) == 4
    made.stop()


@pytest.mark.usefixtures("cold")
def test_the_state_of_a_stream_survives_its_worker_and_the_truncation_that_it_allows(
    new_log: NewLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, settings = of_queue(new_log, tmp_path)
    scribes = [Scribe(f"writer {number}") for number in range(50)]
    sent = [messages(scribe, 1)[0] for scribe in scribes]
    log.write(*sent)
    made = MessagesStreamReader(settings, COUNTERS)
    place = made.initialOffset()

    def read_on() -> list[int]:
        nonlocal place
        end = made.latestOffset(place, ReadAllAvailable())
        got = fetch(made, place, end)
        made.commit(end)
        place = end
        return got

    assert read_on() == [0] * 50
    log.write(*messages(scribes[0], 2))
    assert read_on() == [1, 2]
    assert [file.name for file in tmp_path.glob("*/*")] == ["0.50"], "too much is known for two records"
    assert needed(log, place) == 50
    assert json.loads(json.dumps(place)) == made.latestOffset(place, ReadAllAvailable()), "nothing new is nothing new"
    monkeypatch.setattr(stream, "STATE_RECORDS", 4)
    log.write(*messages(scribes[0], 2))
    assert read_on() == [3, 4]
    assert needed(log, place) == 54
    log.write(*messages(scribes[0], 2))
    assert read_on() == [5, 6]
    admin, allowed = AdminClient({"bootstrap.servers": log.bootstrap}), TopicPartition(log.topic, 0, needed(log, place))
    admin.delete_records([allowed])[allowed].result()
    states._WARM.clear()
    log.write(sent[7], *messages(scribes[0], 1))
    assert read_on() == [7], "another worker knows what was in the log before"
    made.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "other"}, "option 'topic' is 'other', but the checkpoint belongs to topic 'konverse.sales.Orders'"),
        (
            {"queue": "Others", "database": "sales"},
            r"option 'queue' is 'Others' \(with .*'konverse.sales.Others'\), but the checkpoint belongs to",
        ),
        ({"queue": "Orders", "database": "sales", "mode": "journal"}, "but the checkpoint belongs to topic"),
    ],
)
def test_an_option_that_does_not_fit_the_checkpoint_is_named(options: dict[str, str], words: str) -> None:
    """The error does not blame a deleted topic."""
    kind = JournalStreamReader if "mode" in options else MessagesStreamReader
    made = kind(parse({"bootstrap": "localhost:1", **options}), StructType(COUNTERS.fields[1:]))
    start = Position(topic="0" * 32, name="konverse.sales.Orders", reader="r", partitions={"0": 0})
    with pytest.raises(InvalidSettings, match=words):
        made.ranges(start, {**start, "partitions": {"0": 1}})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": '{"0": 3}'}, "a stream has no end"),
        ({"endingTimestamp": "0"}, "a stream has no end"),
        ({"maxRows": "none"}, "option 'maxRows' is 'none'"),
        ({"maxRows": "0"}, "option 'maxRows' is '0'"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' is 'maybe'"),
        ({"startingTimestamp": "soon"}, "option 'startingTimestamp' is 'soon'"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "a time without a zone; add one"),
        ({"startingTimestamp": "0", "startingOffsets": "latest"}, "exclude each other"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        MessagesStreamReader(parse({"bootstrap": "localhost:9092", "topic": "t", **options}), COUNTERS)


def test_a_folder_has_a_whole_path() -> None:
    with pytest.raises(InvalidSettings, match="option 'stateFolder' is 'here'"):
        parse({"bootstrap": "localhost:9092", "topic": "t", "stateFolder": "here"})


def streamed(spark: SparkSession, log: Log, checkpoint: Path, **options: str) -> list[int]:
    """Run a query until everything is read; returns the counters."""
    got: list[int] = []

    def gather(frame: DataFrame, _: int) -> None:
        got.extend(row["counter"] for row in frame.select("counter").collect())

    frame = spark.readStream.format("konverse").options(**log.options(**options)).load()
    query = (
        frame.writeStream.foreachBatch(gather)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return sorted(got)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_continues_from_its_checkpoint_and_returns_each_message_once(
    spark: SparkSession, new_log: NewLog, tmp_path: Path
) -> None:
    log, scribe = new_log(partitions=2), Scribe("writer")
    options: dict[str, Any] = {"maxRows": "7", "stateFolder": str(tmp_path / "states")}
    sent = messages(scribe, 20)
    log.write(*sent[:10])
    assert streamed(spark, log, tmp_path / "checkpoint", **options) == [*range(10)]
    log.write(sent[9], *sent[10:15], sent[3])
    assert streamed(spark, log, tmp_path / "checkpoint", **options) == [*range(10, 15)]
    assert streamed(spark, log, tmp_path / "checkpoint", **options) == []
    log.write(*sent[15:])
    assert streamed(spark, log, tmp_path / "another", **options) == [*range(20)]
