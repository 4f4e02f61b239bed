"""Finds konverse's headers in a record."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Message

from konverse.schemas.wire.envelope import HEADER

WITHOUT_GROUP: Final[dict[str, str | bytes | None]] = {"reader": b"without a consumer group"}
"""Header of journal records whose owner got its partitions without a consumer group.

Only views read it: the members of the group do not show whether such an owner lives.
"""


def header_of(message: Message) -> bytes | None:
    """Value of a record's first header named `konverse`; None when there is none, or its value is null."""
    pairs: Any = message.headers() or ()
    return next((value for name, value in pairs if name == HEADER), None)


def is_without_group(message: Message) -> bool:
    """Whether a journal record has the header WITHOUT_GROUP."""
    pairs: Any = message.headers() or ()
    return any(pair in WITHOUT_GROUP.items() for pair in pairs)
