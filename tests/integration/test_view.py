"""The view in Redis: correct when present, rebuilt when lost, and harmless when wrong."""

from __future__ import annotations

import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
import redis

from konverse.bridge.broker import Broker
from konverse.bridge.reader.reader import Reader
from konverse.bridge.redis.view import ViewStore
from konverse.deploy import LocalStack, StackSettings
from konverse.dialog.owner.view import ViewRow
from konverse.dialog.transaction.received import Message
from konverse.schemas.identifiers import Role
from tests.conftest import NewStack
from tests.kit.oracle import prove_exactly_once
from tests.kit.pausing import paused
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    answer,
    begin,
    connected,
    open_shop,
    pumped,
    queue_of,
    send_orders,
    until,
)

pytestmark = pytest.mark.stack


@pytest.fixture
def own_redis(new_stack: NewStack) -> LocalStack:
    """A Redis that a test may flush, kill and stop. It starts empty each time."""
    return new_stack(StackSettings(brokers=0))


def shown(store: ViewStore, partition: int) -> dict[tuple[uuid.UUID, Role], tuple[object, ...]]:
    """The view of a partition's endpoints, without journal offsets."""
    return {(row.conversation, row.role): _facts(row) for row in store.rows(partition)}


def _facts(row: ViewRow) -> tuple[object, ...]:
    return (row.state, row.send_sequence, row.receive_sequence, row.consumed, row.unread, row.error_waits)


def folded(reader: Reader) -> dict[int, dict[tuple[uuid.UUID, Role], tuple[object, ...]]]:
    """Partition → endpoints in the fold of its owner, in the same form."""
    return {
        owner.identity.partition: {
            (e.id, e.role): (e.state, e.sent, e.received, e.consumed, len(e.queue), e.error is not None)
            for e in owner.fold.state.live()
        }
        for owner in reader.owners
    }


def until_equal(reader: Reader, store: ViewStore) -> None:
    """Wait until the view of every partition equals its owner's state, header included."""

    def equal() -> bool:
        for owner in reader.owners:
            number, state = owner.identity.partition, owner.fold.state
            header = store.header(number)
            if header is None or not header.complete or shown(store, number) != folded(reader)[number]:
                return False
            if (header.unread, header.open, header.owner) != (state.unread, len(state.live()), owner.claim_id.hex()):
                return False
        return True

    until(equal, "the view equals the fold")


class Answering:
    """A reader of Orders that answers in its own thread with unique bodies."""

    def __init__(self, broker: Broker) -> None:
        self.reader = broker.reader("Orders")
        self.answered = 0
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(answer, self.reader, self._nonce)

    def _nonce(self, _message: Message) -> bytes:
        self.answered += 1
        return uuid.uuid4().bytes

    def close(self) -> None:
        """Close the reader. Raises the thread's error."""
        self.reader.close()
        self._done.result(DEADLINE_S)
        self._pool.shutdown()


def test_the_view_in_redis_equals_the_state_of_the_owners(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=3)
        sent = send_orders(broker, dialogs=30, messages=90)
        store = broker.view("Orders")
        with broker.reader("Orders", batch=7) as reader:
            reader.wait_for_partitions(3, DEADLINE_S)
            with pumped(reader):
                until(lambda: sum(o.fold.state.unread for o in reader.owners) == 90, "all orders are in")
                until_equal(reader, store)
            for _ in range(10):
                with next(reader) as transaction:
                    for message in transaction:
                        transaction.send(message.dialog, "//sales/Receipt", b"x")
            reader.settle(DEADLINE_S)
            with pumped(reader):
                until_equal(reader, store)
        conversation = next(iter(sent))
        ((_, row),) = store.find(conversation)
        assert (row.conversation.bytes, row.role, row.receive_sequence) == (conversation, Role.TARGET, 3)
        headers = [store.header(number) for number in range(3)]
        assert sum(header.open for header in headers if header) == 30


