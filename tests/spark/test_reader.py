"""A batch read from Kafka, without Spark."""

from __future__ import annotations

import gc
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from konverse.schemas.errors import InvalidSettings, KafkaUnavailable, QueueNotFound, TopicMismatch, UnknownObject
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.batches import encode_winners
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.records import Begin, Decision, End, Kind, Suffix
from konverse.spark.connection.settings import parse
from konverse.spark.log import topic as topics
from konverse.spark.log.columns import COLUMNS
from konverse.spark.log.topic import Bounds, Topic
from konverse.spark.read.reader import MessagesReader, Range
from konverse.spark.source import KonverseDataSource
from tests.kit.batches import QUERY, Query
from tests.kit.builders import GARBAGE, Scribe, begin_block, identifier
from tests.kit.servers import Servers
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, Log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("spark")]

CONVERSATION = identifier("a conversation")


def schema_of(*names: str) -> StructType:
    pairs = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types: dict[str, DataType] = {
        "string": StringType(),
        "binary": BinaryType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "array<struct<key:string,value:binary>>": ArrayType(pairs),
    }
    return StructType([StructField(name, types[COLUMNS[name].sql]) for name in names])


COUNTERS = schema_of("counter", "offset")
JUDGED = schema_of("verdict", "sequence")


def reader(log: Log, schema: StructType = COUNTERS, **options: str) -> MessagesReader:
    return MessagesReader(parse(log.options(**options)), schema)


def ranges(made: MessagesReader) -> list[Range]:
    found = made.partitions()
    assert all(isinstance(one, Range) for one in found)
    return [one for one in found if isinstance(one, Range)]


def read(made: MessagesReader) -> list[dict[str, Any]]:
    return [row for one in ranges(made) for batch in made.read(one) for row in batch.to_pylist()]


def counters(made: MessagesReader) -> list[int]:
    return [row["counter"] for row in read(made)]


def messages(scribe: Scribe, count: int) -> list[bytes]:
    return [scribe.message(ORDERS, CONVERSATION) for _ in range(count)]


def verdicts(log: Log, **options: str) -> list[tuple[str, int | None]]:
    return [(row["verdict"], row["sequence"]) for row in read(reader(log, JUDGED, include="all", **options))]


