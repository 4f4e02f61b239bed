"""A process has a limited number of thread-local keys, and each Kafka client takes one."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from konverse.bridge.kafka import clients
from konverse.schemas.errors import KafkaUnavailable


class Closed:
    """A closed client that is part of a cycle, so that only the collector removes it."""

    def __init__(self, keys: list[int]) -> None:
        self.me = self
        self.keys = keys

    def __del__(self) -> None:
        self.keys.append(1)


def test_closed_clients_are_collected_when_the_keys_are_used_up() -> None:
    keys: list[int] = []
    gc.disable()
    try:
        Closed(keys)

        def client(_: dict[str, Any]) -> str:
            if not keys:
                raise RuntimeError("Failed to initialize thread local storage")
            return "a client"

        assert clients._made(client, {}) == "a client"
    finally:
        gc.enable()


def test_a_process_with_too_many_open_clients_is_told_what_to_do() -> None:
    def client(_: dict[str, Any]) -> str:
        raise RuntimeError("Failed to initialize thread local storage")

    with pytest.raises(KafkaUnavailable, match="too many clients: close some"):
        clients._made(client, {})
