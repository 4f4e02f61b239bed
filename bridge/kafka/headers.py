"""Finds konverse's header of a record."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from konverse.schemas.wire.envelope import HEADER


def header_of(message: Message) -> bytes | None:
    """The first header of a record that is named `konverse`; None when it has none, or that header is null."""
    pairs: Any = message.headers() or ()
    return next((value for name, value in pairs if name == HEADER), None)
