"""Clients that stay open: their owners, their number, and their harmless closing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

from konverse.spark.connection.cached_clients import IDLE_CLIENTS_MAX, IdleClients


def test_one_is_taken_by_one_and_a_second_of_its_kind_is_closed() -> None:
    closed: list[str] = []
    clients = IdleClients(closed.append)
    clients.keep(("a",), "first")
    clients.keep(("a",), "second")
    assert closed == ["second"]
    assert (clients.take(("a",)), clients.take(("a",))) == ("first", None)


def test_of_too_many_those_that_rested_longest_are_closed() -> None:
    closed: list[int] = []
    clients = IdleClients(closed.append)
    for number in range(IDLE_CLIENTS_MAX + 2):
        clients.keep((number,), number)
    assert closed == [0, 1]
    assert [clients.take((number,)) for number in range(3)] == [None, None, 2]


def test_a_client_whose_close_fails_does_not_affect_the_others() -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("it does not")

    clients = IdleClients(refuse)
    clients.keep(("a",), "first")
    clients.keep(("a",), "second")
    assert clients.take(("a",)) == "first"


def test_a_forked_process_neither_takes_nor_closes_those_of_its_parent() -> None:
    closed: list[int] = []
    clients = IdleClients(closed.append)
    for number in range(IDLE_CLIENTS_MAX):
        clients.keep((number,), number)
    with patch("konverse.spark.connection.cached_clients.os.getpid", return_value=1):
        assert clients.take((0,)) is None
        clients.keep((0,), 100)
        assert clients.take((0,)) == 100
    assert closed == []
    assert clients.take((0,)) == 0


def test_threads_that_take_and_keep_at_once_lose_none() -> None:
    closed: list[object] = []
    clients = IdleClients(closed.append)
    made: list[object] = []

    def use(number: int) -> None:
        for turn in range(2_000):
            key = ((number + turn) % (2 * IDLE_CLIENTS_MAX),)
            client = clients.take(key)
            if client is None:
                client = object()
                made.append(client)
            clients.keep(key, client)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use, number) for number in range(4)]:
            done.result()
    left = [
        client for client in (clients.take((number,)) for number in range(2 * IDLE_CLIENTS_MAX)) if client is not None
    ]
    assert sorted(map(id, [*closed, *left])) == sorted(map(id, made))
    assert len(left) <= IDLE_CLIENTS_MAX
