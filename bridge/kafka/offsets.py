"""Asks Kafka where logs begin and end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from .clients import RETRY_EVERY_S, Kafka
from .refusals import Need

BEGINNING: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class OffsetRequest:
    """A pending request for one offset of each of some partitions of a topic."""

    def __init__(self, kafka: Kafka, topic: str, partitions: Iterable[int], which: OffsetSpec, **options: Any) -> None:
        """`options` are those of `AdminClient.list_offsets`."""
        self.partitions = sorted(partitions)
        self._answers = _ask(kafka, [TopicPartition(topic, number) for number in self.partitions], which, **options)

    @property
    def done(self) -> bool:
        """Whether every answer has arrived or timed out."""
        return all(answer.done() for answer in self._answers.values())

    def offsets(self) -> dict[int, int]:
        """Partition -> offset, without the partitions that Kafka answered with an error. Call it when `done`."""
        return {
            place.partition: answer.result().offset
            for place, answer in self._answers.items()
            if answer.exception() is None
        }


def log_ends(kafka: Kafka, places: Collection[TopicPartition], operation: str = "READ") -> dict[tuple[str, int], int]:
    """Ends of these logs, by topic and partition, including the records that open transactions hold up.

    A transaction was open if a log's last stable offset, requested afterwards, is smaller than its end. `operation` is
    the right on the topic that AccessDenied names. Raises KafkaUnavailable.
    """
    ends: dict[tuple[str, int], int] = {}
    level = IsolationLevel.READ_UNCOMMITTED
    asked = _ask(kafka, places, END, isolation_level=level, request_timeout=RETRY_EVERY_S) if places else {}
    for place, first in asked.items():
        try:
            ends[place.topic, place.partition] = log_end(kafka, place, level, first)
        except KafkaException as error:
            what = f"the ends of {place.topic}/{place.partition} cannot be read"
            raise kafka.unavailable(what, error, Need.topic(operation, place.topic)) from None
    return ends


def log_end(
    kafka: Kafka, place: TopicPartition, level: IsolationLevel, asked: Future[ListOffsetsResultInfo] | None = None
) -> int:
    """End of a log as readers of this isolation level see it. `asked`: a first request that was made already.

    Raises KafkaException.
    """

    def ask(timeout_s: float) -> Future[ListOffsetsResultInfo]:
        return _ask(kafka, [place], END, isolation_level=level, request_timeout=timeout_s)[place]

    return kafka.answer(ask, asked).offset


def _ask(
    kafka: Kafka, places: Iterable[TopicPartition], which: OffsetSpec, **options: Any
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    return kafka.admin.list_offsets(dict.fromkeys(places, which), **options)
