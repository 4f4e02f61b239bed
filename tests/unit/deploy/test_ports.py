from __future__ import annotations

import socket

import pytest

from konverse.deploy.host.ports import FIRST, LAST, free_port, is_free, require_free
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.stack_errors import PortTaken


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(PortTaken, match=rf"Port {port} of 127\.0\.0\.1 \(--kafka-port\) is in use"):
            require_free(port, "--kafka-port")
    assert require_free(port, "--kafka-port") == port


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_number_that_is_no_port_is_bad_input(port: int) -> None:
    with pytest.raises(InvalidSettings, match="--redis-port"):
        require_free(port, "--redis-port")


def test_free_ports_are_below_those_of_outgoing_connections_and_never_taken_twice() -> None:
    taken: set[int] = set()
    for _ in range(50):
        port = free_port(taken)
        assert FIRST <= port <= LAST
        assert port not in taken
        taken.add(port)
