"""The proxy in front of a server that answers every frame with its correlation and records it."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from konverse.deploy.host.ports import HOST, free_port
from tests.chaos.proxy import Action, Proxy, Trap, Way
from tests.kit import until
from tests.kit.frames import framed, produce

FETCH = 1
PATIENCE_S = 5.0
A_MOMENT_S = 0.2
"""Time in which nothing may arrive."""


class Server:
    """Answers each frame with the correlation number of its request."""

    def __init__(self) -> None:
        self.port = free_port(())
        self.got: list[bytes] = []
        self.answers_max = 1_000
        """Further requests wait for their answers."""
        self._socket = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while (data := read_frame(connection)) is not None:
                self.got.append(data)
                until(lambda: len(self.got) <= self.answers_max)
                connection.sendall(framed(data[4:8] + b"done"))

    def close(self) -> None:
        self._socket.close()


def read_frame(connection: socket.socket) -> bytes | None:
    """A frame without its size; None at the end of the connection."""
    try:
        size = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if len(size) == 4 else None
    except ConnectionError:
        return None


def nothing_comes(connection: socket.socket) -> bool:
    connection.settimeout(A_MOMENT_S)
    try:
        return connection.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


def request(number: int, topic: str = "orders") -> bytes:
    return framed(produce(number, [(topic, 0, b"batch %d" % number)]))


def answer(number: int) -> bytes:
    return struct.pack(">i", number) + b"done"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(free_port((server.port,)), server.port) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, proxy.port), PATIENCE_S) as made:
        yield made


def test_everything_passes_in_order(client: socket.socket, server: Server) -> None:
    client.sendall(b"".join(request(number) for number in range(50)))
    assert [read_frame(client) for _ in range(50)] == [answer(number) for number in range(50)]
    assert [framed(data) for data in server.got] == [request(number) for number in range(50)]


def test_nothing_passes_to_the_server_while_that_way_is_cut(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    proxy.cut(Way.TO_SERVER)
    client.sendall(request(1))
    assert nothing_comes(client)
    assert server.got == []
    until(lambda: proxy.held_bytes[Way.TO_SERVER] == len(request(1)))
    proxy.heal()
    assert read_frame(client) == answer(1)


def test_answers_wait_while_the_way_back_is_cut(client: socket.socket, proxy: Proxy, server: Server) -> None:
    proxy.cut(Way.TO_CLIENT)
    client.sendall(request(1))
    until(lambda: server.got)
    assert nothing_comes(client)
    assert proxy.held_bytes == {Way.TO_SERVER: 0, Way.TO_CLIENT: len(framed(answer(1)))}
    proxy.heal()
    assert read_frame(client) == answer(1)


def test_requests_held_back_by_a_cut_arrive_although_their_client_closed(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    proxy.cut(Way.TO_SERVER)
    client.sendall(request(1))
    until(lambda: proxy.held_bytes[Way.TO_SERVER])
    client.close()
    proxy.heal()
    until(lambda: [framed(data) for data in server.got] == [request(1)])


def test_a_cut_is_also_one_for_new_connections(proxy: Proxy, server: Server) -> None:
    proxy.cut(*Way)
    with socket.create_connection((HOST, proxy.port), PATIENCE_S) as late:
        late.sendall(request(1))
        assert nothing_comes(late)
        proxy.heal()
        assert read_frame(late) == answer(1)


def test_everything_takes_longer_while_the_network_is_slow(client: socket.socket, proxy: Proxy) -> None:
    proxy.latency_s = A_MOMENT_S
    began = time.monotonic()
    client.sendall(request(1))
    assert read_frame(client) == answer(1)
    assert time.monotonic() - began >= 2 * A_MOMENT_S
    assert proxy.delayed == 2


def test_a_reset_ends_every_connection(client: socket.socket, proxy: Proxy) -> None:
    client.sendall(request(1))
    assert read_frame(client) == answer(1)
    assert proxy.reset() == 1
    assert read_frame(client) is None


def test_the_second_produce_to_a_topic_and_all_later_requests_are_held(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    trap = proxy.trap(Trap(Action.HOLD, topic="journal", nth=2))
    client.sendall(request(1, "journal") + request(2) + request(3, "journal") + request(4))
    assert [read_frame(client), read_frame(client)] == [answer(1), answer(2)]
    assert trap.caught.wait(PATIENCE_S)
    assert nothing_comes(client)
    trap.release()
    assert [read_frame(client), read_frame(client)] == [answer(3), answer(4)]
    assert trap.request is not None
    assert (trap.request.correlation, trap.answered.is_set()) == (3, True)


def test_a_held_request_arrives_and_is_answered_although_its_client_died(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    trap = proxy.trap(Trap(Action.HOLD))
    client.sendall(request(1))
    assert trap.caught.wait(PATIENCE_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # with a reset, as when a process is killed
    trap.release()
    assert trap.answered.wait(PATIENCE_S)
    assert [framed(data) for data in server.got] == [request(1)]


def test_a_request_that_is_dropped_never_arrives(client: socket.socket, proxy: Proxy, server: Server) -> None:
    trap = proxy.trap(Trap(Action.DROP, topic="orders"))
    client.sendall(request(1) + request(2))
    assert read_frame(client) == answer(2)
    assert trap.caught.is_set()
    assert len(server.got) == 1


def test_a_doubled_request_arrives_twice_and_is_answered_once(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    trap = proxy.trap(Trap(Action.DOUBLE))
    client.sendall(request(1) + request(2))
    assert [read_frame(client), read_frame(client)] == [answer(1), answer(2)]
    assert trap.answered.wait(PATIENCE_S)
    assert nothing_comes(client)
    assert [framed(data) for data in server.got] == [request(1), request(1), request(2)]


def test_a_doubled_request_is_answered_when_the_server_has_answered_it_twice(
    client: socket.socket, proxy: Proxy, server: Server
) -> None:
    server.answers_max = 1
    trap = proxy.trap(Trap(Action.DOUBLE))
    client.sendall(request(1))
    assert read_frame(client) == answer(1)
    assert not trap.answered.wait(A_MOMENT_S), "nobody has seen yet that it arrived twice"
    client.close()
    server.answers_max = 2
    assert trap.answered.wait(PATIENCE_S), "the connection stays open until the second one is answered too"


def test_the_answer_to_a_muted_request_never_comes(client: socket.socket, proxy: Proxy, server: Server) -> None:
    trap = proxy.trap(Trap(Action.MUTE))
    client.sendall(request(1) + request(2))
    assert read_frame(client) == answer(2)
    assert trap.answered.is_set()
    assert [framed(data) for data in server.got] == [request(1), request(2)]


def test_a_trap_waits_for_its_own_kind_of_request(client: socket.socket, proxy: Proxy) -> None:
    second = re.compile(b"batch 2")
    traps = [Trap(Action.DROP, FETCH), Trap(Action.DROP, topic="other"), Trap(Action.DROP, records=second)]
    for trap in traps:
        proxy.trap(trap)
    client.sendall(request(1))
    assert read_frame(client) == answer(1)
    assert not any(trap.caught.is_set() for trap in traps)
    client.sendall(request(2) + request(3))
    assert read_frame(client) == answer(3)
    assert [trap.caught.is_set() for trap in traps] == [False, False, True]


def test_a_client_is_refused_when_the_server_is_not_there(server: Server) -> None:
    server.close()
    with (
        Proxy(free_port((server.port,)), free_port((server.port,))) as proxy,
        socket.create_connection((HOST, proxy.port), PATIENCE_S) as client,
    ):
        assert read_frame(client) is None


def test_an_unframed_proxy_forwards_bytes_without_parsing_them(server: Server) -> None:
    with (
        Proxy(free_port((server.port,)), server.port, framed=False) as proxy,
        socket.create_connection((HOST, proxy.port), PATIENCE_S) as client,
    ):
        for half in (request(1)[:10], request(1)[10:]):
            client.sendall(half)
        assert read_frame(client) == answer(1)
