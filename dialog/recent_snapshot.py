"""What a partition knows of the records that came last, in a snapshot: no state, and in no hash of it.

Without it the next owner could not tell a copy from another record in the place of one that came before the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from konverse.schemas.columns import pack, unpack
from konverse.schemas.limits import SNAPSHOT_PIECE_ENTRIES_MAX
from konverse.schemas.snapshot import RECENT, encode_section

from .forgeries import DIGEST_BYTES, WRITER, Known, Recent

WRITER_BYTES = WRITER.stop - WRITER.start


def pieces_of(recent: Recent) -> Iterator[bytes]:
    """Sections of what is known now; they may be made later."""
    return _pieces(recent.known())


def _pieces(known: Iterator[Known]) -> Iterator[bytes]:
    while chunk := list(islice(known, SNAPSHOT_PIECE_ENTRIES_MAX)):
        yield encode_section(RECENT, {
            "writers": b"".join(one.writer for one in chunk),
            "counters": pack("q", [one.counter for one in chunk]),
            "offsets": pack("q", [one.offset for one in chunk]),
            "digests": b"".join(one.digest for one in chunk),
        })  # fmt: skip


def restore_recent(recent: Recent, value: dict[str, Any]) -> None:
    """What was known."""
    writers, digests = value["writers"], value["digests"]
    numbers = zip(unpack("q", value["counters"]), unpack("q", value["offsets"]), strict=True)
    for place, (counter, offset) in enumerate(numbers):
        writer = writers[place * WRITER_BYTES : (place + 1) * WRITER_BYTES]
        recent.recall(Known(writer, counter, offset, digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]))
