"""Reading logs: a client that failed is not used again."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, Message, TopicPartition

from konverse.bridge.kafka.clients import EndCut, Health, Kafka, LogTruncated
from konverse.bridge.kafka.log_reader import LogReader
from konverse.schemas.errors import KafkaUnavailable


class Client:
    """Answers "unknown partition" as long as it lives."""

    closed = False

    def poll(self, _timeout_s: float) -> Any:
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(error=lambda: error, topic=lambda: "topic", offset=lambda: None)

    def consume(self, *_: Any) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True

    def list_topics(self, *_: Any) -> None: ...

    def assign(self, _places: Any) -> None: ...

    def unassign(self) -> None: ...

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, 9


class Grumbler(Client):
    """Reports damaged data on every fetch."""

    def poll(self, _timeout_s: float) -> Any:
        error = KafkaError(KafkaError._BAD_MSG)
        return SimpleNamespace(error=lambda: error, topic=lambda: "topic", offset=lambda: None)


class _Settings:
    settings = SimpleNamespace(client={})


def reader_with(
    kind: type[Client], timeout_s: float, clients: list[Client], stable: int = 9, end: int = 9
) -> LogReader:
    """A reader of a log of `end` records, of which readers may see those before `stable`."""

    def consumer(**_: Any) -> Client:
        clients.append(kind())
        return clients[-1]

    check_event = partial(Kafka.check_event, _Settings())  # type: ignore[arg-type]  # only the settings are used
    settings = SimpleNamespace(connect_timeout_s=timeout_s)

    def list_offsets(
        places: dict[TopicPartition, Any], isolation_level: IsolationLevel, **_: Any
    ) -> dict[TopicPartition, Any]:
        offset = stable if isolation_level is IsolationLevel.READ_COMMITTED else end
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=offset))
        return dict.fromkeys(places, answer)

    admin = SimpleNamespace(list_offsets=list_offsets)
    kafka: Any = SimpleNamespace(settings=settings, consumer=consumer, check_event=check_event, admin=admin)
    kafka.answer = partial(Kafka.answer, kafka)
    return LogReader(kafka)


def test_a_read_whose_fetches_all_fail_raises_kafka_unavailable() -> None:
    with pytest.raises(KafkaUnavailable, match=r"at offset 0 for 0\.1 s, and its log ends at 9: .*message format"):
        list(reader_with(Grumbler, 0.1, []).read("topic", 0, 0, 9))


@pytest.mark.parametrize(("stable", "named"), [(9, False), (3, False), (0, True)])
def test_an_open_transaction_is_named_when_it_holds_up_the_next_record(stable: int, named: bool) -> None:
    with pytest.raises(KafkaUnavailable, match="could be read at offset 0") as caught:
        list(reader_with(Grumbler, 0.1, [], stable).read("topic", 0, 0, 9))
    assert ("holds up topic/0: the records 0 to 8" in str(caught.value)) == named


class Ended(Client):
    """Reports the end of the log wherever it reads."""

    def poll(self, timeout_s: float) -> Any:
        time.sleep(timeout_s)


class Dated(Client):
    """Answers a question about a time with this offset and error."""

    @classmethod
    def by(cls, offset: int, error: KafkaError | None) -> type[Client]:
        answer = SimpleNamespace(offset=offset, error=error)
        return type("DatedClient", (cls,), {"offsets_for_times": lambda *_, **__: [answer]})


class Unwell(_Settings):
    """Kafka's clients have reported no error."""

    health = Health()


def test_a_log_that_ends_before_the_wanted_range_has_lost_its_end() -> None:
    with pytest.raises(EndCut, match="the log of topic/0 ended at 9, and ends at 4 now") as caught:
        list(reader_with(Ended, 0.1, [], end=4).read("topic", 0, 4, 9))
    assert caught.value.at == 4


CUT = (
    "Partition log truncation detected at offset 7 (leader epoch 0): broker end offset is 3 (offset leader epoch 0). "
    "Reset to INVALID.: Local: Partition log truncation detected (broker 2)"
)
"""Text of librdkafka 2.16 after an unclean election."""


@pytest.mark.parametrize(
    ("code", "text", "at"),
    [
        (KafkaError._AUTO_OFFSET_RESET, CUT, 3),
        (KafkaError._AUTO_OFFSET_RESET, "Local: Partition log truncation detected", 0),
        (KafkaError._AUTO_OFFSET_RESET, "fetch failed due to requested offset not available on the broker", None),
        (KafkaError.OFFSET_OUT_OF_RANGE, "Broker: Offset out of range", None),
    ],
)
def test_the_clients_error_says_whether_a_leader_lacks_what_was_read(code: int, text: str, at: int | None) -> None:
    event: Any = SimpleNamespace(error=lambda: KafkaError(code, text), topic=lambda: "topic")
    with pytest.raises(LogTruncated) as caught:
        Kafka.check_event(_Settings(), event)  # type: ignore[arg-type]  # only the settings are used
    assert (caught.value.at if isinstance(caught.value, EndCut) else None) == at


class Slow(Client):
    """Returns a record after a short wait, and none without waiting."""

    def __init__(self) -> None:
        self.at = 0

    def poll(self, timeout_s: float) -> Any:
        if timeout_s <= 0:
            return None
        self.at += 1
        return Message(topic="topic", partition=0, offset=self.at - 1, value=b"")


def test_slow_processing_between_batches_does_not_end_a_read() -> None:
    read = []
    for messages, _ in reader_with(Slow, 0.05, []).read("topic", 0, 0, 3):
        read += [message.offset() for message in messages]
        time.sleep(0.1)
    assert read == [0, 1, 2]


@pytest.mark.parametrize(("offset", "found"), [(4, 4), (-1, 9)])
def test_records_that_are_all_older_end_where_the_log_ends(offset: int, found: int) -> None:
    assert reader_with(Dated.by(offset, None), 1.0, []).offset_at("topic", 0, 1_000) == found


def test_a_partition_that_cannot_be_searched_by_time_is_not_taken_for_one_of_older_records() -> None:
    """Records that `keep` protects would be deleted, and instructions of operators passed over."""
    error = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    reader = reader_with(Dated.by(-1, error), 1.0, [])
    reader._kafka.unavailable = partial(Kafka.unavailable, Unwell())  # type: ignore[arg-type, method-assign]
    with pytest.raises(KafkaUnavailable, match=r"offsets in topic/0 cannot be found by time.*Not leader"):
        reader.offset_at("topic", 0, 1_000)


def test_a_client_that_refuses_to_read_is_replaced() -> None:
    clients: list[Client] = []
    reader = reader_with(Client, 1.0, clients)
    with pytest.raises(KafkaUnavailable, match="refuses to serve"):
        list(reader.read("topic", 0, 0, 9))
    assert reader.ends("topic", 0) == (0, 9)
    assert [client.closed for client in clients] == [True, False]
