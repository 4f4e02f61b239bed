"""Free ports of the loopback interface, and random ids for Kafka."""

from __future__ import annotations

import base64
import random
import socket
import uuid
from collections.abc import Collection
from typing import Final

from konverse.schemas.errors import InvalidSettings, StackError
from konverse.schemas.stack_errors import PortTaken

HOST: Final = "127.0.0.1"
FIRST: Final = 20_000
"""Ports are chosen below the range that Linux gives to outgoing connections (32768 and up), so that a killed server
finds its port free when it comes back."""
LAST: Final = 31_999
_ATTEMPTS_MAX: Final = 500


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers set it: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def require_free(port: int, option: str) -> int:
    """Return the port that the user asked for by `option`; raise `PortTaken` or `InvalidSettings`."""
    if not 0 < port < 65_536:
        raise InvalidSettings(f"{option} {port} is not a port. Give a number from 1 to 65535.")
    if not is_free(port):
        raise PortTaken(
            f"Port {port} of {HOST} ({option}) is in use, or this user may not open it. Give another, or none."
        )
    return port


def free_port(taken: Collection[int]) -> int:
    """Choose a random free port that is not in `taken`."""
    for _ in range(_ATTEMPTS_MAX):
        port = random.randint(FIRST, LAST)  # noqa: S311 - stacks that start together should not all try the same one
        if port not in taken and is_free(port):
            return port
    raise StackError(f"No free port found between {FIRST} and {LAST} on {HOST}. Close some servers.")


def new_id() -> str:
    """Make an id in the form of Kafka's for clusters and folders: 16 random bytes in URL-safe base 64."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass  # as Kafka does: a command line would take it for an option
    return text
