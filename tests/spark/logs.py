"""Topics written record by record, and their options for Spark."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import DataFrame, SparkSession

from konverse.schemas.wire.envelope import HEADER
from tests.kit.builders import address_of

ORDERS: Final = address_of("orders")
"""The address of these tests' records; only its tag shows in them."""

DEADLINE_S: Final = 30


class Log:
    """A topic, and a producer that writes to it in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def write(self, *headers: bytes | None, partition: int = 0, body: bytes | None = b"body", **fields: Any) -> None:
        """Append a record for each envelope; None is a record without one. `fields` go to `produce`."""
        more = fields.pop("headers", [])
        for header in headers:
            ours = [] if header is None else [(HEADER, header)]
            self._producer.produce(
                self.topic, body, partition=partition, headers=[*ours, *more], on_delivery=delivered, **fields
            )
            assert self._producer.flush(DEADLINE_S) == 0

    def fill(self, headers: list[bytes], partition: int = 0, body: bytes = b"body") -> None:
        """Append many records at once."""
        for header in headers:
            self._producer.produce(
                self.topic, body, partition=partition, headers=[(HEADER, header)], on_delivery=delivered
            )
        assert self._producer.flush(DEADLINE_S) == 0

    def transaction(self, *headers: bytes, commit: bool = True, partition: int = 0) -> None:
        """Append records in a Kafka transaction that is committed or aborted."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for header in headers:
            producer.produce(self.topic, b"body", partition=partition, headers=[(HEADER, header)])
        assert producer.flush(DEADLINE_S) == 0
        if commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)

    def options(self, **options: str) -> dict[str, str]:
        """Spark's options for reading this topic."""
        return {"bootstrap": self.bootstrap, "topic": self.topic, **options}

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        """The topic as a frame."""
        return spark.read.format("konverse").options(**self.options(**options)).load()


def delivered(error: KafkaError | None, _: Message) -> None:
    """Fail when a record was not written."""
    assert error is None, error


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a frame, by partition and offset."""
    ordered = frame.orderBy("partition", "offset").select(*columns)
    return [
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in ordered.collect()
    ]
