"""A standby reader follows partitions of other owners, and leads one as soon as it gets it."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from konverse.bridge.owner.standby import Standby
from konverse.bridge.reader.reader import Reader
from konverse.dialog.fold.fold import Fold
from konverse.dialog.owner import snapshots as snapshotting
from konverse.dialog.owner.owner import Owner
from konverse.schemas.identifiers import journal_topic, snapshot_topic
from tests.integration.test_following import following
from tests.integration.test_snapshots import idle_fold, log_start
from tests.kit.digests import digest
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, answer_once, begin, connected, open_shop, queue_of, send_orders, until, work
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

CLASSIC = {
    "group_protocol": "classic",
    "client": {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"},
}
LED_WITHIN_S = 2.0
"""Time from the assignment of the partition to leading it."""


def standby_of(reader: Reader) -> Standby:
    standby = reader._driver._standby
    assert standby is not None
    return standby


def follower_of(reader: Reader, number: int) -> Owner | None:
    """The follower of a partition, once it has folded something."""
    follower = standby_of(reader)._followers.get(number)
    return follower if follower is not None and follower.fold.head.number else None


def test_a_standby_leads_at_once_when_the_owner_was_killed_and_nothing_is_lost_or_doubled(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[float, Owner | None]] = []
    take = Standby.take

    def noted(standby: Standby, number: int) -> Owner | None:
        taken.append((time.monotonic(), follower := take(standby, number)))
        return follower

    monkeypatch.setattr(Standby, "take", noted)
    job = Job(
        servers.bootstrap,
        database,
        str(tmp_path / "diary"),
        batch=2,
        idle_s=None,
        hold_on="order 20",
        release=str(tmp_path / "never"),
        settings=CLASSIC,
    )
    with connected(servers.bootstrap, database, **CLASSIC) as broker:
        open_shop(broker)
        sent = send_orders(broker, dialogs=8, messages=24)
        with ExitStack() as stack:
            owner = stack.enter_context(Worker(job))
            owner.wait_for("holds")
            reader = stack.enter_context(broker.reader("Orders", batch=2, timeout=2, standby=True))

            def followed() -> Owner | None:
                work(reader)
                return follower_of(reader, 0)

            follower = until(followed, "the partition is followed")
            assert follower is not None
            assert not reader.partitions, "it belongs to the other one"
            owner.send_signal(signal.SIGKILL)
            sent |= send_orders(broker, dialogs=2, messages=4)
            reader.wait_for_partitions(1)
            (at, promoted), led_at = taken[-1], time.monotonic()
            assert promoted is follower
            assert reader.owners == [promoted]
            assert led_at - at < LED_WITHIN_S
            assert answer_once(reader) >= 4
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_a_follower_recovers_after_a_truncation_that_it_missed(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 60)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2, keep=timedelta(0))
        queue = queue_of(broker, "Orders")
        dialogs = [begin(broker, key=b"one") for _ in range(10)]
        number = dialogs[0].begin.target.partition
        released: list[Fold] = []
        with broker.reader("Orders", partitions=(1 - number,), standby=True) as other:
            standby = standby_of(other)
            dialogs[0].send(ORDER, b"the first")
            with broker.reader("Orders", partitions=(number,), timeout=1) as reader:
                assert answer_once(reader) == 1
            asleep = until(lambda: follower_of(other, number), "the partition is followed")
            assert asleep is not None
            with standby._locks[number]:  # as if the process were stopped
                for _ in range(4):
                    for turn in range(100):
                        dialogs[turn % 10].send(ORDER, b"%d" % turn)
                    broker.flush()
                    with broker.reader("Orders", batch=5, partitions=(number,), timeout=1) as reader:
                        assert answer_once(reader) == 100
                        released.append(idle_fold(reader))
                until(lambda: log_start(servers, journal_topic(queue.topic), number), "the journal is truncated")

            def agrees() -> bool:
                with standby._locks[number]:
                    follower = standby._followers.get(number)
                    return follower is not None and digest(follower.fold.state) == digest(released[-1].state)

            until(agrees, "the follower has the state of the owner")
            assert standby._followers[number] is not asleep, "it recovered again"


def test_a_standby_makes_a_snapshot_when_no_owner_does(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        queue = queue_of(broker, "Orders")
        dialog = begin(broker)
        number = dialog.begin.target.partition
        for turn in range(100):
            dialog.send(ORDER, b"%d" % turn)
        broker.flush()
        with broker.reader("Orders", partitions=(number,), timeout=1) as reader:
            assert answer_once(reader) == 100
        monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 60)
        with broker.reader("Orders", partitions=(1 - number,), standby=True) as other:
            standby = standby_of(other)
            until(lambda: (f := standby._followers.get(number)) and f.snapshots._durable, "a snapshot is durable")
        monkeypatch.setattr(snapshotting, "SNAPSHOT_EVERY_RECORDS", 10**9)
        with broker.reader("Orders", partitions=(number,)) as reader:
            (owner,) = reader.owners
            assert len(owner.snapshots._durable) == 1
            assert owner.fold.state.live()[0].received == 100
        assert log_start(servers, snapshot_topic(queue.topic), number) == 0
        with following(servers, broker, number) as followed:
            assert followed.catch_up().live()[0].received == 100
