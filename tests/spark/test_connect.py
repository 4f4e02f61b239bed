"""The format under Spark Connect: found by a server of its own, without being registered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import drain, send_orders, sent

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

PROGRAM: Final = """
import json, sys
from pyspark.sql import SparkSession
from konverse.spark import typed

options = json.loads(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert "connect" in type(spark).__module__
orders = spark.read.format("konverse").options(**options).load()
found = typed(orders, "//connect/Order", options).collect()
print("found", sorted(row.value.pieces for row in found))
spark.stop()
"""
"""A client and its server: a process of its own, since one has a session of either kind."""

ROUTER: Final = """
import json, sys
from pyspark.sql import SparkSession
from konverse.schemas.errors import InvalidSettings
from konverse.spark import route, routing_table
from konverse.spark.mapping import cores

place = json.loads(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert "connect" in type(spark).__module__
print("cores", cores(spark))
try:
    route(spark, "Orders", "nothing", **place)
except InvalidSettings as error:
    print("refused", "is no expression over the columns" in str(error))
rows = [("north 1", "//sales/North")]
table = routing_table(lambda: spark.createDataFrame(rows, "key string, to_service string"), "CAST(body AS STRING)")
print("by table", route(spark, "Orders", table, rows=1, **place).targets)
spark.stop()
"""


def test_a_client_of_connect_reads_messages_and_their_values(
    spark: SparkSession, servers: Servers, shop: Broker, database: str
) -> None:
    send_orders(shop, dialogs=2, messages=6)
    pieces = {"type": "object", "properties": {"pieces": {"type": "integer"}}}
    shop.create_message_type("//connect/Order", "JSON_SCHEMA", schema=json.dumps(pieces))
    shop.create_contract("//connect", {"//connect/Order": "INITIATOR"})
    shop.create_service("//connect/Service", queue="Orders", contracts=["//connect"])
    dialog = shop.begin_dialog("//sales/ShopService", "//connect/Service", "//connect")
    for number in (3, 4):
        dialog.send("//connect/Order", b'{"pieces": %d}' % number)
    shop.flush()
    given = {"bootstrap": servers.bootstrap, "database": database, "queue": "Orders"}
    program = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=200, env=dict(os.environ), check=False)
    assert "found [3, 4]" in done.stdout, done.stderr[-3_000:]


def test_a_client_of_connect_routes(servers: Servers, shop: Broker, database: str) -> None:
    open_regions(shop)
    sent(shop, b"north 1", b"north 2")
    given = {"kafka": f"kafka://{servers.bootstrap}", "database": database, "timeout": 3.0}
    program = [sys.executable, "-c", ROUTER, json.dumps(given)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=200, env=dict(os.environ), check=False)
    assert "cores 2" in done.stdout, done.stderr[-3_000:]
    assert "refused True" in done.stdout, done.stderr[-3_000:]
    assert "by table {'//sales/North': 2}" in done.stdout, done.stderr[-3_000:]
    assert [message.body for message in drain(shop, "North")] == [b"north 1", b"north 2"]
