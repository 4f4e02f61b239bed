"""Forged records in the second fold: other content under a counter that its writer has used (protocol.md 9f)."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from konverse.schemas.identifiers import time_of_writer
from konverse.schemas.wire.records import Envelope, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from konverse.bridge.verifier.records import LogRecord

DIGEST_BYTES: Final = 12
"""Long enough against chance; a forger needs 2^48 attempts to find two bodies with one digest."""


class _Content(NamedTuple):
    """Digest and place of a record that was accepted."""

    offset: int
    digest: bytes
    is_void: bool


class TakenContents:
    """The contents accepted under each counter of each writer, since the first record that was read."""

    def __init__(self, problem: Callable[[str], None]) -> None:
        self.copied = 0
        """Records with a header of ours that names another incarnation."""
        self.contested: dict[int, None] = {}
        """Offsets that the COMMIT being folded calls contested and whose records have not come yet."""
        self._problem = problem
        self._taken: dict[tuple[bytes, int], list[_Content]] = {}

    def take(self, envelope: Envelope, record: LogRecord) -> None:
        """Keep the digest of an accepted record."""
        self._taken[envelope.writer, envelope.counter] = [_content(envelope, record)]

    def compare(self, envelope: Envelope, record: LogRecord) -> bool:
        """Compare a duplicate with what was accepted under its counter; return whether its COMMIT calls it contested.

        Other content is a problem, and so is a contested record with the same content. An owner's VOID in place of an
        output that was taken back WITH CLEANUP is neither: the owner wrote both.
        """
        is_contested = record.offset in self.contested
        self.contested.pop(record.offset, None)
        known = self._taken.get((envelope.writer, envelope.counter))
        if known is None:
            return is_contested
        came, first = _content(envelope, record), known[0]
        is_owner = time_of_writer(envelope.writer) is None
        differs = all(came.digest != one.digest for one in known) and not (is_owner and (came.is_void or first.is_void))
        if differs:
            fate = "both were accepted" if is_contested else "the second was dropped"
            self._problem(
                f"I23: offsets {first.offset} and {came.offset} hold other content under counter {envelope.counter} "
                f"of {envelope.writer.hex()}: one of them is forged, and {fate}"
            )
        elif is_contested:
            self._problem(
                f"I4: offset {came.offset} was accepted again, although offset {first.offset} has the same content"
            )
        if is_contested:
            known.append(came)
        return is_contested

    def knows(self, writer: bytes, counter: int, header: bytes, body: bytes) -> bool:
        """Whether a record with this content was accepted."""
        return any(one.digest == _digest(header, body) for one in self._taken.get((writer, counter), ()))

    def judged(self) -> None:
        """After the data of a COMMIT, check that each offset that the COMMIT calls contested was a duplicate."""
        for offset in self.contested:
            self._problem(f"I3: a commit calls offset {offset} contested, which is not a duplicate")
        self.contested = {}


def _content(envelope: Envelope, record: LogRecord) -> _Content:
    digest = _digest(record.header or b"", record.body or b"")
    return _Content(record.offset, digest, envelope.kind is Kind.VOID)


def _digest(header: bytes, body: bytes) -> bytes:
    return blake2b(len(header).to_bytes(4) + header + body, digest_size=DIGEST_BYTES).digest()
