"""Encodes Kafka Produce requests as clients do, for tests of the parser."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Part = tuple[str, int, bytes]
"""Topic, partition, batch."""


def framed(data: bytes) -> bytes:
    """The request with its size in front."""
    return struct.pack(">i", len(data)) + data


def produce(correlation: int, parts: Sequence[Part]) -> bytes:
    """A Produce request of version 9, the first with compact lengths and tagged fields."""
    out = struct.pack(">hhih", 0, 9, correlation, 2) + b"me" + b"\x00" + b"\x00" + struct.pack(">hi", -1, 1000)
    out += _varint(len(parts) + 1)
    for topic, partition, batch in parts:
        out += _varint(len(topic) + 1) + topic.encode() + _varint(2) + struct.pack(">i", partition)
        out += _varint(len(batch) + 1) + batch + b"\x00\x00"
    return out + b"\x00"


def plain_produce(correlation: int, parts: Sequence[Part]) -> bytes:
    """A Produce request of version 8."""
    out = (
        struct.pack(">hhih", 0, 8, correlation, -1) + struct.pack(">hhi", -1, -1, 1000) + struct.pack(">i", len(parts))
    )
    for topic, partition, batch in parts:
        out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iii", 1, partition, len(batch)) + batch
    return out


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
