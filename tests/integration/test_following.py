"""Following a partition: a reader of its logs has the owner's state, without a claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.owner.follower import Follower
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner import snapshots as snapshotting
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import journal_topic
from tests.integration.test_snapshots import idle_fold, log_start
from tests.kit.digests import digest
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, answer_once, begin, connected, open_shop, queue_of, send_orders, until

pytestmark = pytest.mark.stack

EVERY = 60


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", EVERY)


@contextmanager
def following(servers: Servers, broker: Broker, number: int = 0) -> Iterator[Follower]:
    """A followed partition of queue Orders."""
    kafka = Kafka(Settings(kafka=f"kafka://{servers.bootstrap}"))
    with Follower(kafka, queue_of(broker, "Orders"), number) as followed:
        yield followed


def test_a_follower_has_the_state_of_the_owner_and_takes_no_messages_from_it(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with following(servers, broker) as followed, broker.reader("Orders", partitions=(0,), timeout=1) as reader:
            assert not followed.catch_up().live()
            for dialogs in (3, 5):
                send_orders(broker, dialogs=dialogs, messages=20)
                assert answer_once(reader) == 20
                state = idle_fold(reader).state
                assert digest(followed.catch_up()) == digest(state)
            assert len(followed.state.live()) == 8
            assert [*followed.state.ready, *followed.state.changed, *followed.state.forgotten] == []
            (owner,) = reader.owners
            assert followed.head.number == owner.fold.head.number
            assert followed.head.owner == owner.claim_id


def test_a_follower_overtaken_by_a_truncation_reaches_the_same_state(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, keep=timedelta(0))
        queue = queue_of(broker, "Orders")
        dialogs = [begin(broker) for _ in range(10)]
        with following(servers, broker) as followed:
            followed.catch_up()
            released: list[Fold] = []
            for _ in range(4):
                for number in range(100):
                    dialogs[number % 10].send(ORDER, b"%d" % number)
                broker.flush()
                with broker.reader("Orders", batch=5, timeout=1) as reader:
                    assert answer_once(reader) == 100
                    released.append(idle_fold(reader))
            until(lambda: log_start(servers, journal_topic(queue.topic)), "the journal is truncated")
            assert followed.state.ingest_to == 0
            assert digest(followed.catch_up()) == digest(released[-1].state)


def test_a_follower_that_cannot_catch_up_in_time_raises_kafka_unavailable(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with broker.reader("Orders", partitions=(0,)), following(servers, broker) as followed:
            with pytest.raises(KafkaUnavailable, match="not read to their end in time"):
                followed.catch_up(timeout_s=0)
            followed.catch_up()
            assert followed.head.epoch == 1
