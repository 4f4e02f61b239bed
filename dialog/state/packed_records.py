"""Records packed against a sample, for conversations that wait in great numbers and are seldom looked at.

Records that want the same place differ in their ids and their bodies alone, and the ids are known to the keeper of the
record. Deflate with a sample and the ids as its dictionary leaves little more than the body. Packing takes about 9 µs,
unpacking 1 µs.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import Final

PACKED_BYTES_MAX: Final = 1_000
"""Header and body of a record that is packed, and of a sample: both fit into the window. Larger ones gain little."""

_WINDOW_BITS: Final = -11  # raw deflate with a window of 2 KiB
_MEMORY_LEVEL: Final = 1
_SIZE: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">H?")
"""Bytes of the header, and whether there is a body: none is not an empty one."""


def plain(header: bytes, body: bytes | None) -> bytes:
    """A record as one string of bytes: what is packed, and what a sample consists of."""
    return _LENGTH.pack(len(header), body is not None) + header + (body or b"")


class PackedRecords:
    """Records in one array of bytes. Each is found by its place, which `compact` changes."""

    __slots__ = ("_bytes", "_unused")

    def __init__(self) -> None:
        self._bytes = bytearray(1)  # no record is at place 0
        self._unused = 0

    def __len__(self) -> int:
        """Size in bytes."""
        return len(self._bytes)

    @property
    def wasteful(self) -> bool:
        """Whether most of the bytes are unused."""
        return self._unused > len(self._bytes) // 2

    def add(self, record: bytes, sample: bytes) -> int:
        """Pack a `plain` record of at most `PACKED_BYTES_MAX` bytes. Returns its place, which is not 0."""
        place = len(self._bytes)
        packer = zlib.compressobj(1, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=sample)
        packed = packer.compress(record) + packer.flush()
        self._bytes += _SIZE.pack(len(packed)) + packed
        return place

    def get(self, place: int, sample: bytes) -> tuple[bytes, bytes | None]:
        """Header and body of a record, unpacked with the sample that it was packed with."""
        start, end = self._span(place)
        record = zlib.decompressobj(_WINDOW_BITS, zdict=sample).decompress(self._bytes[start:end])
        length, has_body = _LENGTH.unpack_from(record)
        header_end = _LENGTH.size + length
        return record[_LENGTH.size : header_end], record[header_end:] if has_body else None

    def drop(self, place: int) -> None:
        """Mark the bytes of a record as unused."""
        self._unused += self._span(place)[1] - place

    def compact(self, places: array[int]) -> None:
        """Keep the records at these places alone, and write their new places there. Zeros stay."""
        kept = bytearray(1)
        for index, place in enumerate(places):
            if place:
                places[index] = len(kept)
                kept += self._bytes[place : self._span(place)[1]]
        self._bytes, self._unused = kept, 0

    def copy(self) -> PackedRecords:
        """A copy that does not change with this one."""
        copy = PackedRecords()
        copy._bytes, copy._unused = self._bytes[:], self._unused
        return copy

    def _span(self, place: int) -> tuple[int, int]:
        start = place + _SIZE.size
        return start, start + _SIZE.unpack_from(self._bytes, place)[0]
