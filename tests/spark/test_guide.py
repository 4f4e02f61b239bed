"""The program of the guide's page about Spark reads, answers and writes."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from tests.kit.readme import ROOT
from tests.kit.servers import Servers
from tests.kit.shop import RECEIPT, receive, send_orders
from tests.spark.test_product import code, placed, shown_rows
from tests.spark.test_write import by_conversation

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

PAGE = "docs/guide/spark.md"


@pytest.mark.usefixtures("transmitting")
def test_the_program_of_the_page_reads_answers_and_writes(
    spark: SparkSession,
    servers: Servers,
    shop: Broker,
    database: str,
    tmp_path: Path,
) -> None:
    sent = send_orders(shop, dialogs=2, messages=6)
    lines = [{"customer": customer, "body": f"{number} cups"} for number in (1, 2) for customer in ("ann", "bob")]
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "orders.json").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    text = code("python", (ROOT / PAGE).read_text("utf-8")).replace("/var/lib/shop", str(tmp_path))
    names: dict[str, Any] = {}
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(placed(text, servers, database), PAGE, "exec"), names)
    shown = output.getvalue()
    assert shown_rows(shown, "conversation", "sequence", "body") == sorted(
        [conversation.hex().upper(), str(number), body.decode()]
        for conversation, bodies in sent.items()
        for number, body in enumerate(bodies)
    )
    assert "Done(messages=6, replies=6, ends=0, failed=0)" in shown
    assert {(message.type, message.body) for message in receive(shop, "Shop", 6)} == {
        (RECEIPT, body) for bodies in sent.values() for body in bodies
    }
    assert list(by_conversation(receive(shop, "Orders", 4)).values()) == [[b"1 cups", b"2 cups"]] * 2
    counting = names["per_minute"].writeStream.format("memory").queryName("per_minute").outputMode("complete")
    counting.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("per_minute").selectExpr("sum(count)").collect() == [(10,)]
    spark.catalog.dropTempView("per_minute")
