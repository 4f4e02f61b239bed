"""What readers have in common whose rows tell of a queue's partitions as they are: a task folds each of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from konverse.dialog.state.partition import Partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings
from konverse.spark.connection.clients import check_topics, fold, queue_of, topics_of
from konverse.spark.connection.settings import Settings
from konverse.spark.log.columns import Column

from .reader import arrow_schema, rare_collections

ROWS_MAX: Final = 8_192
"""Of one Arrow batch."""

Of = TypeVar("Of")


@dataclass(frozen=True)
class Part(InputPartition):
    """One partition of the queue."""

    queue: Queue
    partition: int


class QueueReader(DataSourceReader, Generic[Of]):
    """Rows of which each tells of one thing in a partition."""

    columns: ClassVar[Mapping[str, Column[Any]]]
    """How each column is made from a thing."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        if settings.queue is None:
            mode = settings.mode.value
            raise InvalidSettings(f"mode {mode!r} needs a queue; give 'queue' and its 'database' for 'topic'")
        self._settings = settings
        self._schema = arrow_schema(schema, self.columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Each partition of the queue. TopicMismatch when its topics are not those that the catalog means."""
        queue = queue_of(self._settings)
        check_topics(self._settings, topics_of(queue))
        return [Part(queue, number) for number in range(queue.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, Part)
        with rare_collections():
            things = self.things(partition)
        for start in range(0, len(things), ROWS_MAX):
            some = things[start : start + ROWS_MAX]
            arrays = [pa.array(map(self.columns[field.name.lower()].make, some), field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @abstractmethod
    def things(self, part: Part) -> Sequence[Of]:
        """What a partition holds, a row for each."""

    def fold(self, part: Part) -> Partition:
        """The partition as whoever led it now would find it; raises as `bridging.fold`."""
        return fold(self._settings, part.queue, part.partition)
