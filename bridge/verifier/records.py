"""Log records as the verifier takes them: read from Kafka, from the simulator, or forwarded by another partition."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from konverse.schemas.wire.records import Origin

Key = tuple[int, bytes]
"""A side of a conversation: role and conversation id."""


class LogRecord(Protocol):
    """The parts of a data record or journal record that the second fold reads."""

    @property
    def offset(self) -> int:
        """Offset in its log."""

    @property
    def header(self) -> bytes | None:
        """The konverse header, an encoded envelope; None if the record has none."""

    @property
    def body(self) -> bytes | None:
        """Value of the record."""

    @property
    def timestamp_ms(self) -> int:
        """The broker's time."""

    @property
    def order(self) -> int:
        """Position among all appends to all logs, which the simulator knows; else 0."""

    @property
    def body_bytes(self) -> int:
        """Bytes of the value as it is in the log."""


class Record(NamedTuple):
    """A record that was read from Kafka."""

    offset: int
    header: bytes | None
    body: bytes | None
    timestamp_ms: int
    order: int = 0
    whole: int | None = None
    """Size of the value in bytes, if `body` is only a digest of it."""

    @property
    def body_bytes(self) -> int:
        """Bytes of the value as it is in the log."""
        return len(self.body or b"") if self.whole is None else self.whole


class ForwardedRecord(NamedTuple):
    """A record that was written to another partition first and was forwarded from there."""

    offset: int
    header: bytes | None
    body: bytes | None
    timestamp_ms: int
    order: int
    body_bytes: int
    origin: Origin


def origin_of(record: LogRecord) -> Origin | None:
    """Where a forwarded record was written first; None: it was written here."""
    return record.origin if isinstance(record, ForwardedRecord) else None
