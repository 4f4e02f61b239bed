"""Columns of numbers inside Avro `bytes` fields: little-endian arrays, packed and read by one call into C."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Final

IDENTIFIER_BYTES: Final = 16

_BIG_ENDIAN: Final = sys.byteorder == "big"


def pack(code: str, values: Iterable[int]) -> bytes:
    """The bytes of a column; `code` is a type code of the module `array`."""
    column = array(code, values)
    if _BIG_ENDIAN:
        column.byteswap()
    return column.tobytes()


def identifiers(data: bytes) -> list[bytes]:
    """The identifiers in a column of 16-byte identifiers."""
    return [data[at : at + IDENTIFIER_BYTES] for at in range(0, len(data), IDENTIFIER_BYTES)]


def unpack(code: str, data: bytes) -> list[int]:
    """The numbers of a column; ValueError when the bytes are not a whole number of items."""
    column: array[int] = array(code)
    column.frombytes(data)
    if _BIG_ENDIAN:
        column.byteswap()
    return column.tolist()
