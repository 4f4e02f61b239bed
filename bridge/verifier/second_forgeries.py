"""Other content under a counter that was taken, for the second fold: a stranger writes in the name of a writer."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.records import Envelope, Kind

if TYPE_CHECKING:
    from .records import LogRecord
    from .second_state import SecondState

DIGEST_BYTES: Final = 12
"""Enough against chance; two bodies with one digest take a forger 2^48 attempts."""


class _Content(NamedTuple):
    """What is kept of a record that was taken."""

    offset: int
    digest: bytes
    is_void: bool


class Contents:
    """What was taken under each counter of each writer, since the first record that was read."""

    def __init__(self) -> None:
        self.copied = 0
        """Records with a header of ours that names another incarnation."""
        self._taken: dict[tuple[bytes, int], _Content] = {}

    def take(self, envelope: Envelope, record: LogRecord) -> None:
        """This one is accepted."""
        self._taken[envelope.writer, envelope.counter] = _content(envelope, record)

    def compare(self, state: SecondState, envelope: Envelope, record: LogRecord) -> None:
        """A duplicate is what was taken under its counter, or that is a problem.

        An owner says VOID in the place of an output that was taken back WITH CLEANUP: both are its own.
        """
        known = self._taken.get((envelope.writer, envelope.counter))
        if known is None:
            return
        came = _content(envelope, record)
        is_owner = time_of_writer(envelope.writer) is None
        if came.digest != known.digest and not (is_owner and (came.is_void or known.is_void)):
            state.problem(
                f"I23: offsets {known.offset} and {came.offset} hold other content under counter {envelope.counter} "
                f"of {envelope.writer.hex()}: one of them is forged, and the second was dropped"
            )


def _content(envelope: Envelope, record: LogRecord) -> _Content:
    header = record.header or b""
    whole = len(header).to_bytes(4) + header + (record.body or b"")
    return _Content(record.offset, blake2b(whole, digest_size=DIGEST_BYTES).digest(), envelope.kind is Kind.VOID)
