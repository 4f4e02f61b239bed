"""Spark Connect: its clients can do what other sessions do, and a separate server finds the unregistered format."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.deploy.host.ports import free_port
from tests.kit.regions import open_regions
from tests.kit.servers import Servers
from tests.kit.shop import NOTE, ORDERING, SHOP_SERVICE, drain, receive, send_orders, sent
from tests.spark.test_write import by_conversation

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

Client = Callable[..., str]
"""Runs a program in a session of Connect, with its arguments in `given`. Returns the printed text."""

SERVER: Final = """
import sys
from pyspark.sql import SparkSession

session = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.address", "127.0.0.1")
    .config("spark.connect.grpc.binding.port", sys.argv[1])
    .getOrCreate()
)
print("ready", flush=True)
sys.stdin.read()
session.stop()
"""

SESSION: Final = """
import json, sys
from pyspark.sql import SparkSession

given = json.loads(sys.argv[2])
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
assert "connect" in type(spark).__module__
"""
"""A process can have a session of only one kind, so a client has its own process."""

READER: Final = """
from konverse.spark import typed

orders = spark.read.format("konverse").options(**given).load()
found = typed(orders, "//connect/Order", given).collect()
print("found", sorted(row.value.pieces for row in found))
"""

ROUTER: Final = """
from konverse.schemas.errors import InvalidSettings
from konverse.spark import route
from konverse.spark.receive.mapping import cores

print("cores", cores(spark))
try:
    route(spark, "Orders", "nothing", **given)
except InvalidSettings as error:
    print("refused", "is not an expression over the columns" in str(error))
rows = [("north 1", "//sales/North")]
known = spark.createDataFrame(rows, "key string, to_service string")

def table(messages):
    return messages.join(known, messages.body.cast("string") == known.key, "left")

print("by table", route(spark, "Orders", table, rows=1, **given).targets)
"""

WRITER: Final = """
from pyspark.errors import PySparkException

orders = spark.range(6, numPartitions=1).selectExpr(
    "'//sales/OrderService' AS to_service",
    "'//sales/Order' AS message_type",
    "CAST(id AS STRING) AS body",
    "CAST(id % 2 AS STRING) AS key",
)

def write(frame):
    frame.write.format("konverse").options(**given["place"], **given["writing"]).mode("append").save()

try:
    write(orders.replace("//sales/Order", "//none", "message_type"))
except PySparkException as error:
    print("refused", "NotInContract: row 0 of task 0, column 'message_type'" in str(error))
write(orders)
stream = spark.readStream.format("konverse").options(**given["place"], queue="Orders").load()
query = stream.writeStream.format("memory").queryName("came").trigger(availableNow=True)
query.option("checkpointLocation", given["checkpoint"]).start().awaitTermination()
print("came", sorted(bytes(row.body).decode() for row in spark.table("came").collect()))
"""

FUNCTION: Final = """
from pyspark.errors import PySparkException

lines = spark.readStream.text(given["folder"]).selectExpr("value AS body", "value AS key")
types = {"to_service": "//sales/OrderService", "message_type": "//sales/Order"}

def run(checkpoint, query):
    options = {**given["place"], **given["writing"], **types, "query": query}

    def write(frame, number):
        frame.write.format("konverse").options(**options, batch=str(number)).mode("append").save()

    writer = lines.writeStream.foreachBatch(write).option("checkpointLocation", given["folder"] + checkpoint)
    return started(writer.trigger(availableNow=True)).awaitTermination(120)

def started(writer):
    # Spark gives the Python worker of the function 10 s to connect, which is short on a busy machine, and no setting.
    for _ in range(5):
        try:
            return writer.start()
        except PySparkException as error:
            if "while waiting for the Python worker to connect" not in str(error):
                raise
    return writer.start()

plain = spark.range(1).selectExpr("'plain' AS body", "'plain' AS key")
for _ in range(2):
    options = {**given["place"], **given["writing"], **types, "query": "mine", "batch": "0"}
    plain.write.format("konverse").options(**options).mode("append").save()
try:
    run("-one", "mine")
except PySparkException as error:
    print("refused", "InvalidSettings: option 'query' is the name 'mine'" in str(error))
for checkpoint, query in (("-one", given["mine"]), ("-two", given["mine"]), ("-three", given["another"])):
    print("ended", run(checkpoint, query))
"""

RECEIVER: Final = """
import pyarrow as pa
from pyspark.sql import functions as f
from konverse.schemas.errors import InvalidSettings
from konverse.spark import map_arrow, process

def receipts(batch):
    types = ["//sales/Receipt"] * batch.num_rows
    bodies = [b"got " + body for body in batch.column("body").to_pylist()]
    return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "message_type": types, "body": bodies})

