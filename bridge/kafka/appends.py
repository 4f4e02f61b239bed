"""Appends a few records to a topic and waits for Kafka's answers.

Sessions, journals and outputs never wait: they have producers of their own (`bridge.client`, `bridge.owner`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .clients import Headers, Kafka

POLL_S: Final = 0.1


class TopicRecord(NamedTuple):
    """A record to append."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int = 0


def append(
    kafka: Kafka, producer: Producer, topic: str, records: Sequence[TopicRecord], within_s: float
) -> list[Message | KafkaError | None]:
    """Append records in order. Returns for each record the written message, Kafka's error, or None for no answer.

    A record without a message may have been written nevertheless. `within_s` is the producer's time limit for a record.
    Raises KafkaUnavailable when the producer accepts no record, AccessDenied when the right to write is missing.
    """
    answers: list[Message | KafkaError | None] = [None] * len(records)

    def answer(number: int) -> Callable[[KafkaError | None, Message], None]:
        def take(error: KafkaError | None, message: Message) -> None:
            answers[number] = message if error is None else error

        return take

    try:
        for number, (value, key, headers, partition) in enumerate(records):
            while True:
                try:
                    producer.produce(topic, value, key, partition, answer(number), headers=headers)
                    break
                except BufferError:  # the queue of the producer is full
                    producer.poll(POLL_S)
        with suppress(KafkaException):  # missing answers stay None
            producer.flush(within_s + 1)
    except KafkaException as error:
        raise kafka.write_refused(topic, error) from None
    kafka.check_written(topic, answers)
    return answers
