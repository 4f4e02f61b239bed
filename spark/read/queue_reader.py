"""The base of modes whose rows show the current state of a queue: each task folds one partition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from konverse.bridge.kafka.topics import topic_ids
from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings
from konverse.spark.connection.clients import check_topics, fold, queue_of
from konverse.spark.connection.settings import ConnectionSettings
from konverse.spark.log.columns import Column

from .reader import arrow_schema, check_batch, rare_collections

ROWS_MAX: Final = 8_192
"""Rows of one Arrow batch."""

Of = TypeVar("Of")


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """One partition of the queue."""

    queue: Queue
    partition: int


class QueueReader(DataSourceReader, Generic[Of]):
    """A batch read with a row for each thing in each partition, such as a side or a returned message."""

    columns: ClassVar[Mapping[str, Column[Any]]]
    """How each column is made from a thing."""

    def __init__(self, settings: ConnectionSettings, schema: StructType) -> None:
        if settings.queue is None:
            mode = settings.mode.value
            raise InvalidSettings(f"mode {mode!r} needs a queue; give 'queue' and its 'database' instead of 'topic'")
        check_batch(settings)
        self._settings = settings
        self._schema = arrow_schema(schema, self.columns)

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each partition. TopicMismatch when the topics are not the ones that the catalog names."""
        queue = queue_of(self._settings)
        check_topics(self._settings, topic_ids(queue).items())
        return [QueuePartition(queue, number) for number in range(queue.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, QueuePartition)
        with rare_collections():
            sources = self.row_sources(partition)
        for start in range(0, len(sources), ROWS_MAX):
            some = sources[start : start + ROWS_MAX]
            arrays = [pa.array(map(self.columns[field.name.lower()].make, some), field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @abstractmethod
    def row_sources(self, part: QueuePartition) -> Sequence[Of]:
        """The objects from which the rows of a partition are made, in the order of the rows."""

    def fold(self, part: QueuePartition) -> Partition:
        """The state of a partition as an owner that began now would have it. Raises the errors of `clients.fold`."""
        return fold(self._settings, part.queue, part.partition)
