"""The header of a record that is ours."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from konverse.schemas.wire.envelope import HEADER


def header_of(message: Message) -> bytes | None:
    """Our header of a record; of several the first one."""
    pairs: Any = message.headers() or ()
    return next((value for name, value in pairs if name == HEADER), None)
