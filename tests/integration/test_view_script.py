"""The script that writes the view: refused writes, and its cost (protocol.md section 8)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
import redis

from konverse.bridge.redis.client import connect_redis
from konverse.bridge.redis.view import ROWS_PER_CALL, ViewStore
from konverse.bridge.verifier.view import read_view
from konverse.deploy import StackSettings
from konverse.dialog.owner.view import Show, bucket_of
from konverse.dialog.state.transitions import State
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.identifiers import Role, view_key
from konverse.schemas.limits import VIEW_BUCKETS
from konverse.schemas.wire.varint import varint
from tests.conftest import NewStack
from tests.kit.servers import Servers

pytestmark = pytest.mark.redis

BYTES_PER_ROW_MAX = 100
Rows = list[tuple[bytes, bytes]]


def queue(incarnation: bytes = b"i" * 16, name: str = "") -> Queue:
    topic = name or f"view.{uuid.uuid4().hex}"
    return Queue("Orders", topic, "queue", 1, incarnation, b"d" * 16, b"j" * 16)


@pytest.fixture
def client(servers: Servers) -> Iterator[redis.Redis]:
    with connect_redis(servers.redis_url) as connection:
        yield connection


@pytest.fixture
def store(client: redis.Redis) -> Iterator[ViewStore]:
    made = ViewStore(client, queue())
    yield made
    made.clear()


def row(number: int, received: int = 1) -> tuple[bytes, bytes]:
    """A packed endpoint as an owner writes it."""
    numbers = (0, received, 0, received, 0, 5, -1, 0)
    return number.to_bytes(16, "big") + b"T", bytes((State.CONVERSING,)) + b"".join(map(varint, numbers))


def show(claim: int, journal: int, rows: Rows = [], gone: list[bytes] = [], *, whole: bool = False) -> Show:  # noqa: B006
    return Show(claim, journal, b"owner of %7d" % claim, rows, gone, 3, 0, whole)


def write(store: ViewStore, show: Show, living: int) -> bool:
    return store.show(0, show._replace(open=living))


def store_url(client: redis.Redis) -> str:
    place = client.connection_pool.connection_kwargs
    return f"redis://{place['host']}:{place['port']}/{place['db']}"


def received(store: ViewStore) -> dict[int, int]:
    """Conversation number → messages received, from the view."""
    return {row.conversation.int: row.receive_sequence for row in store.rows(0)}


def test_rows_come_back_as_they_were_written(store: ViewStore) -> None:
    assert write(store, show(7, 9, [row(1), row(2, 300)], whole=True), 2)
    assert received(store) == {1: 1, 2: 300}
    ((_, found),) = store.find(row(2)[0][:16])
    assert (found.role, found.state, found.journal_offset) == (Role.TARGET, State.CONVERSING, 9)
    assert (found.receive_sequence, found.unread, found.writer_counter, found.timer_due_ms) == (300, 300, 5, -1)
    header = store.header(0)
    assert header is not None
    assert (header.claim_offset, header.journal_offset, header.unread, header.open) == (7, 9, 3, 2)
    assert header.complete
    assert header.owner == show(7, 9).owner.hex()


def test_without_a_header_the_view_must_be_written_whole_first(store: ViewStore) -> None:
    assert not store.present(0, 0)
    assert store.header(0) is None
    assert not write(store, show(1, 2, [row(1)]), 1)
    assert received(store) == {}
    assert write(store, show(1, 2, [row(1)], whole=True), 1)
    assert write(store, show(1, 3, [row(2)]), 2)
    assert received(store) == {1: 1, 2: 1}


def test_an_owner_of_an_older_claim_writes_nothing(store: ViewStore) -> None:
    write(store, show(20, 21, [row(1, 8)], whole=True), 1)
    for zombie in (show(10, 99, [row(1, 5), row(2)]), show(10, 99, [row(1, 5), row(2)], whole=True)):
        assert write(store, zombie, 2), "a zombie is not asked to write the view whole"
        assert received(store) == {1: 8}
    header = store.header(0)
    assert header is not None
    assert (header.claim_offset, header.journal_offset) == (20, 21)


def test_an_older_state_of_the_same_owner_writes_nothing(store: ViewStore) -> None:
    write(store, show(20, 30, [row(1, 8)], whole=True), 1)
    for late in (show(20, 29, [row(1, 5)], [row(1)[0]]), show(20, 29, [], whole=True)):
        assert write(store, late, 1)
        assert received(store) == {1: 8}


def test_the_same_state_may_be_written_again(store: ViewStore) -> None:
    for _ in range(2):  # the answer to the first was lost
        assert write(store, show(20, 30, [row(1, 8)], whole=True), 1)
    for _ in range(2):
        assert write(store, show(20, 31, [row(2)], [row(1)[0]]), 1)
    assert received(store) == {2: 1}


def test_a_zombie_owner_cannot_restore_forgotten_rows(store: ViewStore) -> None:
    write(store, show(1, 2, [row(1), row(2)], whole=True), 2)
    write(store, show(5, 6, [row(2)], whole=True), 1)  # the next owner has forgotten conversation 1
    write(store, show(5, 7, [], [row(2)[0]]), 0)
    for zombie in (show(1, 3, [row(1), row(2)]), show(1, 10_000, [row(1), row(2)], whole=True)):
        write(store, zombie, 2)
        assert received(store) == {}


def test_a_new_owner_writes_whole_before_it_writes_changes(store: ViewStore) -> None:
    write(store, show(1, 2, [row(1)], whole=True), 1)
    assert not write(store, show(5, 6, [row(2)]), 2)
    assert received(store) == {1: 1}


def test_a_whole_view_that_was_begun_and_not_finished_is_not_taken_for_whole(store: ViewStore) -> None:
    assert store._call(0, show(1, 2, whole=True)._replace(open=3), "first", [], []) == 1
    assert store._call(0, show(1, 2, whole=True)._replace(open=3), "more", [row(1)], []) == 1
    header = store.header(0)
    assert header is not None
    assert not header.complete
    assert not write(store, show(1, 3, [row(2)]), 3)
    assert write(store, show(1, 3, [row(1), row(2)], whole=True), 2)
    assert received(store) == {1: 1, 2: 1}


def test_a_view_of_a_queue_of_the_same_name_that_was_dropped_goes(client: redis.Redis) -> None:
    before = ViewStore(client, queue(b"1" * 16))
    write(before, show(90, 91, [row(1)], whole=True), 1)
    after = ViewStore(client, queue(b"2" * 16, before._queue.topic))
    assert not write(after, show(1, 2, [row(2)]), 1)
    assert write(after, show(1, 2, [row(2)], whole=True), 1)
    assert received(after) == {2: 1}
    assert not write(before, show(90, 92, [row(1)]), 1), "an owner of the dropped queue"
    assert received(after) == {2: 1}
    after.clear()
    assert not after.present(0, 0)


@pytest.mark.parametrize("garbage", ["no number", "no hash", "half a header"])
def test_a_header_of_garbage_is_no_header(store: ViewStore, client: redis.Redis, garbage: str) -> None:
    write(store, show(5, 6, [row(1)], whole=True), 1)
    key = store._key(0, "header")
    if garbage == "no number":
        client.hset(key, mapping={"claim": "x", "journal": "y"})
    else:
        client.delete(key)
        if garbage == "no hash":
            client.set(key, "garbage")
        else:
            client.hset(key, "incarnation", store._queue.incarnation)
        assert store.header(0) is None
    assert not write(store, show(5, 7, [row(2)]), 2)
    assert write(store, show(5, 7, [row(2)], whole=True), 1)
    assert received(store) == {2: 1}


def test_a_row_of_garbage_is_left_out(store: ViewStore, client: redis.Redis) -> None:
    write(store, show(1, 2, [row(1)], whole=True), 1)
    bucket = store._bucket(0, 5)
    for field, value in ((b"", b""), (b"x" * 17, b"y" * 20), (row(3)[0], b""), (row(3)[0], b"\xff" * 64)):
        client.hset(bucket, mapping={field: value})
        assert received(store) == {1: 1}
        assert store.find(row(3)[0][:16]) == []


def test_a_bucket_of_garbage_shows_nothing(store: ViewStore, client: redis.Redis) -> None:
    write(store, show(1, 2, [row(1), row(2)], whole=True), 2)
    client.set(store._bucket(0, bucket_of(row(1)[0])), "garbage")
    assert received(store) == {2: 1}
    assert store.find(row(1)[0][:16]) == []
    assert [found.conversation.int for _, found in store.find(row(2)[0][:16])] == [2]


def test_a_permission_error_of_redis_is_raised(store: ViewStore, client: redis.Redis) -> None:
    client.acl_setuser("blind", enabled=True, nopass=True, keys=["*"], commands=["+@connection"])
    try:
        own = redis.Redis.from_url(store_url(client), username="blind", password="-")
        with own, pytest.raises(redis.ResponseError, match=r"NOPERM|no permissions"):
            ViewStore(own, store._queue).header(0)
    finally:
        client.acl_deluser("blind")


def test_a_large_view_is_written_in_parts_and_whole_at_the_end(store: ViewStore) -> None:
    rows = [row(number) for number in range(3 * ROWS_PER_CALL + 1)]
    assert write(store, show(1, 2, rows, whole=True), len(rows))
    assert len(received(store)) == len(rows)
    header = store.header(0)
    assert header is not None
    assert header.complete


def test_all_keys_of_a_partition_lie_in_one_slot_of_a_cluster(store: ViewStore, client: redis.Redis) -> None:
    write(store, show(1, 2, [row(number) for number in range(100)], whole=True), 100)
    keys = list(client.scan_iter(f"*{store._queue.topic}*", count=10_000))
    assert len(keys) > 50
    assert len({key[key.index(b"{") : key.index(b"}") + 1] for key in keys}) == 1


def test_a_conversation_takes_no_more_memory_than_was_promised(new_stack: NewStack) -> None:
    own = new_stack(StackSettings(brokers=0))
    with connect_redis(own.redis_url) as client:
        store = ViewStore(client, queue())
        empty = int(client.info("memory")["used_memory"])
        count = 60 * VIEW_BUCKETS
        for start in range(0, count, 50_000):
            rows = [row(uuid.uuid4().int, number) for number in range(start, min(start + 50_000, count))]
            if start == 0:
                write(store, show(1, 2, whole=True), 0)
            write(store, show(1, 3, rows), count)
        used = int(client.info("memory")["used_memory"]) - empty
    print(f"{used / count:.0f} bytes per conversation, {count:,} conversations")
    assert used / count < BYTES_PER_ROW_MAX


def test_a_view_that_a_zombie_wrote_is_not_the_view_of_its_owner(store: ViewStore) -> None:
    assert write(store, show(3, 4, [row(1)], whole=True), 1)  # after Redis lost the owner's rows
    assert store.present(0, 3)
    assert not store.present(0, 7), "the owner that claimed at 7 has to write everything again"


def test_a_view_read_during_writes_has_header_and_rows_of_one_moment(client: redis.Redis) -> None:
    shop = queue()
    store = ViewStore(client, shop)
    stop = threading.Event()

    def work() -> None:
        """Each state has its own journal offset in all rows."""
        journal = 1
        while not stop.is_set():
            journal += 1
            write(store, show(1, journal, [row(number, journal) for number in range(20)]), 20)

    write(store, show(1, 1, [row(number, 1) for number in range(20)], whole=True), 20)
    owner = threading.Thread(target=work)
    owner.start()
    try:
        for _ in range(100):
            shown = read_view(client, shop, 0)
            assert shown is not None
            assert {facts[2] for facts in shown.endpoints.values()} == {shown.journal_offset}
    finally:
        stop.set()
        owner.join()
        store.clear()


@pytest.mark.parametrize("suffix", ["header", "e:0"])
def test_a_view_of_which_a_key_holds_something_else_is_none(client: redis.Redis, suffix: str) -> None:
    shop = queue()
    store = ViewStore(client, shop)
    write(store, show(1, 2, [row(1)], whole=True), 1)
    key = view_key(shop.topic, shop.subscription, 0, suffix)
    client.delete(key)
    client.set(key, "something else")
    assert read_view(client, shop, 0) is None
    store.clear()
