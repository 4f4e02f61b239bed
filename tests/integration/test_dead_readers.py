"""Commands and views tell readers that were killed from readers that are idle, busy or in no consumer group."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konverse.bridge.broker import Broker
from konverse.bridge.views.reading_state import ReadingState
from tests.kit.commands import run
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, begin, connected, living, open_shop, pumped, until
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack

SHORT_MS = 300
"""A journal that is silent for this long leaves a doubt, in place of five seconds."""


@pytest.fixture
def broker(servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr("konverse.bridge.views.reading_state.LAG_MS", SHORT_MS)
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        yield broker


def reading(broker: Broker, queue: str = "Orders") -> ReadingState:
    """The reading state of the only partition of a queue."""
    (state,) = broker.operations.reading_states(queue)
    return state


def silent(broker: Broker, queue: str = "Orders") -> ReadingState:
    """The reading state when the journal has been silent for long enough to leave a doubt."""

    def doubted() -> ReadingState | None:
        state = reading(broker, queue)
        return state if state.doubtful or state.reader is False else None

    state = until(doubted, "the journal is silent")
    assert state is not None
    return state


def commanded(broker: Broker, *words: str) -> str:
    place = ("--kafka", broker.settings.kafka, "--database", broker.database)
    code, out, err = run(*words, *place)
    assert code == 0, err
    return out


def shown(broker: Broker) -> dict[str, Any]:
    """What `konverse view` says of the partition."""
    found: dict[str, Any] = json.loads(commanded(broker, "view", "Orders", "--json"))["partitions"]["0"]
    return found


def test_a_killed_reader_is_no_reader_as_soon_as_its_group_is_empty_and_everything_that_waits_is_shown(
    servers: Servers, broker: Broker, tmp_path: Path
) -> None:
    """Messages that it has ingested and not received wait, and those that are sent after the kill."""
    answered, *others = dialogs = [begin(broker) for _ in range(4)]
    for dialog, body in zip(dialogs, (b"received", b"held", b"unread", b"unread"), strict=True):
        dialog.send(ORDER, body)
    broker.flush()
    never, diary = str(tmp_path / "never"), str(tmp_path / "diary")
    job = Job(servers.bootstrap, broker.database, diary, batch=1, idle_s=None, hold_on="held", release=never)
    with Worker(job) as worker:
        worker.wait_for("holds")
        until(lambda: reading(broker).unread == 3, "the journal has the commit of the first message")
        others[0].send(ORDER, b"while the reader is busy")
        broker.flush()
        busy = until(lambda: (state := shown(broker))["stuck"] and state, "the reader is silent")
        assert (busy["reader"], busy["waiting"]) == (True, 1)
        assert "it is busy or dead" in commanded(broker, "view", "Orders")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    others[0].send(ORDER, b"after the kill")
    broker.flush()
    until(lambda: shown(broker)["reader"] is False, "the group is empty")
    dead = shown(broker)
    assert (dead["owner"], dead["stuck"], dead["reader_unknown"]) == (None, False, None)
    assert (dead["unread"], dead["waiting"], dead["silent_s"] < 600) == (3, 2, True)
    assert dead["since"] is not None
    told = commanded(broker, "view", "Orders")
    assert "NO READER, since 20" in told
    assert "; 3 unread messages wait, 2 offsets wait" in told
    assert "has left its consumer group, and is dead" in told
    (lag,) = broker.operations.lag("Orders")
    assert (lag.reader, lag.messages, lag.offsets) == (False, 3, 2)
    assert "NO READER" in commanded(broker, "lag", "Orders")
    assert "has left its consumer group, and is dead: start a reader." in commanded(broker, "why", str(answered.id))
    assert broker.views.transmission_status(answered.id).startswith("the owner of Orders/0 is silent for ")
    with broker.reader("Orders") as orders, pumped(orders):
        until(lambda: reading(broker).reader, "another reader has taken it over")
        assert "NO READER" not in commanded(broker, "view", "Orders")


def test_an_idle_reader_of_a_group_is_a_reader(broker: Broker) -> None:
    with broker.reader("Orders") as orders:
        orders.wait_for_partitions(1)
        with pumped(orders):
            state = silent(broker)
    assert (state.reader, state.membership.left) == (True, False)


def test_a_reader_that_has_named_its_partitions_is_a_reader_although_the_group_is_empty(broker: Broker) -> None:
    with broker.reader("Orders") as orders:
        orders.wait_for_partitions(1)
    with broker.reader("Orders", partitions=(0,)) as orders:
        orders.wait_for_partitions(1)
        with pumped(orders):
            state = silent(broker)
            assert shown(broker)["reader"] is True
    assert (state.reader, state.doubtful) == (True, True)
    assert reading(broker).reader is False, "it has released the partition"


def test_a_substitute_is_a_reader_of_the_queue_that_a_service_has_left(broker: Broker) -> None:
    with broker.reader("Orders") as orders:
        orders.wait_for_partitions(1)
        broker.admin.create_queue("Later")
        broker.admin.alter_service(ORDER_SERVICE, queue="Later")
        until(lambda: living(orders) or orders._driver.catalog_changes.service_moves.places, "the reader knows")
    with broker.reader("Later") as later, pumped(later):
        until(lambda: reading(broker).reader, "a substitute owns the partition")
        state = silent(broker)
    assert (state.reader, state.doubtful) == (True, True)
