"""Spark reads what the product writes, as docs/spark.md describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.schemas.catalog.objects import Queue
from konverse.spark.connection.settings import OPTIONS
from konverse.spark.log.columns import COLUMNS
from konverse.spark.log.decisions import COLUMNS as DECISIONS
from konverse.spark.log.decisions import JournalVerdict
from konverse.spark.log.ingest import RecordVerdict
from konverse.spark.read.conversations import COLUMNS as SIDES
from konverse.spark.read.returned import COLUMNS as RETURNED
from konverse.spark.write.checks import NEEDED, OPTIONAL
from konverse.spark.write.settings import OPTIONS as WRITER_OPTIONS
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    begin,
    queue_of,
    receive,
    send_orders,
)
from tests.spark.logs import rows
from tests.spark.test_write import by_conversation

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

INVOICE: Final = "//sales/Invoice"
PAGE: Final = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def code(language: str, page: str = PAGE) -> str:
    """The code blocks of that language in a page's text."""
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def placed(text: str, servers: Servers, database: str) -> str:
    """The page's code, adapted to the servers of these tests."""
    assert "localhost:9092" in text
    return re.sub(r"(?<=['\"])sales(?=['\"])", database, text.replace("localhost:9092", servers.bootstrap))


def test_orders_that_were_sent_are_read_in_order(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    sent = send_orders(shop, dialogs=3, messages=30)
    queue: Queue = queue_of(shop, "Orders")
    frame = (
        spark.read.format("konverse")
        .options(bootstrap=f"kafka://{servers.bootstrap}", database=database, queue="Orders", include="all")
        .option("incarnation", queue.incarnation.hex())
        .load()
    )
    assert {row["verdict"] for row in frame.select("verdict").distinct().collect()} == {"accepted"}
    found: dict[bytes, list[bytes]] = {}
    for conversation, sequence, body in rows(frame, "conversation", "sequence", "body"):
        bodies = found.setdefault(conversation, [])
        assert sequence == len(bodies)
        bodies.append(body)
    assert found == sent


def shown_tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of each table that Spark has printed, as text."""
    rule = r"^\+[-+]+\+\n"
    for header, found in re.findall(rf"{rule}\|(.*)\|\n{rule}((?:\|.*\|\n)*){rule[:-2]}", text, re.MULTILINE):
        yield cells(header), [cells(row[1:-1]) for row in found.splitlines()]


def cells(line: str) -> list[str]:
    """The cells between the bars."""
    return [cell.strip() for cell in line.split("|")]


def shown_rows(text: str, *columns: str) -> list[list[str]]:
    """Only these columns of the one printed table that has them."""
    (found,) = [table for table in shown_tables(text) if {*columns} <= {*table[0]}]
    places = [found[0].index(name) for name in columns]
    return sorted([row[place] for place in places] for row in found[1])


def bill(shop: Broker, *amounts: int) -> None:
    """Add invoices to the contract, and send one conversation of invoices."""
    invoice = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    shop.admin.create_message_type(INVOICE, "JSON_SCHEMA", schema=json.dumps(invoice))
    shop.admin.alter_service(ORDER_SERVICE, drop=[ORDERING])
    shop.admin.drop_contract(ORDERING)
    shop.admin.create_contract(ORDERING, {ORDER: "INITIATOR", INVOICE: "INITIATOR", RECEIPT: "TARGET", NOTE: "ANY"})
    shop.admin.alter_service(ORDER_SERVICE, add=[ORDERING])
    dialog = begin(shop)
    for amount in amounts:
        dialog.send(INVOICE, b'{"amount": %d}' % amount)
    shop.flush()


@pytest.mark.usefixtures("transmitting")
def test_the_examples_of_the_page_run(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bill(shop, 7, 30)
    open_regions(shop)
    send_orders(shop, dialogs=2, messages=6)
    with shop.reader("Orders", partitions=(0, 1)) as reader:
        reader.wait_for_partitions(2)  # so that there are decisions
    exec(compile(placed(code("python"), servers, database), "docs/spark.md", "exec"), {})
    shown = capsys.readouterr().out
    assert shown_rows(shown, "message_type", "count") == [[INVOICE, "2"], [ORDER, "6"]]
    ledger = ("role", "messages", "first_sequence", "last_sequence", "ended", "gaps")
    invoices, *orders = shown_rows(shown, *ledger)
    assert invoices == ["INITIATOR", "2", "0", "1", "false", "0"]
    assert orders == [["INITIATOR", "3", "0", "2", "false", "0"]] * 2
    assert shown_rows(shown, "sum(value.amount)") == [["37"]]
    assert ["CLAIM", "2"] in shown_rows(shown, "operation", "count")
    assert "Done(messages=8, replies=8, ends=0, failed=0)" in shown
    spark.sql(placed(code("sql"), servers, database))
    assert spark.table("orders").count() == 16, "what was written, too"
    spark.catalog.dropTempView("orders")
    assert "Routed(forwarded=3, followed=5," in shown
    written = by_conversation(receive(shop, "South", 8))
    assert sorted(len(bodies) for bodies in written.values()) == [2, 3, 3]


def test_a_table_without_rows_is_no_table_with_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "operation string, count int")
    frame.where("count > 2").show()
    assert shown_rows(capsys.readouterr().out, "operation") == []
    frame.show()
    assert shown_rows(capsys.readouterr().out, "count", "operation") == [["1", "a"], ["2", "b"]]


def part(heading: str) -> str:
    """The page from a heading to the next one."""
    (_, behind) = re.split(rf"^##+ {heading}$", PAGE, maxsplit=1, flags=re.MULTILINE)
    return re.split(r"^##", behind, maxsplit=1, flags=re.MULTILINE)[0]


def names(text: str) -> set[str]:
    """Words in code style."""
    return set(re.findall(r"`(\w+)`", text))


def columns_of(heading: str) -> set[str]:
    """The columns in the tables under this heading."""
    tables = re.findall(r"^\| Column \|.*\n\|[-|:]+\n((?:\|.*\n)+)", part(heading), re.MULTILINE)
    return {name for rows in tables for row in rows.splitlines() for name in names(row.split("|")[1])}


def test_the_page_names_every_option_and_column() -> None:
    assert {*OPTIONS} <= names(part("Options"))
    assert columns_of("Columns") == {*COLUMNS}
    assert {verdict.name for verdict in RecordVerdict} <= names(part("Columns"))
    assert columns_of("Journal") == {*DECISIONS}
    assert {verdict.name for verdict in JournalVerdict} <= names(part("Journal"))
    assert columns_of("Conversations") == {*SIDES}
    assert {*RETURNED} <= names(part("Rows that come back"))
    assert columns_of("Writing") == {*NEEDED, *OPTIONAL}
    assert {*WRITER_OPTIONS} <= names(part("Writing"))
