"""Finds topic settings that konverse cannot work with, and names the command that mends each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

BYTES_MIN: Final = "1000000"
"""Lower bound of `max.message.bytes`: the client's default limit for a record. Kafka's default is a little larger."""


def misfits(name: str, actual: Mapping[str, str], wanted: Mapping[str, str], replicas: int) -> Iterator[str]:
    """Texts about settings of a topic with which konverse would lose messages or stand still, each with its remedy."""
    for key, needed in {**wanted, "max.message.bytes": BYTES_MIN}.items():
        value = actual[key]
        fits = int(value) >= int(needed) if key == "max.message.bytes" else value == needed
        if not fits:
            yield misfit(name, key, value, needed)
    if int(actual["min.insync.replicas"]) > replicas:
        value = f"{actual['min.insync.replicas']} and {replicas} replica{'s' if replicas > 1 else ''}"
        yield misfit(name, "min.insync.replicas", value, str(replicas))


def misfit(name: str, key: str, value: str, needed: str) -> str:
    """Text that tells what a topic has, what konverse needs, and which command mends it."""
    return (
        f"topic {name} has {key}={value}; konverse needs {needed}. "
        f"Change it with: kafka-configs --alter --topic {name} --add-config {key}={needed}"
    )


def too_small(name: str, value: str | None) -> str | None:
    """Text for a topic that refused a record as too large; None when its setting `value` is not to blame.

    `value` is None when the setting is not known.
    """
    if value is None:
        return misfit(name, "max.message.bytes", "a value below the size of the record", BYTES_MIN)
    return misfit(name, "max.message.bytes", value, BYTES_MIN) if int(value) < int(BYTES_MIN) else None
