"""Whether a silent owner is still a member of its queue's consumer group."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from konverse.bridge.kafka.clients import Health, Kafka, LogTruncated
from konverse.bridge.kafka.headers import WITHOUT_GROUP
from konverse.bridge.runtime.settings import Settings
from konverse.bridge.views.membership import MEMBER, ConsumerGroups, Membership
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.wire.envelope import HEADER
from konverse.schemas.wire.journal import GENESIS_HASH, Commit, CommitOperations, encode_commit

OWNER, ANOTHER = b"o" * 16, b"x" * 16
QUEUE = Queue("Orders", "konverse.sales.Orders", "queue", 1, OWNER, OWNER, OWNER)
GROUP = "konverse.sales.Orders.queue"


class Record(NamedTuple):
    """A record of a journal in the form of Kafka's client."""

    data: bytes
    pairs: dict[str, Any]

    def value(self) -> bytes:
        return self.data

    def headers(self) -> list[tuple[str, Any]] | None:
        return [*self.pairs.items()] or None


def commit(owner: bytes = OWNER, headers: dict[str, Any] | None = None) -> Record:
    return Record(encode_commit(replace(COMMIT, owner=owner)), headers or {})


COMMIT = Commit(1, OWNER, 3, GENESIS_HASH, 10, CommitOperations())
STRANGERS = (Record(b"garbage", {}), Record(encode_commit(replace(COMMIT, owner=ANOTHER)), {HEADER: b"an envelope"}))


def log(*records: Record) -> Any:
    """The end of a journal."""
    return SimpleNamespace(ends=lambda *_: (0, len(records)), read=lambda *_: iter([([*records], len(records))]))


class Cluster:
    """A Kafka that answers what is in a group, and counts the requests."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.requests: list[str] = []
        self._answer = answer
        self.admin = self
        self.settings = Settings.load(kafka="kafka://nowhere:9092", connect_timeout_s=0.1)
        self.health = Health()
        self.metadata = lambda _: None
        self.answer = partial(Kafka.answer, self)  # type: ignore[arg-type]
        self.unavailable = partial(Kafka.unavailable, self)  # type: ignore[arg-type]

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout > 0
        self.requests += groups
        answer = Future[Any]()
        try:
            answer.set_result(self._answer())
        except KafkaException as error:
            answer.set_exception(error)
        return dict.fromkeys(groups, answer)


def members(count: int) -> Callable[[], Any]:
    return lambda: SimpleNamespace(members=[object()] * count)


def refusal(code: int) -> Callable[[], Any]:
    def refuse() -> Any:
        raise KafkaException(KafkaError(code))

    return refuse


def membership(answer: Callable[[], Any], *records: Record) -> Membership:
    return ConsumerGroups(Cluster(answer)).membership(QUEUE, 0, OWNER, log(*records))  # type: ignore[arg-type]


def test_an_owner_whose_group_has_members_is_not_judged_by_it() -> None:
    assert membership(members(1), commit()) == MEMBER


@pytest.mark.parametrize("answer", [members(0), refusal(KafkaError.GROUP_ID_NOT_FOUND)], ids=["empty", "gone"])
def test_an_owner_whose_group_is_empty_or_gone_has_left_it(answer: Callable[[], Any]) -> None:
    assert membership(answer, commit(), *STRANGERS) == Membership(left=True)


@pytest.mark.parametrize(
    "answer", [members(0), refusal(KafkaError.GROUP_AUTHORIZATION_FAILED)], ids=["an empty group", "no right"]
)
def test_a_reader_without_a_group_is_not_judged_by_the_group(answer: Callable[[], Any]) -> None:
    assert membership(answer, commit(), commit(headers=dict(WITHOUT_GROUP)), *STRANGERS) == MEMBER


@pytest.mark.parametrize(
    "records", [(commit(), commit(ANOTHER)), (), STRANGERS], ids=["another owner writes", "no record", "strangers'"]
)
def test_an_owner_whose_last_record_is_not_the_last_one_is_not_judged_by_the_group(records: tuple[Record, ...]) -> None:
    assert membership(members(0), *records) == MEMBER


def test_an_owner_whose_journal_is_being_cut_is_not_judged_by_the_group() -> None:
    def read(*_: object) -> Any:
        raise LogTruncated

    cut: Any = SimpleNamespace(ends=lambda *_: (0, 1), read=read)
    cluster: Any = Cluster(members(0))
    assert ConsumerGroups(cluster).membership(QUEUE, 0, OWNER, cut) == MEMBER


def test_without_the_right_to_describe_the_group_it_is_not_known_and_the_right_is_named() -> None:
    told = membership(refusal(KafkaError.GROUP_AUTHORIZATION_FAILED), commit())
    assert not told.left
    assert f"Grant DESCRIBE on group {GROUP} to User:ANONYMOUS" in told.unknown


def test_when_kafka_does_not_answer_it_is_not_known() -> None:
    told = membership(refusal(KafkaError._TIMED_OUT), commit())
    assert not told.left
    assert f"the members of consumer group {GROUP} cannot be listed" in told.unknown


@pytest.mark.parametrize(
    "answer",
    [members(0), members(1), refusal(KafkaError.GROUP_AUTHORIZATION_FAILED)],
    ids=["an empty group", "a member", "no right"],
)
def test_kafka_is_asked_once_for_all_partitions_of_a_queue(answer: Callable[[], Any]) -> None:
    cluster: Any = Cluster(answer)
    groups = ConsumerGroups(cluster)
    told = {groups.membership(QUEUE, partition, OWNER, log(commit())) for partition in range(3)}
    assert (len(told), cluster.requests) == (1, [GROUP])
