"""A process with a named pool dies, and the next process continues its conversations, on real servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from socket import gethostname
from unittest.mock import patch

import pytest

from konverse.bridge.client.pool.lease import Lease, _here, _is_gone
from konverse.schemas.errors import BrokerClosed, KafkaUnavailable, PoolInUse, SessionTakenOver
from tests.kit.oracle import verify
from tests.kit.pool_sender import PoolSender
from tests.kit.pools import Taker, left_open, open_stream, pool_of, stream_shop, taking
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, connected, open_shop, queue_of, until

pytestmark = pytest.mark.stack

KEYS = 3


@pytest.mark.parametrize("acknowledged", [59, 399])
def test_the_next_process_continues_where_a_killed_process_stopped(
    servers: Servers, database: str, acknowledged: int
) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=2)
        open_stream(broker)
        with taking(broker, Taker()) as taker, pool_of(broker):  # its thread reads the queue of the shop all the time
            job = {"first": 0, "keys": KEYS, "redis": servers.redis_url}
            with PoolSender(servers.bootstrap, database, **job) as sender:
                sender.read_on(acknowledged)
                sender.kill()
            with pool_of(broker, name="orders", max_messages=50) as pool:
                for key in range(KEYS):
                    pool.send(ORDER, b"%d last" % key, f"key {key}")
                pool.flush()
                lasts = {b"%d last" % key for key in range(KEYS)}
                until(lambda: lasts <= set(taker.bodies), "all is received")
                pool.recycle()
                until(lambda: not pool.conversations, "all conversations are over")
                assert pool.statistics.begun <= KEYS + pool.statistics.recycled
            settled = time.monotonic() + 20
            while left_open(broker) and time.monotonic() < settled:
                time.sleep(0.1)
            assert left_open(broker) == []
        bodies = taker.bodies
        assert max(Counter(bodies).values()) == 1
        assert not taker.behind
        for key in range(KEYS):
            got = [body for body in bodies if body.startswith(b"%d " % key)]
            numbers = [int(body.split()[1]) for body in got[:-1]]
            assert numbers == list(range(key, KEYS * len(numbers), KEYS)), "in order, and none is missing"
            assert numbers[-1] + KEYS > sender.acknowledged, "what Kafka had is received"
            assert got[-1] == b"%d last" % key
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def test_a_takeover_interrupted_by_kafka_continues_with_the_same_conversations(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker, partitions=2)
        open_stream(broker)
        with taking(broker, Taker()) as taker, pool_of(broker):
            job = {"first": 0, "keys": KEYS, "redis": servers.redis_url}
            with PoolSender(servers.bootstrap, database, **job) as sender:
                sender.read_on(59)
                sender.kill()
            with pool_of(broker, name="orders") as pool:
                away = patch.object(pool._keeper.context.mailboxes, "read", side_effect=KafkaUnavailable("silence"))
                with away, pytest.raises(KafkaUnavailable, match="silence"):
                    pool.send(ORDER, b"0 first", "key 0")
                for key in range(KEYS):
                    pool.send(ORDER, b"%d last" % key, f"key {key}")
                pool.flush()
                lasts = {b"%d last" % key for key in range(KEYS)}
                until(lambda: lasts <= set(taker.bodies), "all is received")
                assert pool.statistics.begun == KEYS, "each conversation was taken over, once"
        assert max(Counter(taker.bodies).values()) == 1


def test_a_successor_takes_over_all_keys_of_a_pool_at_once_without_blocking_readers(
    servers: Servers, database: str
) -> None:
    """Ends wait for the application's reader, whose handler asks the pool, which waits for the reader's work."""
    keys = 40
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2, home_partitions=2)
        open_stream(broker)
        with connected(servers.bootstrap, database) as former:
            pool = pool_of(former, name="orders", read=False)
            for key in range(keys):
                pool.send(ORDER, b"%d" % key, f"key {key}")
            pool.flush()
        with broker.reader("Orders", timeout=2) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        if int(message.body) % 2:
                            transaction.end(message.dialog)
        taker = Taker()
        with (
            connected(servers.bootstrap, database, send_timeout_s=20) as successor,
            taking(broker, taker),
            pool_of(successor, name="orders", read=False) as pool,
            successor.reader("Shop") as reader,
        ):
            thread = threading.Thread(target=reader.run, args=(pool.answer,))
            thread.start()
            pool.send(ORDER, b"first", "key 0")
            assert pool.conversations >= keys // 2, "also those of keys that nobody has named yet"
            for key in range(1, keys):
                pool.send(ORDER, b"again %d" % key, f"key {key}")
            pool.recycle()
            until(lambda: not pool.conversations, "all conversations are over")
            until(lambda: left_open(broker) == [], "no endpoint is left")
            reader.stop()
            thread.join()
        assert len(taker.bodies) == keys
        assert verify(servers.bootstrap, [queue_of(broker, "Orders"), queue_of(broker, "Shop")]) == []


def test_messages_returned_to_a_dead_process_are_resent_by_its_successor_without_a_send_to_their_key(
    servers: Servers, database: str
) -> None:
    """Its conversation is over. The bounced message carries the key of its group."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        open_stream(broker)
        with connected(servers.bootstrap, database) as former:
            pool = pool_of(former, name="orders", read=False)
            pool.send(ORDER, b"one", "key 0")
            pool.flush()
            pool._worker.over = True  # no process looks after it
            (dialog,) = pool._slots.dialogs.values()
            with broker.reader("Orders", timeout=2) as reader:
                for transaction in reader:
                    with transaction:
                        for message in transaction:
                            transaction.end(message.dialog)
            dialog.send(ORDER, b"two")
            pool.flush()
        soon = patch("konverse.dialog.pool.recycling.POOL_PATIENCE_MS", 500)
        with soon, taking(broker, Taker()) as taker, pool_of(broker):
            until(lambda: left_open(broker) == [], "the conversation is over")
            with pool_of(broker, name="orders") as successor:
                successor.send(ORDER, b"of another key", "key 1")
                until(lambda: set(taker.bodies) == {b"of another key", b"two"}, "what came back is received")
                assert successor.statistics.resent == 1
                successor.recycle()
                until(lambda: not successor.conversations, "all conversations are over")
            until(lambda: left_open(broker) == [], "no endpoint is left")


