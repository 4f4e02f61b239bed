"""Finds konverse's header in a record."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from konverse.schemas.wire.envelope import HEADER


def header_of(message: Message) -> bytes | None:
    """Value of a record's first header named `konverse`; None when there is none, or its value is null."""
    pairs: Any = message.headers() or ()
    return next((value for name, value in pairs if name == HEADER), None)
