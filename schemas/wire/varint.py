"""Avro longs, encoded by hand, with tables that turn a running counter into bytes by one look-up."""

from __future__ import annotations

from typing import Final

LOW_BITS: Final = 13
LOW_MASK: Final = (1 << LOW_BITS) - 1


def varint(number: int) -> bytes:
    """The Avro long of a number."""
    return SMALL[number] if 0 <= number <= LOW_MASK else _varint(number)


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The Avro long at `at` and the index after it; IndexError when the bytes end, ValueError above 64 bits."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    zigzag = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    if zigzag >> 64:
        raise ValueError("a number of more than 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), at + 1


SMALL: Final[list[bytes]] = [_varint(number) for number in range(LOW_MASK + 1)]
"""Avro longs of 0 to 8191. A larger number is a low part from `_LOW` and a high part, the same for 8192 numbers."""

_LOW: Final[list[bytes]] = [bytes((((n << 1) & 0x7F) | 0x80, ((n << 1) >> 7) | 0x80)) for n in range(LOW_MASK + 1)]


def low_table(number: int) -> list[bytes]:
    """Table such that `low_table(n)[n & LOW_MASK] + high_part(n)` is `varint(n)` for n >= 0."""
    return _LOW if number > LOW_MASK else SMALL


def varints(first: int, count: int) -> list[bytes]:
    """Avro longs of `count` consecutive numbers from `first` >= 0 on."""
    if first + count <= LOW_MASK:
        return SMALL[first : first + count]
    out: list[bytes] = []
    while count:
        at = first & LOW_MASK
        some, high = low_table(first)[at : at + count], high_part(first)
        out += [low + high for low in some] if high else some
        first += len(some)
        count -= len(some)
    return out


def high_part(number: int) -> bytes:
    """The bytes that follow `low_table(number)[number & LOW_MASK]`; the same for 8192 numbers in a row."""
    if number <= LOW_MASK:
        return b""
    rest = number >> LOW_BITS
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
