"""The pools of a broker, without servers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from konverse.bridge.client.pool.context import PoolContext
from konverse.bridge.client.pool.keeper import PoolKeeper
from konverse.bridge.client.pool.pools import Pools
from konverse.bridge.runtime.clock import now_ms
from konverse.bridge.runtime.settings import PoolOptions
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute, PoolInUse

OPTIONS = PoolOptions("shop", "store", "orders", name="pool")


def pools() -> Any:
    """The pools of a broker of database `sales`, whose services accept every contract."""
    store = SimpleNamespace(service=SimpleNamespace(contracts=["orders"]))
    connection: Any = SimpleNamespace(
        catalog=SimpleNamespace(broker_id=uuid4(), queues_of=list, check_send=lambda *_: None),
        network=SimpleNamespace(
            service=lambda _name, _broker_id: store, placed=lambda *_: (SimpleNamespace(name="Shop"), None)
        ),
        kafka=None,
        settings=SimpleNamespace(redis=None, instance="default", send_timeout_s=1.0),
        database="sales",
    )
    sender = SimpleNamespace(session=SimpleNamespace(over=None, dialogs={}, writer=bytes(16)))
    client: Any = SimpleNamespace(begin=None, adopt=None, mailboxes=None, open_sender=lambda: sender)
    return Pools(connection, client, lambda _queue: pytest.fail("no queue is read"))


def _begin(_clauses: object) -> Any:
    pytest.fail("nothing is begun")


def test_a_redirection_to_something_that_is_no_broker_id_leads_astray() -> None:
    """As one to an unknown service does: the messages stay in the mailbox, and the pool goes on."""
    sender: Any = SimpleNamespace()
    check_target = partial(pools()._check_redirected, "orders")
    context = PoolContext(_begin, list, sender, sender, dict, check_target, 1.0)
    keeper = PoolKeeper(OPTIONS, context)
    with keeper.slots.changed:
        slot = keeper.slot_of(bytes(16), None)
        slot.place.way, slot.place.way_ms = (Target("//sales/East", "east"),), now_ms()
        with pytest.raises(InvalidRoute, match="'east' is not a broker instance"):
            keeper.routes.open(slot)
    assert slot.place.astray is not None


def test_a_pool_with_another_end_of_stream_is_another_pool_with_another_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    made, other = pools(), replace(OPTIONS, end_of_stream="Over")
    monkeypatch.setattr(made, "_settings", SimpleNamespace(redis="redis://", instance="default"))
    monkeypatch.setattr("konverse.bridge.client.pool.pools.Lease", lambda _url, key, *_: key)
    made._pools.append(SimpleNamespace(options=OPTIONS, over=False))
    made._check_name(other)
    with pytest.raises(PoolInUse, match="this broker has pool 'pool' open already"):
        made._check_name(OPTIONS)
    with_slashes = [
        replace(OPTIONS, name="pool/shop", from_service="store", to_service="orders", contract="x"),
        replace(OPTIONS, name="pool", from_service="shop/store", to_service="orders", contract="x"),
    ]
    sender = SimpleNamespace(session=SimpleNamespace(writer=b""))
    assert len({made._lease(one, sender) for one in (OPTIONS, other, *with_slashes)}) == 4


def test_a_lease_that_another_process_holds_leaves_no_client_of_redis_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = pools(), list[str]()

    def take() -> None:
        raise PoolInUse("used by another process")

    lease = SimpleNamespace(take=take, close=lambda: closed.append("lease"))
    monkeypatch.setattr("konverse.bridge.client.pool.pools.Lease", lambda *_: lease)
    monkeypatch.setattr(made, "_settings", SimpleNamespace(redis="redis://", instance="default", send_timeout_s=1.0))
    with pytest.raises(PoolInUse, match="used by another process"):
        made.open(OPTIONS)
    assert closed == ["lease"]


def test_a_pool_without_a_thread_for_its_answers_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pool could be neither used nor closed, and its name would stay taken."""
    made, closed = pools(), list[str]()
    reader = SimpleNamespace(close=lambda: closed.append("reader"))
    monkeypatch.setattr(made, "_read", lambda _queue: reader)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("konverse.bridge.client.pool.pools.in_background", refuse)
    with pytest.raises(RuntimeError):
        made.open(OPTIONS)
    assert (closed, made._pools, made._answering) == (["reader"], [], {})


def test_pools_are_closed_although_a_reader_fails_meanwhile() -> None:
    made, closed = pools(), list[str]()

    class Reader:
        @property
        def close(self) -> Any:
            made._answering.pop("Failed", None)  # as its thread does
            return lambda: closed.append("reader")

    made._answering = {"Shop": Reader(), "Failed": Reader()}
    made._pools.append(SimpleNamespace(shut_down=lambda: closed.append("pool")))
    made.close()
    assert closed == ["pool", "reader", "reader"]