def test_every_record_is_judged(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    first, second = messages(scribe, 2)
    log.write(first, second, first, None, GARBAGE)
    log.write(scribe.message(ORDERS, CONVERSATION, counter=9))
    log.write(scribe.message(ORDERS, CONVERSATION, counter=2))
    assert verdicts(log) == [
        ("accepted", 0),
        ("accepted", 1),
        ("duplicate", None),
        ("foreign", None),
        ("malformed", None),
        ("gap", None),
        ("accepted", 2),
    ]


def test_a_contested_record_has_its_verdict_and_one_warning_of_the_read_names_both_offsets(
    new_log: NewLog, caplog: pytest.LogCaptureFixture
) -> None:
    log, scribe = new_log(), Scribe("writer")
    first, second = messages(scribe, 2)
    log.write(first, body=b"a stranger's")
    log.write(first, body=b"the sender's")
    log.write(first, second, body=b"the sender's")
    all_of_them = [("accepted", 0), ("contested", None), ("duplicate", None), ("accepted", 1)]
    with caplog.at_level(logging.WARNING, "konverse.spark"):
        assert verdicts(log) == all_of_them
        assert [row["offset"] for row in read(reader(log))] == [0, 3]
        assert verdicts(log, startingOffsets='{"0": 2}') == all_of_them[2:], "the read begins behind both"
    told = f"partition 0 of topic '{log.topic}': 1 record has the writer and counter of an earlier record and other"
    assert [told in record.message for record in caplog.records] == [True, True]
    assert all("the first at offset 1; the earlier one is at 0" in record.message for record in caplog.records)


def test_control_records_count_and_are_left_out(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    log.write(messages(scribe, 1)[0], scribe.close(ORDERS, identifier("another")), messages(scribe, 1)[0])
    assert verdicts(log) == [("accepted", 0), ("control", None), ("accepted", 1)]
    assert counters(reader(log)) == [0, 2]


def test_an_end_is_the_last_number_of_its_direction(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    detail = End(identifier("opener"), ORDERS)
    log.write(*messages(scribe, 2), scribe.end(ORDERS, CONVERSATION, detail))
    log.write(scribe.message(ORDERS, CONVERSATION, role=Role.TARGET))
    assert verdicts(log) == [("accepted", 0), ("accepted", 1), ("accepted", 2), ("accepted", 0)]


def test_records_for_another_incarnation_are_foreign(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    other = ORDERS.__class__(ORDERS.topic, 0, b"old!")
    log.write(scribe.message(other, CONVERSATION), *messages(scribe, 1))
    tag = ORDERS.tag.hex()
    assert verdicts(log, incarnation=f"{tag}-0000-4000-8000-000000000000") == [("foreign", None), ("accepted", 0)]
    assert [verdict for verdict, _ in verdicts(log)] == ["accepted", "accepted"]


def test_the_first_header_of_our_name_counts_and_a_null_is_none(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    first, second = messages(scribe, 2)
    log.write(first, headers=[(HEADER, GARBAGE)])
    log.write(None, headers=[(HEADER, None)])
    log.write(None, headers=[("other", b"x"), (HEADER, second)])
    assert [verdict for verdict, _ in verdicts(log)] == ["accepted", "foreign", "accepted"]


def test_a_range_in_the_middle_is_judged_from_the_log_start(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    log.fill(messages(scribe, 6))
    log.write(scribe.message(ORDERS, CONVERSATION, counter=1))
    log.fill(messages(scribe, 2))
    assert counters(reader(log, startingOffsets='{"0": 4}', endingOffsets='{"0": 8}')) == [4, 5, 6]
    assert counters(reader(log, startingOffsets="latest")) == []


def test_a_truncated_log_is_read_from_its_remaining_records(new_log: NewLog, servers: Servers) -> None:
    log, scribe = new_log(), Scribe("writer")
    log.fill([scribe.message(ORDERS, CONVERSATION, sequence=number) for number in range(6)])
    truncate(servers.bootstrap, log.topic, 4)
    schema = StructType([*COUNTERS.fields, StructField("sequence", LongType())])
    expected = [{"counter": number, "offset": number, "sequence": number} for number in (4, 5)]
    assert read(reader(log, schema)) == expected


def truncate(bootstrap: str, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result()


def test_markers_of_transactions_are_no_rows_and_no_end(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    log.transaction(*messages(scribe, 2))
    log.transaction(*messages(Scribe("another"), 3), commit=False)
    log.transaction(*messages(scribe, 1))
    assert [row["offset"] for row in read(reader(log))] == [0, 1, 7]
    assert [one.end for one in ranges(reader(log))] == [9]
    assert [row["offset"] for row in read(reader(log, startingOffsets='{"0": 2}', endingOffsets='{"0": 7}'))] == []


def test_records_after_an_open_transaction_are_not_read(new_log: NewLog) -> None:
    from confluent_kafka import Producer

    log, scribe = new_log(), Scribe("writer")
    log.write(*messages(scribe, 1))
    producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": log.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(log.topic, b"open", partition=0)
    assert producer.flush(30) == 0
    log.write(*messages(scribe, 1))
    assert counters(reader(log)) == [0]
    with pytest.raises(InvalidSettings, match="asks for offset 3 of partition 0, which holds 0 up to 1"):
        ranges(reader(log, endingOffsets='{"0": 3}'))
    producer.abort_transaction(30)


def test_one_task_for_each_partition_that_holds_something(new_log: NewLog) -> None:
    log, scribe = new_log(4), Scribe("writer")
    log.write(*messages(scribe, 2), partition=2)
    assert ranges(reader(log)) == [Range(2, 0, 0, 2)]
    assert counters(reader(new_log(2))) == []


def test_a_partition_that_is_chosen_and_not_there_is_named(new_log: NewLog) -> None:
    with pytest.raises(InvalidSettings, match=r"option 'partitions' names partition 3; topic .* has 3 partitions"):
        ranges(reader(new_log(3), partitions="1,3"))


def test_large_logs_come_in_batches(new_log: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "CHUNK_RECORDS_MAX", 100)
    log = new_log()
    log.fill(messages(Scribe("writer"), 1_050))
    made = reader(log)
    sizes = [batch.num_rows for one in ranges(made) for batch in made.read(one)]
    assert sum(sizes) == 1_050
    assert max(sizes) == 100


def test_a_read_that_is_given_up_closes_its_client_and_restores_the_collector(new_log: NewLog) -> None:
    log = new_log()
    log.fill(messages(Scribe("writer"), 10))
    made, before = reader(log), gc.get_threshold()
    batches = made.read(ranges(made)[0])
    next(batches)
    assert gc.get_threshold() != before
    batches.close()  # type: ignore[attr-defined]  # a generator, which is an iterator that can be closed
    assert gc.get_threshold() == before


def test_users_headers_and_nulls_come_through(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    log.write(*messages(scribe, 1), body=None, headers=[("trace", b"1"), ("trace", None)], timestamp=1_700_000_000_123)
    log.write(None, key=b"key")
    names = ("body", "key", "headers", "timestamp", "writer", "conversation", "message_type", "role", "kind", "counter")
    first, second = read(reader(log, schema_of(*names), include="all"))
    assert first["headers"] == [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (first["body"], first["key"]) == (None, None)
    assert (first["writer"], first["conversation"]) == (scribe.id, CONVERSATION)
    assert (first["message_type"], first["role"], first["kind"], first["counter"]) == (
        "order",
        "INITIATOR",
        "MESSAGE",
        0,
    )
    assert (second["body"], second["key"], second["headers"]) == (b"body", b"key", [])
    assert {second[name] for name in ("writer", "conversation", "message_type", "role", "kind", "counter")} == {None}


def test_a_row_has_the_time_at_which_it_was_accepted(new_log: NewLog) -> None:
    """The decision's time for a row of a batch, else the record's own; null for a record that does not count."""
    log, scribe, query = new_log(), Scribe("writer"), Query()
    task = query.task()
    waits, body = query.message(task, CONVERSATION)
    decided = query.judge.write(
        Kind.DECISION, ORDERS, QUERY, suffix=Suffix(detail=Decision(QUERY, 0, begins=False, final=True))
    )
    first, second = messages(scribe, 2)
    log.write(waits, body=body, timestamp=1_000)
    log.write(first, timestamp=5_000)
    log.write(first, timestamp=6_000)
    log.write(decided, body=encode_winners(((task.attempt, 1),)), timestamp=90_000)
    log.write(second, timestamp=7_000)
    asked = schema_of("verdict", "timestamp", "accepted_time")
    found = [
        tuple(None if one is None else one.timestamp() if hasattr(one, "timestamp") else one for one in row.values())
        for row in read(reader(log, asked, include="all"))
    ]
    assert found == [
        ("pending", 1.0, None),
        ("accepted", 5.0, 5.0),
        ("duplicate", 6.0, None),
        ("control", 90.0, 90.0),
        ("accepted", 1.0, 90.0),
        ("accepted", 7.0, 7.0),
    ]


def test_a_column_is_given_in_the_case_in_which_it_was_asked_for(new_log: NewLog) -> None:
    log = new_log()
    log.write(*messages(Scribe("writer"), 1))
    asked = StructType([StructField("Counter", LongType()), StructField("MESSAGE_TYPE", StringType())])
    assert read(reader(log, asked)) == [{"Counter": 0, "MESSAGE_TYPE": "order"}]


def test_a_topic_that_does_not_exist_is_named(servers: Servers) -> None:
    made = MessagesReader(parse({"bootstrap": servers.bootstrap, "topic": "no-such-topic"}), COUNTERS)
    with pytest.raises(UnknownObject, match="topic 'no-such-topic' does not exist; check option 'topic'"):
        made.partitions()


def test_a_queue_that_does_not_exist_is_named(servers: Servers) -> None:
    made = MessagesReader(parse({"bootstrap": servers.bootstrap, "database": "d", "queue": "none"}), COUNTERS)
    with pytest.raises(QueueNotFound, match=r"queue 'none' \(topic 'konverse.d.none'\) does not exist; check options"):
        made.partitions()


def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_S_MAX", 0.5)
    made = MessagesReader(parse({"bootstrap": "127.0.0.1:1", "topic": "orders"}), COUNTERS)
    with pytest.raises(KafkaUnavailable, match=r"no broker at 127.0.0.1:1 answered within .* check option 'bootstrap'"):
        made.partitions()


def test_a_setting_that_the_client_refuses_is_named(servers: Servers) -> None:
    options = {"bootstrap": servers.bootstrap, "topic": "orders", "kafka.no.such.setting": "1"}
    with pytest.raises(InvalidSettings, match=r"no.such.setting.*check the kafka\.\* options"):
        MessagesReader(parse(options), COUNTERS).partitions()


def test_offsets_outside_the_log_are_named(new_log: NewLog) -> None:
    log = new_log()
    log.fill(messages(Scribe("writer"), 3))
    with pytest.raises(
        InvalidSettings, match="'startingOffsets' asks for offset 9 of partition 0, which holds 0 up to 3"
    ):
        ranges(reader(log, startingOffsets='{"0": 9}'))
    with pytest.raises(InvalidSettings, match=r"'endingOffsets' names partition 5; topic .* has 1 partition$"):
        ranges(reader(log, endingOffsets='{"5": 0}'))


def test_records_that_were_deleted_meanwhile_are_an_error(new_log: NewLog, servers: Servers) -> None:
    log = new_log()
    log.fill(messages(Scribe("writer"), 6))
    planned = ranges(reader(log))[0]
    truncate(servers.bootstrap, log.topic, 4)
    with pytest.raises(TopicMismatch, match=r"were deleted while they were read .* load the frame again"):
        list(reader(log).read(planned))


def test_a_partition_that_goes_silent_is_an_error(new_log: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "STALL_S_MAX", 2.0)
    log = new_log()
    log.fill(messages(Scribe("writer"), 2))
    with (
        Topic(parse(log.options())) as topic,
        pytest.raises(KafkaUnavailable, match=r"no record of partition 0 of topic .* could be read at offset 2"),
    ):
        list(topic.chunks(0, 0, 5))


def test_bounds_are_first_offset_and_end(new_log: NewLog) -> None:
    log = new_log(2)
    log.fill(messages(Scribe("writer"), 3), partition=1)
    with Topic(parse(log.options())) as topic:
        assert topic.bounds([0, 1]) == {0: Bounds(0, 0), 1: Bounds(0, 3)}


@pytest.mark.parametrize("passing", [KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_one_partition_whose_leader_is_being_elected_is_asked_again(passing: int) -> None:
    class Electing:
        def __init__(self) -> None:
            self.errors = [KafkaError(passing), None, None]

        def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
            assert timeout > 0
            first, *others = asked
            error = self.errors.pop(0)
            return [
                SimpleNamespace(partition=first.partition, offset=-1 if error else 7, error=error),
                *(SimpleNamespace(partition=one.partition, offset=7, error=None) for one in others),
            ]

    with Topic(parse({"bootstrap": "one:9092", "topic": "orders"})) as topic:
        topic._consumer, consumer = cast("Consumer", Electing()), topic._consumer
        assert topic.bounds([0, 1]) == {0: Bounds(7, 7), 1: Bounds(7, 7)}
        topic._consumer = consumer


def test_columns_of_other_names_or_types_are_refused() -> None:
    settings = parse({"bootstrap": "one:9092", "topic": "orders"})
    with pytest.raises(InvalidSettings, match="has no column 'value'; it has conversation, handle, conversation_group"):
        MessagesReader(settings, StructType([StructField("value", StringType())]))
    with pytest.raises(InvalidSettings, match="column 'counter' has the type bigint, not int"):
        MessagesReader(settings, StructType([StructField("counter", IntegerType())]))


def test_the_begin_of_a_conversation_is_read(new_log: NewLog) -> None:
    log, scribe = new_log(), Scribe("writer")
    block: Begin = begin_block()
    log.write(scribe.first(ORDERS, CONVERSATION, block, "first"))
    log.write(scribe.message(ORDERS, CONVERSATION, suffix=Suffix("second", home=block.home)))
    schema = schema_of("message_type", "kind")
    kind = Kind.MESSAGE.name
    assert [tuple(row.values()) for row in read(reader(log, schema))] == [("first", kind), ("second", kind)]


def test_rows_of_a_micro_batch_mean_nothing_to_a_batch(new_log: NewLog) -> None:
    with pytest.raises(InvalidSettings, match="'maxRows' is for streams; remove it, and use `limit`"):
        reader(new_log(), JUDGED, include="all", maxRows="3")
    for option, value in {"failOnDataLoss": "true", "stateFolder": "/tmp/states"}.items():
        with pytest.raises(InvalidSettings, match=f"'{option}' is for streams; remove it"):
            reader(new_log(), JUDGED, **{option: value})


def test_a_start_behind_the_end_is_refused(new_log: NewLog) -> None:
    log = new_log()
    for number in range(3):
        log.write(Scribe(f"writer {number}").message(ORDERS, CONVERSATION))
    with pytest.raises(InvalidSettings, match="partition 0: the start offset 2 is after the end offset 1"):
        ranges(reader(log, startingOffsets='{"0": 2}', endingOffsets='{"0": 1}'))


@pytest.mark.parametrize("ending", [{}, {"endingTimestamp": "2000"}], ids=["latest", "timestamp"])
def test_a_time_after_all_records_is_the_planned_end_also_when_records_come_meanwhile(ending: dict[str, str]) -> None:
    made = MessagesReader(
        parse({"bootstrap": "one:9092", "topic": "orders", "startingTimestamp": "1000", **ending}), COUNTERS
    )
    growing = cast("Topic", SimpleNamespace(since=lambda times_ms: dict.fromkeys(times_ms, 5)))
    (found,) = made._ranges(growing, {0: Bounds(0, 3)}, None)
    assert (found.first, found.end) == (3, 3)


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
def test_groups_of_a_bare_topic_are_refused_in_the_driver(streaming: bool) -> None:
    for include, name in (("accepted,groups", "conversation_group"), ("accepted", "Conversation_Group")):
        source = KonverseDataSource({"bootstrap": "127.0.0.1:1", "topic": "orders", "include": include})
        schema = StructType([StructField(name, BinaryType())])
        with pytest.raises(InvalidSettings, match=r"column 'conversation_group' needs a queue; give 'queue'"):
            source.streamReader(schema) if streaming else source.reader(schema)


@pytest.mark.parametrize("mode", ["messages", "journal", "conversations", "returned"])
def test_a_schema_without_columns_is_refused_in_the_driver(mode: str) -> None:
    source = KonverseDataSource({"bootstrap": "127.0.0.1:1", "queue": "Orders", "mode": mode})
    with pytest.raises(InvalidSettings, match=r"the schema has no column; name some of "):
        source.reader(StructType([]))
    if mode in ("messages", "journal"):
        with pytest.raises(InvalidSettings, match=r"the schema has no column; name some of "):
            source.streamReader(StructType([]))