def test_a_reopened_pool_continues_conversations_of_which_its_target_has_received_nothing_yet(
    servers: Servers, database: str
) -> None:
    with stream_shop(servers.bootstrap, database) as broker:
        for body in (b"one", b"two"):
            with pool_of(broker, name="orders") as pool:
                pool.send(ORDER, body, "key")
                pool.flush()
        with pool_of(broker, name="orders") as pool:
            pool.recycle()  # it has sent nothing, so there is nothing to recycle
            pool.send(ORDER, b"three", "key")
            pool.recycle()
        with pool_of(broker, name="orders") as pool, taking(broker, Taker()) as taker:
            pool.send(ORDER, b"four", "key")
            until(lambda: len(taker.bodies) == 4, "all is received")
            assert len({message.dialog.id for message in taker.taken[:3]}) == 1
            assert taker.taken[3].dialog.id != taker.taken[0].dialog.id
            assert taker.bodies[:3] == [b"one", b"two", b"three"]
            pool.recycle()
            until(lambda: len(taker.finished) == 2, "both hear that nothing more comes")
            until(lambda: not left_open(broker), "no endpoint is left")


def test_a_second_live_process_gets_an_error_that_names_the_user_of_the_pool(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        open_stream(broker)
        with pool_of(broker, name="orders", read=False):
            with pytest.raises(PoolInUse, match="this broker has pool 'orders' open"):
                pool_of(broker, name="orders")
            with connected(servers.bootstrap, database, redis=servers.redis_url) as other:
                with pytest.raises(PoolInUse, match=r"used by process \d+ on .*, session [0-9a-f]{32}"):
                    pool_of(other, name="orders")
                pool_of(other, name="another", read=False).close()
        with connected(servers.bootstrap, database, redis=servers.redis_url) as other:
            pool_of(other, name="orders", read=False).close()


def test_without_a_lease_the_former_holder_is_stopped_by_the_logs(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        open_stream(broker)
        former = pool_of(broker, name="orders")
        with taking(broker, Taker()) as taker, connected(servers.bootstrap, database) as other:
            former.send(ORDER, b"one", "key")
            former.flush()
            until(lambda: taker.bodies == [b"one"], "it is received")
            with pool_of(other, name="orders", read=False) as pool:
                pool.send(ORDER, b"two", "key")
                until(lambda: taker.bodies == [b"one", b"two"], "it is received")
                assert len({message.dialog.conversation for message in taker.taken}) == 1

                late = 0

                def stopped() -> bool:
                    nonlocal late
                    try:
                        former.send(ORDER, b"late %d" % late, "key")
                        late += 1
                    except SessionTakenOver:
                        return True
                    return False

                until(stopped, "the former holder learns of it")
                pool.send(ORDER, b"three", "key")
                until(lambda: b"three" in taker.bodies, "it is received")
        assert max(Counter(taker.bodies).values()) == 1


def test_when_two_processes_begin_with_a_pool_at_once_the_later_one_keeps_it(
    servers: Servers, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with stream_shop(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as later:
        first, second = pool_of(broker, name="orders"), pool_of(later, name="orders")
        for pool in (first, second):
            pool._takeover.complete = True  # when each looked, the other had begun nothing
        with taking(broker, Taker()) as taker:
            for number, pool in enumerate((first, second)):
                pool.send(ORDER, b"%d" % number, "key")
                pool.flush()
            refused: list[bytes] = []

            def stopped() -> bool:
                body = b"first %d" % len(refused)
                try:
                    first.send(ORDER, body, "key")
                except SessionTakenOver:
                    return True
                refused.append(body)
                return False

            until(stopped, "the first one learns that it has lost the pool")
            until(lambda: first.over, "it looks after nothing any more")
            first.close()
            assert first.closed
            with pytest.raises(BrokerClosed):
                first.send(ORDER, b"late", "key")
            until(
                lambda: not second._takeover.complete or "is also used by another process" in caplog.text,
                "the other hears",
            )
            second.send(ORDER, b"second", "key")
            until(lambda: b"second" in taker.bodies, "it is received")
            second.recycle()
            until(lambda: not left_open(later), "what both have begun is over, and no endpoint is left")
        assert max(Counter(taker.bodies).values()) == 1
        second.close()


def test_a_smaller_named_pool_continues_all_conversations_of_its_larger_predecessor(
    servers: Servers, database: str
) -> None:
    with stream_shop(servers.bootstrap, database) as broker, taking(broker, Taker()) as taker:
        with connected(servers.bootstrap, database) as former:
            larger = pool_of(former, name="orders", size=3)
            for number in range(3):
                larger.send(ORDER, b"%d" % number)
            larger.flush()
        with pool_of(broker, name="orders", size=1) as pool:
            pool.send(ORDER, b"3")
            assert pool.conversations == 3
            pool.recycle()
            until(lambda: not left_open(broker), "all are over, and no endpoint is left")
        assert len(taker.bodies) == 4


def test_a_key_of_a_named_pool_with_a_size_is_gone_on_with(servers: Servers, database: str) -> None:
    with stream_shop(servers.bootstrap, database) as broker, taking(broker, Taker()) as taker:
        with connected(servers.bootstrap, database) as former:
            before = pool_of(former, name="orders", size=2)
            before.send(ORDER, b"one", "key")
            before.flush()
        with pool_of(broker, name="orders", size=2) as pool:
            pool.send(ORDER, b"two", "key")
            until(lambda: len(taker.bodies) == 2, "both are received")
            assert len({message.dialog.conversation for message in taker.taken}) == 1
            assert {message.dialog.key for message in taker.taken} == {b"key"}
            pool.recycle()
            until(lambda: not pool.conversations, "it is over")


@pytest.mark.parametrize(
    ("where", "gone"), [(_here(), True), (f"{gethostname()} (00000000 pid:[1])", False), (gethostname(), False)]
)
def test_a_process_of_another_container_does_not_count_as_gone_because_its_pid_is_absent_here(
    where: str, *, gone: bool
) -> None:
    assert _is_gone(f"process 4194305 on {where}, session {bytes(16).hex()}") is gone


def test_a_lease_of_a_process_that_is_gone_is_taken_at_once(servers: Servers, database: str) -> None:
    gone = Lease(servers.redis_url, f"lease {database}", "orders", bytes(16))
    gone.holder = gone.holder.replace("process ", "process 9")  # an unused process id
    gone.take()
    mine = Lease(servers.redis_url, f"lease {database}", "orders", bytes(16))
    mine.take()
    gone.close()
    mine.close()


def test_a_redis_that_is_away_or_lies_stops_nothing(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database, redis="redis://127.0.0.1:1") as broker:
        open_shop(broker)
        open_stream(broker)
        with pool_of(broker, name="orders") as pool, taking(broker, Taker()) as taker:
            pool.send(ORDER, b"one")
            until(lambda: taker.bodies == [b"one"], "it is received")
