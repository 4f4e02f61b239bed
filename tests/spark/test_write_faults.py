"""Received rows when tasks run twice or die, drivers die and compete, and Kafka does not answer."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.topics import topics_of
from konverse.dialog.batch import driver as batch_driver
from konverse.dialog.batch import task as batch_task
from konverse.schemas.errors import (
    BadInput,
    InvalidSettings,
    KafkaUnavailable,
    OutcomeUnknown,
    TopicMismatch,
    TransactionTooLarge,
)
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.limits import BATCH_RECORDS_MAX, BODY_BYTES_MAX, KEY_BYTES_MAX
from konverse.spark.connection.case_rule import CASE_SENSITIVE
from konverse.spark.connection.clients import kafka_of
from konverse.spark.write import sink
from konverse.spark.write.decision import _FOLLOWINGS, BatchDecision
from konverse.spark.write.delivery import Delivery
from konverse.spark.write.sink import Written
from tests.kit.builders import address_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, drain, queue_of, receive
from tests.kit.topics import create, delete
from tests.spark.executions import (
    POINTS,
    Context,
    batch_writer,
    batches_of,
    execute,
    killed,
    run,
    stream_writer,
)
from tests.spark.test_write import by_conversation

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark writes"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("transmitting"),
]

FEW = [("a", b"1"), ("b", b"2"), ("a", b"3")]


def numbered(text: str, count: int = 3_000) -> list[tuple[str, bytes]]:
    return [(f"key {number % 7}", b"%s %d" % (text.encode(), number)) for number in range(count)]


def check_received(shop: Broker, *wanted: list[tuple[str, bytes]]) -> None:
    """Check that exactly these rows are received, those of a key in this order."""
    rows = [row for some in wanted for row in some]
    keys = sorted({key for key, _ in rows})
    got = by_conversation(receive(shop, "Orders", len(rows)))
    assert sorted(got.values()) == sorted([body for mine, body in rows if mine == key] for key in keys)
    assert drain(shop, "Orders") == []


def test_of_a_task_that_runs_twice_with_other_rows_one_execution_counts(
    servers: Servers, shop: Broker, database: str
) -> None:
    writer = batch_writer(servers.bootstrap, database)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(execute, writer, numbered(text)) for text in ("first", "second"))
    zombie = second.result()
    assert zombie.report.attempt != first.result().report.attempt
    writer.commit([first.result()])
    execute(writer, numbered("late"))
    check_received(shop, numbered("first"))


@pytest.mark.parametrize("point", POINTS)
def test_a_task_that_is_killed_is_executed_again(
    servers: Servers, shop: Broker, database: str, tmp_path: Path, point: str
) -> None:
    writer = batch_writer(servers.bootstrap, database)
    killed(tmp_path, point, writer, numbered("killed"))
    run(writer, numbered("again"))
    check_received(shop, numbered("again"))


def test_a_driver_that_is_killed_before_its_batch_has_written_nothing(
    servers: Servers, shop: Broker, database: str
) -> None:
    execute(batch_writer(servers.bootstrap, database, query="q", batch="0"), numbered("killed"))
    run(batch_writer(servers.bootstrap, database, query="q", batch="0"), numbered("again", 500), FEW)
    check_received(shop, numbered("again", 500), FEW)


def test_a_driver_killed_after_its_batch_has_written_all_rows_and_its_successor_writes_none(
    servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    writer = batch_writer(servers.bootstrap, database, query="q", batch="0")
    killed(tmp_path, "commit", writer, [execute(writer, numbered("killed")), execute(writer, FEW, Context(1))])
    run(batch_writer(servers.bootstrap, database, query="q", batch="0"), numbered("again"))
    check_received(shop, numbered("killed"), FEW)


def test_a_batch_that_was_written_is_left_alone_and_one_below_it_is_an_error(
    servers: Servers, shop: Broker, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        run(batch_writer(servers.bootstrap, database, query="q", batch="5"), FEW)
    (said,) = [record for record in caplog.records if "was written before" in record.message]
    assert (said.levelname, said.args) == ("WARNING", (5, "q"))
    assert "not received. If they are new rows, as those of a stream with a new checkpoint are, give" in said.message
    with pytest.raises(InvalidSettings, match=r"'batch' is 3, and batch 5 of query 'q' was written before: .* give 6"):
        run(batch_writer(servers.bootstrap, database, query="q", batch="3"), numbered("below"))
    run(batch_writer(servers.bootstrap, database, query="q", batch="5", to_services=ORDER_SERVICE), numbered("other"))
    check_received(shop, FEW, numbered("other"))


@pytest.mark.parametrize("query", ["q", "5c9e9a44-5f4b-4f0e-9c53-0a3f2a7f6f11"])
def test_a_batch_of_a_stream_counts_once_for_each_checkpoint(
    servers: Servers, shop: Broker, database: str, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    """A new checkpoint numbers its micro-batches from 0 again; its rows are different ones."""
    caplog.set_level("INFO", "konverse.spark")
    first, second = ("c1f09de7-5e50-4cb1-9bcf-1c1fd5b46b0a", "0a55c6f6-9c53-4d2f-8a63-4d2d14a3a001")
    given = {"query": query, "batch": "0"}
    run(batch_writer(servers.bootstrap, database, **given), numbered("by hand", 10))
    run(batch_writer(servers.bootstrap, database, **given), numbered("first", 10), stream=first)
    run(batch_writer(servers.bootstrap, database, **given | {"batch": "7"}), numbered("later", 10), stream=first)
    run(batch_writer(servers.bootstrap, database, **given), numbered("second", 10), stream=second)
    run(batch_writer(servers.bootstrap, database, **given), numbered("again", 10), stream=second)
    (said,) = [record for record in caplog.records if "was written before" in record.message]
    assert (said.levelname, said.args) == ("WARNING", (0, query))
    got = [body for bodies in by_conversation(receive(shop, "Orders", 40)).values() for body in bodies]
    wanted = [body for text in ("by hand", "first", "later", "second") for _, body in numbered(text, 10)]
    assert sorted(got) == sorted(wanted)
    assert drain(shop, "Orders") == []


def test_a_column_that_differs_by_case_is_another_one_where_the_session_says_so(
    servers: Servers, shop: Broker, database: str
) -> None:
    writer = batch_writer(servers.bootstrap, database)
    capitals = [batch.rename_columns([name.upper() for name in batch.schema.names]) for batch in batches_of(FEW)]
    for others in ({}, {CASE_SENSITIVE: "false"}):
        with patch.object(sink, "TaskContext") as contexts:
            contexts.get.return_value = Context(0, others=others)
            writer.commit([writer.write(iter(capitals))])
        assert len(receive(shop, "Orders", len(FEW))) == len(FEW)
        writer = batch_writer(servers.bootstrap, database)
    with patch.object(sink, "TaskContext") as contexts:
        contexts.get.return_value = Context(0, others={CASE_SENSITIVE: "true"})
        with pytest.raises(InvalidSettings, match=r"column 'TO_SERVICE', which is not 'to_service' as spark\.sql\."):
            writer.write(iter(capitals))


@pytest.mark.parametrize("stream", [None, "c1f09de7-5e50-4cb1-9bcf-1c1fd5b46b0a"], ids=["a write", "foreachBatch"])
def test_an_undetermined_batch_decision_raises_an_error_that_explains_how_to_repeat_the_batch(
    servers: Servers, shop: Broker, database: str, stream: str | None
) -> None:
    """The repetition is the same query where the error was raised, inside of `foreachBatch` too."""
    writer = batch_writer(servers.bootstrap, database, query="q", batch="4")
    written = execute(writer, FEW, Context(0, stream))
    query = written.report.task.query
    words = rf"batch 4 .* \(silence\)\. .* 'query' = 'id:{query.hex()}' and 'batch' = '4'"
    with (
        BatchDecision(kafka_of(writer._settings), written.plan, query) as deciding,
        patch.object(deciding._following, "catch_up", side_effect=KafkaUnavailable("silence")),
        pytest.raises(OutcomeUnknown, match=words),
    ):
        deciding.decide(4, [written.report], timeout_s=0.1)
    for options in ({"query": f"id:{query.hex()}"}, {"query": "q"}):
        run(batch_writer(servers.bootstrap, database, batch="4", **options), FEW, stream=stream)
    check_received(shop, FEW)


def test_the_next_batch_reads_on_in_the_journal_where_the_one_before_it_stopped(
    servers: Servers, shop: Broker, database: str
) -> None:
    kept = []
    for number in range(2):
        writer = stream_writer(servers.bootstrap, database, f"/{database}")
        writer.commit([execute(writer, FEW, Context(0, "q", number))], number)
        kept.append([*_FOLLOWINGS._clients.values()][-1])
    assert kept[0] is kept[1]
    check_received(shop, FEW, FEW)


def test_of_two_drivers_at_once_one_writes_the_batch(servers: Servers, shop: Broker, database: str) -> None:
    checkpoint = f"/{database}"
    writers = [stream_writer(servers.bootstrap, database, checkpoint) for _ in range(2)]
    bodies = [numbered("one"), numbered("two")]
    task = Context(0, "q", 7)
    written = [execute(writer, rows, task) for writer, rows in zip(writers, bodies, strict=True)]
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(writer.commit, [one], 7) for writer, one in zip(writers, written, strict=True)]:
            future.result()
    got = by_conversation(receive(shop, "Orders", 3_000))
    assert {body.split()[0] for bodies in got.values() for body in bodies} in ({b"one"}, {b"two"})
    assert drain(shop, "Orders") == []


def test_a_driver_that_was_stopped_decides_nothing_when_its_successor_is_far_ahead(
    servers: Servers, shop: Broker, database: str
) -> None:
    checkpoint = f"/{database}"
    stopped = stream_writer(servers.bootstrap, database, checkpoint)
    late = execute(stopped, numbered("late"), Context(0, "q", 1))
    wanted = []
    for batch in (1, 2):
        wanted.append(numbered(f"batch {batch}", 100))
        writer = stream_writer(servers.bootstrap, database, checkpoint)
        writer.commit([execute(writer, wanted[-1], Context(0, "q", batch))], batch)
    with pytest.raises(InvalidSettings, match=r"has written micro-batch 2, and its checkpoint .* is at 1: it was"):
        stopped.commit([late], 1)
    check_received(shop, *wanted)


def test_one_query_id_names_the_same_query_in_all_databases_and_a_name_another_one_in_each(
    servers: Servers, shop: Broker, database: str
) -> None:
    """A UUID is a name like any other."""
    names = ["q", "5c9e9a44-5f4b-4f0e-9c53-0a3f2a7f6f11", "5c9e9a445f4b4f0e9c530a3f2a7f6f11"]
    known = [
        batch_writer(servers.bootstrap, database, query=name, batch="0", **more)._query
        for name in names
        for more in ({}, {"to_services": ORDER_SERVICE})
    ]
    assert len({*known}) == 2 * len(names)
    given = {"query": f"id:{known[0].hex()}", "batch": "0"}
    assert batch_writer(servers.bootstrap, database, **given)._query == known[0]
    with pytest.raises(InvalidSettings, match="option 'query' is 'id:mine': after 'id:' come the 32 digits"):
        batch_writer(servers.bootstrap, database, query="id:mine", batch="0")


@pytest.mark.parametrize(
    ("column", "row", "fault"),
    [
        ("message_type", 1, rb"b'//sales/Order\xff' is not UTF-8"),
        ("to_service", 2, rb"b'\xc3' is not UTF-8"),
        ("headers", 1, rb"the key b'\xfe' of a header is not UTF-8"),
    ],
)
def test_names_that_are_not_utf8_are_refused_with_row_and_column(
    shop: Broker, database: str, column: str, row: int, fault: bytes
) -> None:
    """Spark keeps any bytes in a string, as those of `CAST(value AS STRING)`."""
    header = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    columns = {
        "key": pa.array([b"k"] * 3),
        "to_service": pa.array([ORDER_SERVICE.encode()] * 3),
        "message_type": pa.array([ORDER.encode()] * 3),
        "body": pa.array([b"body"] * 3),
        "headers": pa.array([None] * 3, header),
    }
    bad = {"message_type": b"//sales/Order\xff", "to_service": b"\xc3"}
    values: list[object] = columns[column].to_pylist()
    values[row] = bad.get(column, [{"key": b"\xfe", "value": b""}])
    columns[column] = pa.array(values, columns[column].type)
    text = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    made = pa.RecordBatch.from_pydict(
        {
            name: made.view(text) if name == "headers" else made.view(pa.string()) if name != "body" else made
            for name, made in columns.items()
        }
    )
    writer = batch_writer(shop.settings.bootstrap, database)
    with patch.object(sink, "TaskContext") as contexts:
        contexts.get.return_value = Context(0)
        with pytest.raises(BadInput, match=f"row {row}.*{column}.*{re.escape(fault.decode())}"):
            writer.write(iter([made]))


def test_a_write_that_failed_leaves_no_rows_that_wait(servers: Servers, shop: Broker, database: str) -> None:
    writer = batch_writer(servers.bootstrap, database)
    execute(writer, numbered("failed"))
    writer.abort([None])
    run(batch_writer(servers.bootstrap, database), FEW)
    check_received(shop, FEW)
    with shop.reader("Orders", timeout=5) as reader:
        reader.wait_for_partitions(2)
        deadline = time.monotonic() + 30
        while any(owner.fold.state.pending.rows for owner in reader.owners) and time.monotonic() < deadline:
            reader.keep_up()
        assert [owner.fold.state.pending.rows for owner in reader.owners] == [0, 0]


def test_a_full_client_is_waited_for(servers: Servers, shop: Broker, database: str) -> None:
    writer = batch_writer(servers.bootstrap, database, **{"kafka.queue.buffering.max.messages": "10"})
    run(writer, numbered("slow", 300))
    check_received(shop, numbered("slow", 300))


def test_a_batch_that_is_too_large_says_so(
    servers: Servers, shop: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batch_driver, batch_task):
        monkeypatch.setattr(module, "BATCH_RECORDS_MAX", 1_000)
    writer = batch_writer(servers.bootstrap, database)
    messages: list[Any] = [execute(writer, [("one", b"")] * 501, Context(number)) for number in range(2)]
    with pytest.raises(TransactionTooLarge, match=r"more than 1000 rows .* write smaller batches"):
        writer.commit(messages)
    with pytest.raises(TransactionTooLarge, match=r"more than 1000 rows .* write smaller batches"):
        execute(writer, [("one", b"")] * 1_001)
    assert drain(shop, "Orders") == []


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_batch_as_large_as_one_may_be_is_received(servers: Servers, shop: Broker, database: str) -> None:
    half = [("one", b"%d" % number) for number in range(BATCH_RECORDS_MAX // 2)]
    run(batch_writer(servers.bootstrap, database), half, half)
    received: list[bytes] = []
    with shop.reader("Orders", timeout=60) as reader:
        for transaction in reader:
            with transaction:
                received += [message.body for message in transaction]
            if len(received) >= BATCH_RECORDS_MAX:
                break
    assert received == [body for _, body in half * 2]


def test_an_acknowledgement_out_of_order_is_none(servers: Servers, shop: Broker, database: str) -> None:
    delivery = Delivery(batch_writer(servers.bootstrap, database)._settings)

    def acknowledge(partition: int, offset: int | None) -> None:
        message: Any = SimpleNamespace(offset=lambda: offset)
        delivery.heard(address_of("t", partition))(None, message)

    acknowledge(0, 5)
    acknowledge(1, 3)
    acknowledge(0, 9)
    assert delivery.acknowledged == 3
    acknowledge(0, 8)
    assert delivery.acknowledged == 3
    with pytest.raises(KafkaUnavailable, match="at offset 8 after one at 9: it is not certain that all rows"):
        delivery.finish()


def test_the_report_of_a_task_reaches_the_driver(servers: Servers, shop: Broker, database: str) -> None:
    written = execute(batch_writer(servers.bootstrap, database), FEW)
    assert isinstance(written, Written)
    assert {
        begins: sum(n for (_, kind), (n, _) in written.report.counts.items() if kind is begins)
        for begins in (True, False)
    } == {True: 2, False: 3}


def make_again(servers: Servers, shop: Broker, part: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    data = queue_of(shop, "Orders").topic
    topic = {"data": data, "journal": journal_topic(data)}[part]
    delete(admin, topic)
    create(admin, topic, 2, dict(topics_of(data)[topic]))
    return topic


@pytest.mark.parametrize("part", ["data", "journal"])
def test_a_write_to_a_topic_that_was_made_again_does_not_begin(
    servers: Servers, shop: Broker, database: str, part: str
) -> None:
    topic = make_again(servers, shop, part)
    with pytest.raises(TopicMismatch, match=f"topic {topic} was deleted and created again"):
        batch_writer(servers.bootstrap, database)


def test_a_batch_whose_topic_was_made_again_meanwhile_is_not_decided(
    servers: Servers, shop: Broker, database: str
) -> None:
    writer = batch_writer(servers.bootstrap, database)
    written = execute(writer, FEW)
    topic = make_again(servers, shop, "data")
    with (
        patch.object(BatchDecision, "decide", side_effect=AssertionError("it was decided")),
        pytest.raises(TopicMismatch, match=f"topic {topic} was deleted and created again"),
    ):
        writer.commit([written])


def test_a_write_reports_no_success_when_its_topic_is_recreated_during_the_decision(
    servers: Servers, shop: Broker, database: str
) -> None:
    writer = batch_writer(servers.bootstrap, database)
    written = execute(writer, FEW)
    decide = BatchDecision.decide

    def decide_late(deciding: BatchDecision, *given: Any) -> bool:
        ours = decide(deciding, *given)
        make_again(servers, shop, "data")
        return ours

    with (
        patch.object(BatchDecision, "decide", decide_late),
        pytest.raises(TopicMismatch, match="was deleted and created again"),
    ):
        writer.commit([written])


@pytest.mark.parametrize("options", [{}, {"pool": "spark"}], ids=["dialogs of its own", "pool"])
def test_bodies_of_the_largest_size_are_written_and_received_whole(
    servers: Servers, shop: Broker, database: str, options: dict[str, str]
) -> None:
    key, largest = "k" * KEY_BYTES_MAX, bytes(BODY_BYTES_MAX)
    bodies = [bytes([number]) + largest[1:] for number in range(3)]
    run(batch_writer(servers.bootstrap, database, **options), [(key, body) for body in bodies])
    assert [message.body == body for message, body in zip(receive(shop, "Orders", 3), bodies, strict=True)] == [
        True
    ] * 3
