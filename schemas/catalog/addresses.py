"""Addresses of routes (service-broker.md 1.5): LOCAL, TRANSPORT, or a network address `TCP://host[:port][/]`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT_PORT: Final = 4022
"""Port of an address that names none: by convention the port of Service Broker's endpoints."""

_NETWORK: Final = re.compile(r"tcp://([^\s:/\[\]]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(?=/|$)", re.IGNORECASE)
PORT_MAX: Final = 65_535


class NetworkAddress(NamedTuple):
    """Host and port of an instance's endpoint."""

    host: str
    """In lower case: host names are compared without regard to case. An IPv6 host keeps its brackets."""
    port: int

    def __str__(self) -> str:
        return f"TCP://{self.host}:{self.port}"


def network_address(text: str) -> NetworkAddress | None:
    """Read `text` as a network address, with or without a port and a slash at its end; None for any other text."""
    found = _NETWORK.match(text)
    return _of(found) if found is not None and text[found.end() :] in ("", "/") else None


def transport_address(service: str) -> NetworkAddress | None:
    """The network address with which the name of a service begins (TRANSPORT, behaviour 161); None when it has none."""
    found = _NETWORK.match(service)
    return None if found is None else _of(found)


def _of(found: re.Match[str]) -> NetworkAddress | None:
    port = DEFAULT_PORT if found[2] is None else int(found[2])
    return NetworkAddress(found[1].lower(), port) if 1 <= port <= PORT_MAX else None
