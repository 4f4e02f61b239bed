"""A Spark session for all tests, and topics for each."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from konverse.bridge.broker import Broker
from konverse.bridge.client.transmission import ensure_queue, transmitter
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from konverse.deploy.java.java import find_java, spark_java_home
from konverse.schemas.errors import StackError
from konverse.spark.log import states
from konverse.spark.session import local_session
from tests.kit import until
from tests.kit.servers import Servers, missing
from tests.kit.shop import connected, open_shop
from tests.kit.spark_home import spark_home
from tests.spark.logs import Log

NewLog = Callable[..., Log]


@pytest.fixture(scope="session", autouse=True)
def quick_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sessions of the tests, and of the programs that they start, spend less CPU on their start.

    Python workers import compiled modules (`tests.kit.spark_home`), and Java uses its quick compiler alone.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home(tmp_path_factory.mktemp("spark-home"))))
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session shared by all tests."""
    try:
        java_home = spark_java_home(find_java())
    except StackError as error:
        missing(error)
    session = local_session("konverse tests", java_home=java_home)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def new_log(servers: Servers) -> Iterator[NewLog]:
    """Create topics that are deleted after the test."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with ExitStack() as exits:

        def make(partitions: int = 1, name: str | None = None, **config: str) -> Log:
            topic = name or f"spark-{uuid.uuid4().hex[:12]}"
            settings = {setting.replace("_", "."): value for setting, value in config.items()}
            admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result()
            exits.callback(drop, admin, topic)
            until(lambda: has_leaders(admin, topic, partitions))
            return Log(servers.bootstrap, topic)

        yield make


@pytest.fixture
def cold() -> Iterator[None]:
    """Clear the caches of earlier tests."""
    states._WARM.clear()
    yield
    states._WARM.clear()


@pytest.fixture
def shop(servers: Servers, database: str) -> Iterator[Broker]:
    """A connection to a new shop, whose topics are deleted after the test."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        yield broker
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    mine = [topic for topic in admin.list_topics().topics if topic.startswith(f"konverse.{database}.")]
    for deleted in admin.delete_topics(mine).values():
        deleted.result()


def has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether the broker knows a leader for each partition."""
    found = admin.list_topics(topic).topics[topic].partitions
    return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())


def drop(admin: AdminClient, topic: str) -> None:
    """Delete a topic."""
    admin.delete_topics([topic])[topic].result()


@pytest.fixture(scope="session")
def transmitting(servers: Servers) -> Iterator[None]:
    """Run an owner of the transmission queue, like `konverse transmit`."""
    kafka = Kafka(Settings.load(kafka=f"kafka://{servers.bootstrap}", redis=None))
    reader = transmitter(kafka, ensure_queue(kafka, "konverse"))

    def work() -> None:
        with reader:
            for _ in reader:
                pass

    thread = threading.Thread(target=work)
    thread.start()
    yield
    reader.stop()
    thread.join()
