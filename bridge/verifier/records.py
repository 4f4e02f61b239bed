"""A record of a log, as the verifier takes it from wherever it comes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from konverse.schemas.wire.records import Origin

Key = tuple[int, bytes]
"""One side of a conversation: role and conversation."""


class LogRecord(Protocol):
    """What the second fold needs to know of a record, of a data log or a journal."""

    @property
    def offset(self) -> int:
        """Place in its log."""

    @property
    def header(self) -> bytes | None:
        """The envelope; None without one."""

    @property
    def body(self) -> bytes | None:
        """Value of the record."""

    @property
    def timestamp_ms(self) -> int:
        """The broker's time."""

    @property
    def order(self) -> int:
        """Place among all appends to all logs; 0 where nobody knows."""

    @property
    def body_bytes(self) -> int:
        """Bytes of the value as it stands in the log."""


class Record(NamedTuple):
    """A record that was read from Kafka."""

    offset: int
    header: bytes | None
    body: bytes | None
    timestamp_ms: int
    order: int = 0
    whole: int | None = None
    """Bytes of the value, where the body is a digest of it."""

    @property
    def body_bytes(self) -> int:
        """Bytes of the value as it stands in the log."""
        return len(self.body or b"") if self.whole is None else self.whole


class Travelled(NamedTuple):
    """A record that was written elsewhere first."""

    offset: int
    header: bytes | None
    body: bytes | None
    timestamp_ms: int
    order: int
    body_bytes: int
    origin: Origin


def origin_of(record: LogRecord) -> Origin | None:
    """Where the record was written first; None: here."""
    return record.origin if isinstance(record, Travelled) else None
