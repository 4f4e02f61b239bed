"""Finds topic settings that konverse cannot work with, and names the command that corrects each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from konverse.schemas.counting import counted

BYTES_MIN: Final = "1000000"
"""Lower bound of `max.message.bytes`: the client's default limit for a record. Kafka's default is a little larger."""

FOR_EVER: Final = "-1"
"""`retention.ms` of a topic whose records Kafka keeps."""


def misfits(
    bootstrap: str, name: str, actual: Mapping[str, str], wanted: Mapping[str, str], replicas: int
) -> Iterator[str]:
    """Texts, with remedies, about a topic's settings with which konverse would lose messages or stop working."""
    for key, needed in {**wanted, "max.message.bytes": BYTES_MIN}.items():
        value = actual[key]
        if not _fits(key, value, needed):
            yield misfit(bootstrap, name, key, value, needed)
    if int(actual["min.insync.replicas"]) > replicas:
        value = f"{actual['min.insync.replicas']} and {counted(replicas, 'replica')}"
        yield misfit(bootstrap, name, "min.insync.replicas", value, str(replicas))


def _fits(key: str, value: str, needed: str) -> bool:
    if key == "max.message.bytes":
        return int(value) >= int(needed)
    if key == "retention.ms" and needed != FOR_EVER:  # longer does no harm
        return value == FOR_EVER or int(value) >= int(needed)
    return value == needed


def misfit(bootstrap: str, name: str, key: str, value: str, needed: str) -> str:
    """Text with a topic's setting, the value that konverse needs, and the command that corrects it."""
    return (
        f"topic {name} has {key}={value}; konverse needs {needed}. "
        f"Change it with: {alter_command(bootstrap, name, key, needed)}"
    )


def alter_command(bootstrap: str, name: str, key: str, needed: str) -> str:
    """Command of Kafka that changes a setting of a topic."""
    return f"kafka-configs --bootstrap-server {bootstrap} --alter --topic {name} --add-config {key}={needed}"


def too_small(bootstrap: str, name: str, value: str | None) -> str | None:
    """Text for a topic that refused a record as too large; None when its `max.message.bytes` is not the cause.

    `value` is that setting, or None when it is not known.
    """
    if value is None:
        return misfit(bootstrap, name, "max.message.bytes", "a value below the size of the record", BYTES_MIN)
    return misfit(bootstrap, name, "max.message.bytes", value, BYTES_MIN) if int(value) < int(BYTES_MIN) else None
