"""Calls of a pool that do not wait for Kafka, and callers that do not wait behind others, while Kafka is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from konverse.bridge.client.pool import lease as pool_lease
from konverse.bridge.client.pool.context import PoolContext
from konverse.bridge.client.pool.lease import Lease
from konverse.bridge.client.pool.pool import Pool
from konverse.bridge.reader.reader import Reader
from konverse.bridge.runtime.settings import PoolOptions
from konverse.bridge.runtime.threads import ThreadLock
from konverse.dialog.session.dialogs import DialogState
from konverse.schemas.errors import PoolInUse, QueueFull
from konverse.schemas.limits import POOL_LEASE_MS
from tests.kit.builders import address_of

DEADLINE_S = 30.0
SOON_S = 10.0
"""Far longer than an immediate call takes, and shorter than `DEADLINE_S`."""


class Kafka:
    """A pool's view of its broker. Questions in `held` go to Kafka, which is silent until it may answer."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()
        self.held: set[str] = set()
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.session = SimpleNamespace(over=None, dialogs={}, writer=b"", end=self._end)
        sender: Any = SimpleNamespace(
            session=self.session,
            send=lambda _staged, _type, _body: 0,
            apply_news=lambda news: news(self.session),
            decide=self._decide,
            end=lambda staged: self._decide(lambda session: session.end(staged)),
            set_timer=lambda *_: None,
            wait_for_id=lambda: self.wait("id"),
            ended_by_peer=lambda _conversation: None,
        )
        mailboxes: Any = SimpleNamespace(read=self._look)
        self.context = PoolContext(self._begin, self._adopt, sender, mailboxes, dict, lambda _service: None, SOON_S)

    def _decide(self, news: Callable[[Any], object]) -> None:
        self.wait("id")
        news(self.session)

    def wait(self, what: str) -> None:
        if what in self.held:
            self.asked.set()
            assert self.answers.wait(DEADLINE_S)

    def _begin(self, wanted: Any) -> Any:
        self.wait(f"begin {wanted.key!r}")
        staged = SimpleNamespace(
            suffixes={}, sent=0, held=[], redirects=None, waiting_end=None, state=DialogState.OPEN, judged=False
        )
        dialog = SimpleNamespace(
            id=wanted.conversation_id, staged=staged, send=lambda *_: 0, begin=SimpleNamespace(home=address_of("home"))
        )
        self.begun.append(dialog)
        return dialog

    def _adopt(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def _end(self, staged: Any) -> list[Any]:
        self.ended.append(staged)
        return []

    def _look(self, *_: Any, **__: Any) -> tuple[list[Any], Any]:
        self.wait("look")
        return [], ([], False, [])


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    fake = Kafka()
    yield fake
    fake.answers.set()


def pool_of(kafka: Kafka, lease: Lease | None = None, **options: Any) -> Pool:
    return Pool(PoolOptions("shop", "store", "orders", **options), kafka.context, "database", lambda _: [], lease)


@pytest.fixture
def pool(kafka: Kafka) -> Iterator[Pool]:
    made = pool_of(kafka)
    yield made
    kafka.answers.set()
    made._worker.stop()


def returns(call: Callable[[], object]) -> bool:
    """Whether a call returns although Kafka is silent."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SOON_S)
    return not thread.is_alive()


def test_a_pool_that_was_closed_and_is_not_empty_does_not_wait_for_its_targets_a_second_time(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, milliseconds in (("STILL", 1), ("CLOSE", 2**40)):
        monkeypatch.setattr(f"konverse.bridge.client.pool.pool.POOL_{name}_MS_MAX", milliseconds)
    pool.send("order", b"one", "key")
    pooling = pool._keeper.pooling
    pooling.recycled(next(iter(pooling.known.values())), 0)
    pool.close()
    assert pool.conversations == 1, "its target has not ended it"
    monkeypatch.setattr("konverse.bridge.client.pool.pool.POOL_STILL_MS_MAX", 2**40)
    assert returns(pool.close)


def test_a_pool_that_was_closed_and_is_not_empty_rests_between_its_questions(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = threading.Semaphore(0)
    woken: list[bool] = []

    class Awake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            woken.append(self.is_set())
            rests.release()
            return super().wait(timeout)

    monkeypatch.setattr("konverse.bridge.client.pool.worker.CHECK_S", 0.01)
    monkeypatch.setattr("konverse.bridge.client.pool.pool.POOL_STILL_MS_MAX", 1)
    pool = pool_of(kafka)
    pool.send("order", b"one", "key")
    pooling = pool._keeper.pooling
    pooling.recycled(next(iter(pooling.known.values())), 0)
    pool.close()
    assert pool._worker.lingers, "its target has not ended the conversation"
    pool._worker._awake = Awake()
    pool._worker.wake()
    for _ in range(5):
        assert rests.acquire(timeout=SOON_S)
    pool._worker.stop()
    assert not any(woken[2:5]), "its own questions do not wake it"


@pytest.mark.parametrize("error", [QueueFull("no room"), KeyboardInterrupt()])
def test_a_conversation_that_got_no_timer_is_ended(kafka: Kafka, pool: Pool, error: BaseException) -> None:
    """The pool does not know it, so nothing else would end it."""

    def set_timer(*_: object) -> None:
        raise error

    sender: Any = kafka.context.sender
    sender.set_timer = set_timer
    with pytest.raises(type(error)):
        pool.send("order", b"one", "key")
    assert kafka.ended == [dialog.staged for dialog in kafka.begun]
    assert len(kafka.ended) == 1


def test_a_reader_that_was_closed_does_not_wait_for_its_handlers_a_second_time() -> None:
    reader: Any = Reader.__new__(Reader)
    reader._closed, reader._lost_told = True, 0
    reader._assignment = SimpleNamespace(lost=0)
    reader._lock, reader._pumping = threading.RLock(), ThreadLock("")
    waited: list[float] = []
    reader._crew = SimpleNamespace(wait=waited.append)
    reader.close()
    assert not waited


def test_a_lease_is_kept_while_the_pool_asks_a_home_that_does_not_answer(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Semaphore(0)

    class Redis:
        def register_script(self, _text: str) -> Callable[..., bytes]:
            def run(keys: list[str], args: list[Any]) -> bytes:
                renewed.release()
                return str(args[0]).encode()

            return run

        def close(self) -> None: ...

    monkeypatch.setattr(pool_lease, "connect_redis", lambda _url: Redis())
    monkeypatch.setattr(pool_lease, "RENEW_S", 0.01)
    lease = Lease("redis://", "key", "orders", bytes(16))
    lease.take()
    kafka.held.add("look")
    pool = pool_of(kafka, lease, name="orders")
    pool._takeover.complete = True
    pool.send("order", b"one", "key")
    pool._worker._check_all_ms = 0
    pool._worker.wake()
    assert kafka.asked.wait(DEADLINE_S), "the home is asked"
    while renewed.acquire(blocking=False):
        pass
    kept = all(renewed.acquire(timeout=SOON_S) for _ in range(3))
    kafka.answers.set()
    pool.close()
    assert kept
    assert lease._renewal is not None
    assert not lease._renewal.is_alive()


@pytest.mark.parametrize("renewed", [False, True])
def test_a_redis_that_does_not_say_how_long_a_lease_lasts_is_no_sign_that_it_was_renewed(
    monkeypatch: pytest.MonkeyPatch, *, renewed: bool
) -> None:
    """The holder is dead on another machine. Redis fails once between two answers."""
    holders = iter([b"another", b"another", b"another", None])
    after = POOL_LEASE_MS if renewed else 700
    left: Iterator[int | Exception] = iter([900, redis.ConnectionError(), after])

    class Redis:
        def register_script(self, _text: str) -> Callable[..., bytes | None]:
            return lambda keys, args: next(holders)

        def pttl(self, _key: str) -> int:
            answer = next(left)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(pool_lease, "connect_redis", lambda _url: Redis())
    monkeypatch.setattr(pool_lease, "LOOK_S", 0.0)
    monkeypatch.setattr(pool_lease, "in_background", lambda *_: None)
    lease = Lease("redis://", "key", "orders", bytes(16))
    if renewed:
        with pytest.raises(PoolInUse, match="pool 'orders' is used by another"):
            lease.take()
    else:
        lease.take()
        assert next(holders, "all asked") == "all asked"


def test_a_pool_that_is_over_gives_its_lease_back(kafka: Kafka) -> None:
    closed = threading.Event()
    lease: Any = SimpleNamespace(close=closed.set)
    pool = pool_of(kafka, lease, name="orders")
    kafka.session.over = "another process has taken over the pool"
    pool._worker.wake()
    assert closed.wait(SOON_S)
    pool._worker.thread.join(SOON_S)
    assert pool.over
