"""Kinds and results of classifiers. The error of a wrong one names the column, the row or the expression."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from konverse.dialog.transaction.received import Message
from konverse.routing.decisions import Unclassifiable
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute, InvalidSettings
from konverse.spark.receive.answers import MESSAGES
from konverse.spark.receive.mapping import by_frame
from konverse.spark.routing.routing import _checked, by_expression, read

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

SERVICES = pa.schema([("receipt", pa.int64()), ("to_service", pa.string())])


class Conversation:
    """A conversation whose first message was classified."""

    id = UUID(int=5)


def messages(count: int) -> list[Message]:
    dialog: Any = Conversation()
    scope: Any = None
    return [Message("order", b"", 0, dialog, 0, 0, scope) for _ in range(count)]


def batch(*bodies: bytes) -> pa.RecordBatch:
    """Messages as a classifier gets them, from receipt 7 on."""
    rows = [{"receipt": 7 + place, "body": body, "message_type": "order"} for place, body in enumerate(bodies)]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("no such expression(", "'no such expression(' is not an expression over the columns of a message (receipt"),
        ("region", "`region`"),
        ("length(body)", "'length(body)' gives int, but the name of a service is a string"),
        ("body", "'body' gives binary"),
    ],
)
def test_an_expression_is_looked_at_before_anything_is_received(
    spark: SparkSession, expression: str, says: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        by_expression(spark, expression)
    assert says in str(refused.value)


@pytest.mark.parametrize("expression", ["NULL", "CAST(body AS STRING)", "upper(message_type)"])
def test_an_expression_gives_a_text_or_null(spark: SparkSession, expression: str) -> None:
    rows: Any = by_frame(spark, by_expression(spark, expression), _checked)(batch(b"a", b"b"))
    assert rows.column("receipt").to_pylist() == [7, 8]
    assert len(read(rows, 7, messages(2))) == 2


@pytest.mark.parametrize(
    ("classifier", "says"),
    [
        (lambda frame: None, "must return a DataFrame, not NoneType"),
        (lambda frame: frame.select("body"), "no column 'receipt'"),
        (lambda frame: frame, "no column 'to_service'"),
        (lambda frame: frame.withColumn("to_service", f.col("region")), "cannot be run"),
        (
            lambda frame: frame.join(frame.selectExpr("receipt", "'x' AS to_service")),
            "function returned cannot be run: [AMB",
        ),
        (lambda frame: frame.withColumn("to_service", f.length("body")), "'to_service' came back as int32"),
        (lambda frame: frame.selectExpr("receipt + 99 AS receipt", "'x' AS to_service"), "receipt 106"),
        (lambda frame: frame.selectExpr("CAST(NULL AS BIGINT) AS receipt", "'x' AS to_service"), "receipt None"),
    ],
)
def test_a_frame_of_a_wrong_shape_is_refused(spark: SparkSession, classifier: Any, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(by_frame(spark, classifier, _checked)(batch(b"a")), 7, messages(1))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([{"receipt": 7}], "must return an Arrow batch or table, not list"),
        (pa.table({"receipt": [7]}), "no column 'to_service'"),
        (pa.table({"receipt": [7], "to_service": [b"x"]}), "'to_service' came back as binary"),
        (pa.table([[7], ["a"], ["b"]], ["receipt", "to_service", "to_service"]), "'to_service' came back more than"),
        (pa.table([[7], [7], ["a"]], ["receipt", "receipt", "to_service"]), "'receipt' came back more than once"),
    ],
)
def test_arrow_of_a_wrong_shape_is_refused(answer: Any, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(answer, 7, messages(1))
    assert says in str(refused.value)


def test_each_message_has_a_decision_of_its_own() -> None:
    rows = [(10, "//b"), (7, "//a"), (8, None), (11, "//c"), (11, "//c"), (12, "")]
    table = pa.Table.from_pylist([{"receipt": at, "to_service": service} for at, service in rows], schema=SERVICES)
    *clear, twice, empty = read(table, 7, messages(6))
    assert clear == [Target("//a"), Unclassifiable(), Unclassifiable(), Target("//b")], "no row: unclassifiable"
    assert isinstance(twice, InvalidRoute)
    assert "answered 2 times for receipt 11" in str(twice)
    assert "'//c', '//c'" in str(twice)
    assert isinstance(empty, InvalidRoute)
    assert str(UUID(int=5)) in str(empty)


def test_an_answer_may_have_a_reason_and_a_broker_instance() -> None:
    table = pa.table(
        {
            "receipt": [0, 1],
            "to_service": pa.array(["//a", None], pa.large_string()),
            "broker_instance": ["an instance", None],
            "reason": [None, "nobody knows"],
            "more": [1, 2],
        }
    )
    assert read(table, 0, messages(2)) == [Target("//a", "an instance"), Unclassifiable("nobody knows")]