def test_a_view_that_is_flushed_in_the_middle_is_rebuilt_and_nothing_is_lost(
    servers: Servers, database: str, own_redis: LocalStack
) -> None:
    client = redis.Redis.from_url(own_redis.redis_url)
    with connected(servers.bootstrap, database, redis=own_redis.redis_url) as broker:
        open_shop(broker, partitions=2)
        store = broker.view("Orders")
        sent: dict[bytes, list[bytes]] = {}
        with closing(Answering(broker)) as work:
            for round_ in range(1, 6):
                sent |= send_orders(broker, dialogs=10, messages=80)
                client.flushall()
                until(lambda done=80 * round_: work.answered >= done, "the orders are answered")  # type: ignore[misc]
            client.flushall()
            started = time.monotonic()
            until_equal(work.reader, store)
            print(f"the view of 50 conversations was rebuilt after {time.monotonic() - started:.2f} s")
            assert sum(len(store.rows(number)) for number in range(2)) == 50
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_garbage_in_the_view_changes_nothing_and_does_not_stay(
    servers: Servers, database: str, own_redis: LocalStack
) -> None:
    client = redis.Redis.from_url(own_redis.redis_url)
    rng = random.Random(7)

    def spoil() -> None:
        lies = {"claim": "many", "journal": "-", "incarnation": b"\xff", "unread": "x", "complete": ""}
        keys = client.scan_iter("konverse:*", count=1_000)
        for key in sorted(keys, key=lambda key: key.endswith(b":header")):  # headers last: they tell what to repair
            dice = rng.randrange(4)
            if dice < 2:
                client.delete(key)
            if dice == 0:
                client.set(key, "no hash")
            elif key.endswith(b":header"):
                with suppress(redis.ResponseError):  # no longer a hash, since an earlier round
                    client.hset(key, mapping=lies)  # type: ignore[arg-type]
            elif dice > 1:
                client.delete(key)
                client.hset(key, mapping={rng.randbytes(17): rng.randbytes(dice * 9) for _ in range(3)})

    with connected(servers.bootstrap, database, redis=own_redis.redis_url) as broker:
        open_shop(broker, partitions=2)
        sent: dict[bytes, list[bytes]] = {}
        with closing(Answering(broker)) as work:
            for round_ in range(1, 6):
                sent |= send_orders(broker, dialogs=10, messages=40)
                spoil()
                until(lambda done=40 * round_: work.answered >= done, "the orders are answered")  # type: ignore[misc]
            spoil()
            sent |= send_orders(broker, dialogs=30, messages=30)  # every partition has something to show again
            until_equal(work.reader, broker.view("Orders"))
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_rows_that_redis_has_lost_are_written_again(
    servers: Servers, database: str, own_redis: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.bridge.redis.view.COUNT_EVERY_S", 0.2)
    with connected(servers.bootstrap, database, redis=own_redis.redis_url) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=50, messages=50)
        store = broker.view("Orders")
        with broker.reader("Orders") as reader, redis.Redis.from_url(own_redis.redis_url) as client, pumped(reader):
            until(lambda: sum(o.fold.state.unread for o in reader.owners) == 50, "all orders are in")
            until_equal(reader, store)
            keys = sorted(key for key in client.scan_iter("konverse:*") if not key.endswith(b":header"))
            client.delete(*keys[::2])  # as an eviction does
            client.hset(keys[1], b"a stranger's", b"row")
            assert sum(len(store.rows(number)) for number in range(2)) < 50
            until_equal(reader, store)
            assert not client.hexists(keys[1], "a stranger's")


def test_work_continues_without_redis_and_the_view_catches_up_when_redis_returns(
    servers: Servers, database: str, own_redis: LocalStack
) -> None:
    own_redis.kill("redis")
    with connected(servers.bootstrap, database, redis=own_redis.redis_url) as broker:
        open_shop(broker, partitions=2)
        with closing(Answering(broker)) as work:
            sent = send_orders(broker, dialogs=10, messages=100)
            until(lambda: work.answered >= 100, "the orders are answered without Redis")
            own_redis.restart("redis")
            until_equal(work.reader, broker.view("Orders"))
            own_redis.kill("redis")
            sent |= send_orders(broker, dialogs=10, messages=100)
            until(lambda: work.answered >= 200, "the orders are answered without Redis again")
            own_redis.restart("redis")
            until_equal(work.reader, broker.view("Orders"))
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_a_redis_that_hangs_delays_no_commit(servers: Servers, database: str, own_redis: LocalStack) -> None:
    with connected(servers.bootstrap, database, redis=own_redis.redis_url) as broker:
        open_shop(broker)
        with closing(Answering(broker)) as work:
            begin(broker).send(ORDER, b"x")
            until(lambda: work.answered >= 1, "the first order is answered")
            until_equal(work.reader, broker.view("Orders"))
            with paused(own_redis.pids["redis"]):
                (owner,) = work.reader.owners
                before = owner.counters.commits
                sent = send_orders(broker, dialogs=10, messages=100)
                until(lambda: work.answered >= 101, "the orders are answered")
                until(lambda: owner.counters.commits > before and work.reader._driver.settled, "they are committed")
            until_equal(work.reader, broker.view("Orders"))
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