def notes(frame):
    bodies = f.concat(f.lit("thanks, "), f.col("body").cast("string")).cast("binary")
    return frame.select("receipt", f.lit("//sales/Note").alias("message_type"), bodies.alias("body"))

try:
    map_arrow(spark, "Orders", lambda batch: None, **given)
except InvalidSettings as error:
    print("refused", error)
print("in tasks", map_arrow(spark, "Orders", receipts, **given))
print("in frames", process(spark, "Shop", notes, **given))
"""


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    """URL of a Connect server with the other session's Java and Python."""
    port = str(free_port(()))
    command = [sys.executable, "-c", SERVER, port]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "ready\n" in process.stdout, "the server has not begun"
        yield f"sc://127.0.0.1:{port}"
        process.stdin.close()


@pytest.fixture
def client(server: str) -> Client:
    """A client of that server."""

    def run(program: str, **given: Any) -> str:
        command = [sys.executable, "-c", f"{SESSION}{program}spark.stop()\n", server, json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]
        return done.stdout

    return run


def test_a_client_of_connect_reads_messages_and_their_values(
    client: Client, servers: Servers, shop: Broker, database: str
) -> None:
    send_orders(shop, dialogs=2, messages=6)
    pieces = {"type": "object", "properties": {"pieces": {"type": "integer"}}}
    shop.admin.create_message_type("//connect/Order", "JSON_SCHEMA", schema=json.dumps(pieces))
    shop.admin.create_contract("//connect", {"//connect/Order": "INITIATOR"})
    shop.admin.create_service("//connect/Service", queue="Orders", contracts=["//connect"])
    dialog = shop.begin_dialog("//sales/ShopService", "//connect/Service", "//connect")
    for number in (3, 4):
        dialog.send("//connect/Order", b'{"pieces": %d}' % number)
    shop.flush()
    assert "found [3, 4]" in client(READER, bootstrap=servers.bootstrap, database=database, queue="Orders")


@pytest.mark.usefixtures("transmitting")
def test_a_spark_connect_client_writes_and_streams_and_receives_the_error_for_an_invalid_row(
    client: Client, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    place = {"bootstrap": servers.bootstrap, "database": database}
    writing = {"from_service": SHOP_SERVICE, "contract": ORDERING}
    said = client(WRITER, place=place, writing=writing, checkpoint=str(tmp_path))
    assert said.splitlines() == ["refused True", "came ['0', '1', '2', '3', '4', '5']"]
    got = by_conversation(receive(shop, "Orders", 6))
    assert sorted(got.values()) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
    assert drain(shop, "Orders") == []


@pytest.mark.usefixtures("transmitting")
def test_a_function_of_connect_in_foreach_batch_may_not_name_its_query_and_may_give_an_id_of_its_own(
    client: Client, servers: Servers, shop: Broker, database: str, tmp_path: Path
) -> None:
    """Outside of streams a client may name it."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "lines.txt").write_text("a line", "utf-8")
    said = client(
        FUNCTION,
        place={"bootstrap": servers.bootstrap, "database": database},
        writing={"from_service": SHOP_SERVICE, "contract": ORDERING},
        folder=str(folder),
        mine=f"id:{uuid.uuid4()}",
        another=f"id:{uuid.uuid4()}",
    )
    assert said.splitlines() == ["refused True", "ended True", "ended True", "ended True"]
    assert sorted(message.body for message in drain(shop, "Orders")) == [b"a line", b"a line", b"plain"]


def test_a_client_of_connect_receives_in_tasks_and_in_frames_and_hears_why_a_task_refuses(
    client: Client, servers: Servers, shop: Broker, database: str
) -> None:
    dialogs = [sent(shop, b"%d" % number) for number in range(5)]
    said = client(RECEIVER, kafka=f"kafka://{servers.bootstrap}", database=database, timeout=2.0).splitlines()
    assert said == [
        "refused the function must return an Arrow batch or table, not NoneType",
        "in tasks Done(messages=5, replies=5, ends=0, failed=0)",
        "in frames Done(messages=5, replies=5, ends=0, failed=0)",
    ]
    notes = receive(shop, "Orders", 5)
    assert Counter(message.type for message in notes) == {NOTE: 5}
    assert {message.dialog.id: message.body for message in notes} == {
        dialog.id: b"thanks, got %d" % number for number, dialog in enumerate(dialogs)
    }


def test_a_client_of_connect_routes(client: Client, servers: Servers, shop: Broker, database: str) -> None:
    open_regions(shop)
    sent(shop, b"north 1", b"north 2")
    said = client(ROUTER, kafka=f"kafka://{servers.bootstrap}", database=database, timeout=3.0)
    assert said.splitlines() == ["cores 2", "refused True", "by table {'//sales/North': 2}"]
    assert [message.body for message in drain(shop, "North")] == [b"north 1", b"north 2"]
