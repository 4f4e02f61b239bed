"""A frame gives the same result as a frame in memory, whatever is done with it and however often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from konverse.bridge.broker import Broker
from konverse.schemas.errors import InvalidSettings
from konverse.spark.source import KonverseDataSource
from tests.kit.builders import Scribe, identifier
from tests.kit.servers import Servers
from tests.kit.shop import DEADLINE_S, RECEIPT, sent
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS, rows

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1_800)]

PARTITIONS: Final = 3
RECORDS: Final = 4
ALL: Final = "all"
"""The choice of a frame without the option `partitions`."""
FIRST_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1_000
"""Time between two records of the log."""

Frames = Mapping[str, DataFrame]
"""The same frame by choices of the option `partitions`."""
Plan = Callable[[Frames], DataFrame]
Uses = list[tuple[Plan, str]]
"""Plans, and how each is used."""

CONVERSATIONS: Final = (identifier("one"), identifier("two"))
TYPES: Final = ("order", "note")


class Form(NamedTuple):
    """What a mode's frames have, of which plans are made."""

    columns: str
    """With their types."""
    keys: tuple[tuple[str, ...], ...]
    """Columns by which frames are joined."""
    predicates: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [column.split()[0] for column in self.columns.split(", ")]

    def plans(self) -> st.SearchStrategy[Plan]:
        def larger(plans: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
            joins = st.builds(joined, plans, plans, st.sampled_from(KINDS), st.sampled_from(self.keys))
            filters = st.builds(filtered, plans, st.sampled_from(self.predicates))
            return st.one_of(filters, st.builds(united, plans, plans), joins)

        return st.recursive(st.sampled_from(self.choices).map(base), larger, max_leaves=4)

    def uses(self) -> st.SearchStrategy[Uses]:
        return st.lists(st.tuples(self.plans(), WAYS), min_size=1, max_size=3)


KINDS: Final = ("inner", "left_semi", "left_anti", "left")
WAYS: Final = st.sampled_from(["collect", "explain before", "view", "cache"])

MESSAGES: Final = Form(
    "partition int, offset bigint, counter bigint, conversation binary, message_type string, accepted_time timestamp",
    (("offset",), ("partition", "offset"), ("conversation",), ("accepted_time",)),
    (
        *(f"partition = {number}" for number in range(PARTITIONS + 1)),
        *(f"offset {sign} {number}" for sign in (">=", "<") for number in (0, 1, 2, RECORDS)),
        *("partition in (0, 2)", "offset = 1 and partition = 1", "partition is not null", "counter = 2"),
        f"conversation = X'{CONVERSATIONS[0].hex()}'",
        f"conversation <> X'{CONVERSATIONS[0].hex()}' or offset = 0",
        *("message_type = 'note'", "message_type like 'o%'", "message_type is null", "not message_type = 'order'"),
        f"accepted_time >= timestamp_millis({FIRST_MS + 5 * STEP_MS})",
        f"accepted_time < timestamp_millis({FIRST_MS + 2 * STEP_MS}) and message_type = 'order'",
    ),
    (ALL, "0,2", "1"),
)
JOURNAL: Final = Form(
    "partition int, offset bigint, position int, operation string, epoch bigint",
    (("offset",), ("partition", "offset", "position"), ("operation",)),
    ("partition = 0", "operation = 'CLAIM'", "operation in ('SEND', 'RECEIVE')", "position > 0", "offset < 2"),
    (ALL, "1"),
)
SIDES: Final = Form(
    "conversation binary, role string, partition int, messages bigint, state string",
    (("conversation",), ("partition",), ("state",)),
    ("role = 'TARGET'", "state = 'CONVERSING'", "messages > 1", "partition = 1", "state is null or messages = 1"),
    (ALL,),
)


def base(choice: str) -> Plan:
    return lambda frames: frames[choice]


def filtered(plan: Plan, predicate: str) -> Plan:
    return lambda frames: plan(frames).where(predicate)


def united(one: Plan, other: Plan) -> Plan:
    return lambda frames: one(frames).union(other(frames))


def joined(one: Plan, other: Plan, kind: str, keys: tuple[str, ...]) -> Plan:
    def join(frames: Frames) -> DataFrame:
        left = one(frames)
        return left.join(other(frames).select(*keys).distinct(), [*keys], kind).select(*left.columns)

    return join


WHOLE: Final = base(ALL)
TWO_PARTITIONS: Final = united(filtered(WHOLE, "partition = 0"), filtered(WHOLE, "partition = 1"))
SELF_JOIN: Final = joined(
    filtered(WHOLE, "partition = 0"), filtered(WHOLE, "partition = 1 and offset > 2"), "inner", ("offset",)
)
REST: Final = joined(WHOLE, base("0,2"), "left_anti", ("partition", "offset"))
WITHOUT_CLAIMS: Final = joined(WHOLE, filtered(WHOLE, "operation = 'CLAIM'"), "left_anti", ("operation",))
TARGETS: Final = joined(WHOLE, filtered(WHOLE, "state = 'CONVERSING'"), "left_semi", ("conversation",))


class Compared(NamedTuple):
    """Frames that are read, and the same rows in memory."""

    read: dict[str, DataFrame]
    memory: dict[str, DataFrame]


def compared(
    spark: SparkSession, form: Form, read: Callable[[dict[str, str]], DataFrame], rows: Iterable[Any]
) -> Compared:
    """`read` loads a frame with options; `rows` are those of the whole."""
    whole = spark.createDataFrame([*rows], form.columns)
    options = {choice: {} if choice == ALL else {"partitions": choice} for choice in form.choices}
    chosen = {choice: whole if choice == ALL else whole.where(f"partition in ({choice})") for choice in form.choices}
    return Compared({choice: read(given).select(*form.names) for choice, given in options.items()}, chosen)


def check(spark: SparkSession, frames: Compared, uses: Uses) -> None:
    """Filters, unions, joins, temporary views, `explain` and `cache`, in turn on the same frames."""
    views = {choice: f"all_of_{number}" for number, choice in enumerate(frames.read)}
    for choice, view in views.items():
        frames.read[choice].createOrReplaceTempView(view)
    for plan, way in uses:
        of_views = {choice: spark.table(view) for choice, view in views.items()}
        made = plan(of_views if way == "view" else frames.read)
        if way == "explain before":
            made.explain()
        if way == "cache":
            made.cache()
        assert found(made) == found(plan(frames.memory))
        made.unpersist()
    assert frames.read[ALL].count() == frames.memory[ALL].count()


def found(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in frame.collect()
    )


@pytest.fixture
def messages(spark: SparkSession, new_log: NewLog) -> Compared:
    """A log, and its messages in memory."""
    log = new_log(PARTITIONS)
    expected = []
    for number in range(PARTITIONS * RECORDS):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        conversation, kind, time_ms = CONVERSATIONS[number % 2], TYPES[number % 3 // 2], FIRST_MS + number * STEP_MS
        header = Scribe(f"writer {partition}").message(ORDERS, conversation, kind, counter=offset)
        log.write(header, partition=partition, timestamp=time_ms)
        accepted_time = datetime.fromtimestamp(time_ms / 1_000, UTC)
        expected.append((partition, offset, offset, conversation, kind, accepted_time))
    return compared(spark, MESSAGES, lambda options: log.read(spark, **options), expected)


def of_queue(spark: SparkSession, servers: Servers, shop: Broker, form: Form, mode: str) -> Compared:
    """A mode's frame of a queue with messages, and in memory the rows that its tasks give without Spark."""
    for bodies in ((b"one", b"two"), (b"three",)):
        sent(shop, *bodies)
    with shop.reader("Orders", timeout=DEADLINE_S, max_messages=2) as reader:
        with next(iter(reader)) as transaction:
            transaction.send(next(iter(transaction)).dialog, RECEIPT)
        reader.settle()
    given = {"bootstrap": servers.bootstrap, "database": shop.database, "queue": "Orders", "mode": mode}
    schema = spark.createDataFrame([], form.columns).schema
    reader_of = KonverseDataSource(given).reader(schema)
    batches = [cast("pa.RecordBatch", one) for part in reader_of.partitions() for one in reader_of.read(part)]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return compared(spark, form, lambda options: spark.read.format("konverse").options(**given, **options).load(), rows)


def tries(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@example([(filtered(WHOLE, "partition = 1"), "explain before"), (WHOLE, "collect")])
@example(
    [(filtered(WHOLE, "offset = 1"), "view"), (WHOLE, "view"), (TWO_PARTITIONS, "collect"), (SELF_JOIN, "collect")]
)
@example([(REST, "collect"), (united(base("0,2"), base("1")), "view")])
@given(MESSAGES.uses())
@tries(12)
def test_uses_of_one_frame_know_nothing_of_each_other(spark: SparkSession, messages: Compared, uses: Uses) -> None:
    check(spark, messages, uses)


@pytest.fixture
def decisions(spark: SparkSession, servers: Servers, shop: Broker) -> Compared:
    return of_queue(spark, servers, shop, JOURNAL, "journal")


@pytest.fixture
def sides(spark: SparkSession, servers: Servers, shop: Broker) -> Compared:
    return of_queue(spark, servers, shop, SIDES, "conversations")


@example([(WITHOUT_CLAIMS, "collect"), (united(base("1"), filtered(WHOLE, "partition = 0")), "view")])
@given(JOURNAL.uses())
@tries(1)
def test_uses_of_one_journal_know_nothing_of_each_other(spark: SparkSession, decisions: Compared, uses: Uses) -> None:
    check(spark, decisions, uses)


@example([(TARGETS, "collect"), (filtered(WHOLE, "messages > 1"), "cache")])
@given(SIDES.uses())
@tries(1)
def test_uses_of_one_frame_of_conversations_know_nothing_of_each_other(
    spark: SparkSession, sides: Compared, uses: Uses
) -> None:
    check(spark, sides, uses)


@pytest.mark.nightly
@given(MESSAGES.uses())
@tries(150)
def test_many_uses_of_one_frame_know_nothing_of_each_other(spark: SparkSession, messages: Compared, uses: Uses) -> None:
    check(spark, messages, uses)


@pytest.mark.nightly
@given(JOURNAL.uses())
@tries(60)
def test_many_uses_of_one_journal_know_nothing_of_each_other(
    spark: SparkSession, decisions: Compared, uses: Uses
) -> None:
    check(spark, decisions, uses)


@pytest.mark.nightly
@given(SIDES.uses())
@tries(60)
def test_many_uses_of_one_frame_of_conversations_know_nothing_of_each_other(
    spark: SparkSession, sides: Compared, uses: Uses
) -> None:
    check(spark, sides, uses)


def test_options_of_a_write_are_refused_in_words_where_something_is_read(spark: SparkSession, new_log: NewLog) -> None:
    log = new_log()
    given = {**log.options(), "from_service": "//sales/ShopService"}
    with pytest.raises(InvalidSettings, match="'from_service' belongs to a write"):
        KonverseDataSource(given).schema()
    with pytest.raises(PySparkException, match="'from_service' belongs to a write"):
        spark.read.format("konverse").options(**given).load().count()
    written = ", ".join(f"{name} '{value}'" for name, value in given.items())
    with pytest.raises(PySparkException, match="'from_service' belongs to a write"):
        spark.sql(f"CREATE TEMPORARY VIEW to_be_written USING konverse OPTIONS ({written})")


@pytest.mark.parametrize("mode", ["messages", "journal", "conversations", "returned"])
@pytest.mark.parametrize("ask", ["schema", "reader", "streamReader"])
def test_options_of_a_write_are_refused_in_words_by_a_read_of_each_mode(mode: str, ask: str) -> None:
    given = {"bootstrap": "localhost:9092", "queue": "Orders", "mode": mode, "from_service": "//sales/ShopService"}
    arguments = () if ask == "schema" else (StructType(),)
    with pytest.raises(InvalidSettings, match=r"'from_service' belongs to a write, .* write with frame\.write\."):
        getattr(KonverseDataSource(given), ask)(*arguments)


def test_a_stream_refuses_options_of_a_write_when_it_is_loaded(spark: SparkSession, new_log: NewLog) -> None:
    given = {**new_log().options(), "from_service": "//sales/ShopService"}
    with pytest.raises(PySparkException, match="'from_service' belongs to a write"):
        spark.readStream.format("konverse").options(**given).load()


def test_inserting_into_a_view_is_refused_with_the_remedy_and_writes_nothing(
    spark: SparkSession, new_log: NewLog
) -> None:
    log = new_log()
    options = ", ".join(f"{name} '{value}'" for name, value in log.options().items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW only_read USING konverse OPTIONS ({options})")
    with pytest.raises(PySparkException) as refused:
        spark.sql("INSERT INTO only_read SELECT * FROM only_read")
    told = str(refused.value)
    assert "InvalidSettings" in told
    assert f"option 'topic' (here '{log.options()['topic']}') belongs to a read" in told
    assert "INSERT INTO" in told
    assert "write with df.write.format('konverse') and the option 'from_service'" in told
    assert rows(log.read(spark), "offset") == []


def test_a_table_is_refused_with_the_remedy_as_spark_does_not_keep_its_options(
    spark: SparkSession, new_log: NewLog
) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in new_log().options().items())
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE a_table_of_konverse USING konverse OPTIONS ({options})")
    assert not spark.catalog.tableExists("a_table_of_konverse")
