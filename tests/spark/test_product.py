"""What the product writes is what Spark reads, by the words of docs/spark.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.schemas.catalog import Queue
from konverse.spark.columns import COLUMNS
from konverse.spark.decisions import COLUMNS as DECISIONS
from konverse.spark.decisions import Verdict
from konverse.spark.settings import OPTIONS
from konverse.spark.write_checks import NEEDED, OPTIONAL
from konverse.spark.write_settings import OPTIONS as WRITER_OPTIONS
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import queue_of, receive, send_orders
from tests.spark.logs import rows
from tests.spark.test_write import by_conversation

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

PAGE: Final = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def code(language: str) -> str:
    """The page's blocks of that language."""
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def placed(text: str, servers: Servers, database: str) -> str:
    """The page's code for the servers of these tests."""
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


@pytest.mark.usefixtures("transmitting")
def test_the_examples_of_the_page_run(
    spark: SparkSession, servers: Servers, shop: Broker, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send_orders(shop, dialogs=2, messages=6)
    invoice = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    shop.create_message_type("//sales/Invoice", "JSON_SCHEMA", schema=json.dumps(invoice))
    open_regions(shop)
    exec(compile(placed(code("python"), servers, database), "docs/spark.md", "exec"), {})
    shown = capsys.readouterr().out
    assert re.search(r"//sales/Order\|\s+6\|", shown)
    assert "last_sequence" in shown
    assert "Done(messages=6, replies=6, ends=0, failed=0)" in shown
    assert "sum(value.amount)" in shown
    assert "operation" in shown
    spark.sql(placed(code("sql"), servers, database))
    assert spark.table("orders").count() == 12, "what was written, too"
    spark.catalog.dropTempView("orders")
    assert "Routed(forwarded=2, followed=4," in shown
    written = by_conversation(receive(shop, "South", 6))
    assert len(written) == 2
    assert all(len(bodies) == 3 for bodies in written.values())


def test_the_page_names_every_option_and_column() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert set(DECISIONS) <= named
    assert {verdict.name for verdict in Verdict} <= named
    assert {*OPTIONS, *WRITER_OPTIONS} <= named
    assert {*COLUMNS, *NEEDED, *OPTIONAL} <= named
